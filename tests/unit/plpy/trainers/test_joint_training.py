"""Ranks that train one network together step as one process would on their joint batch, and end together."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import InvalidArgument, NotAllowed, SlotLost
from easeml_plpy.trainers import ARCHITECTURES, TRAINERS
from easeml_plpy.trainers.networks import joint_training, torch_private
from easeml_plpy.trainers.networks.joint_training import JointSteps
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from easeml_plpy.units import gang_group

# How long a rank may take on a busy machine. The library waits for a silent peer for longer, so that it ends no test.
PATIENCE_SECONDS = 300.0
TASK = Task("classification", (4,), 3)
CONFIG = {"learning_rate": 0.1, "hidden_units": [8], "dropout": 0.0, "schedule": "constant"}


def no_pause() -> None:
    pass


def rows(n_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(n_rows, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs[:, :3].argmax(dim=1)


def trial(**config: Any) -> TorchTrial:
    live = TRAINERS["torch"].start(ARCHITECTURES["mlp"], CONFIG | config, TASK, n_steps_total=100, seed=3)
    assert isinstance(live, TorchTrial)
    return live


# How rows are cut into steps


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(1, 50))
def test_every_row_is_in_one_step_and_weights_make_the_mean_of_the_joint_batch(n_rows: list[int], batch: int) -> None:
    steps = JointSteps(tuple(n_rows), batch)
    assert steps.n_steps == -(-sum(n_rows) // batch)
    for rank, n in enumerate(n_rows if steps.n_steps else ()):
        cuts = [steps.bounds(rank, step) for step in range(steps.n_steps)]
        assert [row for start, stop in cuts for row in range(start, stop)] == list(range(n))
    for step in range(steps.n_steps):
        sizes = [stop - start for start, stop in (steps.bounds(rank, step) for rank in range(len(n_rows)))]
        assert sum(sizes) <= batch + len(n_rows)
        weights = [steps.weight(rank, step) for rank in range(len(n_rows))]
        assert weights == [len(n_rows) * size / max(sum(sizes), 1) for size in sizes]


def test_trainers_say_whether_they_train_jointly() -> None:
    assert {name for name, trainer in TRAINERS.items() if trainer.is_joint} == {"torch"}


# Ranks as processes of this file


def trains(group: gang_group.Group, cases: list[tuple[list[int], dict[str, Any]]]) -> list[dict[str, Any]]:
    """Train a trial for each case (rows of each rank, config) as one rank, and tell the states."""
    return [train(group, n_rows, config) for n_rows, config in cases]


def train(group: gang_group.Group, n_rows: list[int], config: dict[str, Any]) -> dict[str, Any]:
    live = trial(**config)
    inputs, targets = rows(n_rows[group.rank], seed=group.rank)
    network = joint_training.averaging(live, group.exchange.gradients)
    training = joint_training.train_jointly(
        live, inputs, targets, rank=group.rank, n_rows=n_rows, network=network, seed=group.rank, pause=no_pause
    )
    told = {"state": live.dump().hex(), "n_rows": training.n_rows, "n_steps": training.n_steps}
    return {**told, "has_compiler": "torch._dynamo" in sys.modules}


def is_left(group: gang_group.Group) -> dict[str, Any]:
    """The second of two ranks breaks off and lives on, as a session does, until the first has told what it sees."""
    if group.rank == 1:
        time.sleep(0.5)
        group.break_off()
        sys.stdin.read()
        return {}
    with pytest.raises(SlotLost) as lost, gang_group.peers_lost():
        group.exchange.gradients.allreduce([torch.ones(3)]).wait()
    return {"message": lost.value.message}


def run_ranks(
    n_ranks: int, what: str, *arguments: Any, compared: tuple[str, ...] = torch_private.COMPARED
) -> list[Any]:
    """Start a process for each rank; return what they tell. `compared`: the releases whose private parts are used."""
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            [sys.executable, __file__, folder, token, str(rank), str(n_ranks), what, json.dumps([arguments, compared])]
            for rank in range(n_ranks)
        ]
        ranks = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, cwd=folder) for command in commands]
        try:
            told = [json.loads(rank.communicate(timeout=PATIENCE_SECONDS)[0]) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        assert not list(Path(folder).iterdir())
    return told


def be_a_rank(
    folder: str, token: str, rank: int, n_ranks: int, what: str, arguments: list[Any], compared: list[str]
) -> None:
    """Join the group, do what is wanted and print it. As in a session, nothing is taken down at the end."""
    torch.set_num_threads(1)
    gang_group.TEMPORARY_FILES, torch_private.COMPARED = Path(folder), tuple(compared)
    group = gang_group.join(token, rank, n_ranks, "cpu", 10 * PATIENCE_SECONDS, no_pause)
    told = {"trains": trains, "is_left": is_left}[what](group, *arguments)  # type: ignore[operator]
    print(json.dumps(told), flush=True)
    os._exit(0)


def test_one_step_of_a_gang_is_one_step_on_all_rows_and_ranks_stay_alike_over_many() -> None:
    sgd = {"optimizer": "sgd", "momentum": 0.9}
    one_step = [
        ([8, 8], sgd | {"batch_size": 16}),
        ([5, 11], sgd | {"batch_size": 16}),
        ([0, 7], sgd | {"batch_size": 7}),
    ]
    many_steps = ([37, 64], {"optimizer": "adam", "batch_size": 8})
    first, second = run_ranks(2, "trains", [*one_step, many_steps])
    assert [told["state"] for told in first] == [told["state"] for told in second]  # the same bytes
    assert [told["n_steps"] for told in first] == [told["n_steps"] for told in second] == [1, 1, 1, 13]
    assert not any(told["has_compiler"] for told in first + second), "importing it takes each rank two seconds"
    for (n_rows, config), told in zip(one_step, first[:3], strict=True):
        check_like_one_process(n_rows, config, bytes.fromhex(told["state"]))


def check_like_one_process(n_rows: list[int], config: dict[str, Any], state: bytes) -> None:
    alone = trial(**config)
    parts = [rows(n, seed=rank) for rank, n in enumerate(n_rows)]
    alone.train(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]), seed=1, pause=no_pause)
    jointly = TRAINERS["torch"].resume(ARCHITECTURES["mlp"], CONFIG | config, TASK, state)
    probe, _ = rows(50, seed=9)
    torch.testing.assert_close(
        torch.from_numpy(jointly.outputs(probe)), torch.from_numpy(alone.outputs(probe)), rtol=1e-5, atol=1e-6
    )


def test_ranks_train_to_the_same_bytes_by_the_public_calls_of_torch() -> None:
    cases = [([37, 64], {"optimizer": name, "batch_size": 8}) for name in ("sgd", "adam")]
    private, public = (run_ranks(2, "trains", cases, compared=each) for each in (torch_private.COMPARED, ()))
    assert [[told["state"] for told in rank] for rank in public] == [
        [told["state"] for told in rank] for rank in private
    ]


@pytest.mark.parametrize("compared", [torch_private.COMPARED, ()])
def test_a_rank_that_breaks_off_ends_the_wait_of_the_others_at_once(compared: tuple[str, ...]) -> None:
    seen, _ = run_ranks(2, "is_left", compared=compared)
    assert seen["message"] == "another slot of the gang was lost"


# Where they meet


def test_a_rank_that_waits_for_another_lets_a_cancel_through_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_group, "TEMPORARY_FILES", tmp_path / "files")
    n_pauses = 0

    def pause() -> None:
        nonlocal n_pauses
        n_pauses += 1
        if n_pauses == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        gang_group.join("0123456789abcdef", 1, 2, "cpu", 60.0, pause)
    assert not list((tmp_path / "files").iterdir())


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_group, "TEMPORARY_FILES", tmp_path)
    folder = tmp_path / f"{gang_group.FOLDER_PREFIX}0123456789abcdef"
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(NotAllowed, match="not private"):
        gang_group.join("0123456789abcdef", 0, 2, "cpu", 60.0, no_pause)


def test_a_rank_whose_peer_has_removed_the_folder_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_group, "TEMPORARY_FILES", tmp_path)

    def remove() -> None:
        for folder in tmp_path.glob("*"):
            gang_group.shutil.rmtree(folder)

    with pytest.raises(SlotLost, match="did not come"):
        gang_group.join("0123456789abcdef", 0, 2, "cpu", 60.0, remove)


def test_a_token_is_never_taken_for_a_path() -> None:
    with pytest.raises(InvalidArgument, match="hexadecimal"):
        gang_group.join("../../etc", 0, 2, "cpu", 60.0, no_pause)


if __name__ == "__main__":
    be_a_rank(*sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], *json.loads(sys.argv[6]))
