"""Series of unequal length that come out: how they are kept, learnt, measured and cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from easeml_plpy.architectures import fits
from easeml_plpy.columns.encoder import SeriesTarget, target_from_json
from easeml_plpy.columns.object_rows import Objects, packed
from easeml_plpy.columns.task import Objects as Sizes
from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import measure, values
from easeml_plpy.server.value_types import Array
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from easeml_plpy.trainers.networks.losses import series_loss
from tests.unit.plpy.trainers.training_rows import no_pause

N_SYMBOLS, MOST = 4, 4
TARGET = SeriesTarget("output", "_float4", "f4", (4, 3), mean=2.0, scale=0.5)
SERIES = ([[1, 2]], [[3, 4], [5, 6], [7, 8]])
TASK = Task(
    "regression",
    (MOST, N_SYMBOLS + 1),
    MOST * (N_SYMBOLS + 1),
    output_shape=(MOST, N_SYMBOLS + 1),
    output_range=(0.0, 1.0),
    objects=Sizes(N_SYMBOLS, 0),
    output_objects=Sizes(N_SYMBOLS, 0),
)


def stored(series: tuple[list[list[int]], ...] = SERIES) -> Array:
    rows = [Objects(np.array(each, np.float32), np.zeros((len(each), 0), np.int32)) for each in series]
    return TARGET.stored(packed(rows), len(rows))


def test_series_are_kept_one_after_another_and_laid_side_by_side() -> None:
    rows = stored().reshape(2, 4, 3)
    assert rows[0].tolist() == [[1, 2, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert rows[1].tolist() == [[3, 4, 1], [5, 6, 1], [7, 8, 1], [0, 0, 0]]
    assert TARGET.numbers(stored()).tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert TARGET.stored(b"", 0).shape == (0, 12)
    assert target_from_json(TARGET.to_json()) == TARGET


def test_the_standard_scale_is_undone_and_an_answer_ends_where_it_does_not_go_on() -> None:
    standard = TARGET.standard(stored())
    assert standard.reshape(2, 4, 3)[0].tolist() == [[-2, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    raw = TARGET.raw(standard)
    assert [TARGET.shaped(row).tolist() for row in raw] == [list(map(list, each)) for each in SERIES]
    never = np.full(12, -1.0)
    assert len(TARGET.shaped(never)) == 1  # a series has a step at least
    gap = raw[1].reshape(4, 3).copy()
    gap[1, 2] = -3.0
    assert TARGET.shaped(gap.ravel()).tolist() == [[3, 4]]


def test_what_fills_up_a_series_costs_nothing_and_where_it_ends_does() -> None:
    wanted = torch.tensor([[[1.0, 1.0], [2.0, 1.0], [0.0, 0.0]]])
    given = torch.tensor([[[1.0, 30.0], [2.0, 30.0], [99.0, -30.0]]])
    assert float(series_loss(given, wanted)) == pytest.approx(0, abs=1e-6)
    wrong = given.clone()
    wrong[0, 1, 0] = 4.0
    assert float(series_loss(wrong, wanted)) == pytest.approx(4 / 2, abs=1e-6)
    late = given.clone()
    late[0, 2, 1] = 30.0
    assert float(series_loss(late, wanted)) == pytest.approx(30 / 3, abs=1e-5)


def one_hot(symbols: list[list[int]]) -> Array:
    rows = np.zeros((len(symbols), *TASK.output_shape), np.float32)
    for row, each in zip(rows, symbols, strict=True):
        row[np.arange(len(each)), each] = 1
        row[: len(each), -1] = 1
    return rows.reshape(len(symbols), -1)


def metrics_of(given: list[list[int]], wanted: list[list[int]]) -> dict[str, float]:
    return values(TASK, measure(TASK, one_hot(given), one_hot(wanted)))


def test_a_token_counts_where_it_stands_and_a_wrong_length_costs() -> None:
    wanted = [[0, 1, 2], [3, 2]]
    assert metrics_of(wanted, wanted)["token_accuracy"] == 1
    assert metrics_of([[0, 1, 3], [3, 2]], wanted)["token_accuracy"] == pytest.approx(4 / 5)
    assert metrics_of([[0, 1], [3, 2]], wanted)["token_accuracy"] == pytest.approx(4 / 5)
    longer = metrics_of([[0, 1, 2], [3, 2, 0]], wanted)
    assert longer["token_accuracy"] == pytest.approx(5 / 6)
    assert longer["mse"] == 0  # of the steps that there should be
    assert metrics_of([[0, 1, 3], [3, 2]], wanted)["mse"] == pytest.approx(2 / 20)


def reversed_symbols(n_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return series of symbols, and each backwards."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, MOST + 1, n_rows)
    symbols = [generator.integers(0, N_SYMBOLS, length).tolist() for length in lengths]
    inputs = one_hot(symbols).reshape(n_rows, MOST, N_SYMBOLS + 1)
    return torch.from_numpy(inputs), torch.from_numpy(one_hot([each[::-1] for each in symbols]))


def test_seq2seq_learns_to_write_a_series_backwards_and_where_it_ends() -> None:
    chosen = ARCHITECTURES["seq2seq"]
    assert fits(chosen, TASK) is None
    live = trainer_for("torch").start(chosen, {"width": 48, "learning_rate": 5e-3}, TASK, n_steps_total=104, seed=1)
    for seed in range(8):
        live.train(*reversed_symbols(400, seed), seed=seed, pause=no_pause)
    inputs, targets = reversed_symbols(200, 99)
    found = values(TASK, measure(TASK, live.outputs(inputs), targets.numpy()))
    copied = values(TASK, measure(TASK, inputs.reshape(200, -1).numpy(), targets.numpy()))
    assert copied["token_accuracy"] < 0.45
    assert found["token_accuracy"] > 0.8


def test_what_fills_up_a_series_changes_no_answer() -> None:
    chosen = ARCHITECTURES["seq2seq"]
    live = trainer_for("torch").start(chosen, {"width": 8}, TASK, n_steps_total=10, seed=1)
    inputs, _ = reversed_symbols(5, 3)
    together = live.outputs(inputs)
    for row, answer in zip(inputs, together, strict=True):
        assert live.outputs(row[None])[0] == pytest.approx(answer, abs=1e-5)
