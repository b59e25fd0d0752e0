"""Which members of a batch train as one computation: of one shape, within memory, and where it is faster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from easeml_plpy.catalogue.config_memory import needed_bytes
from easeml_plpy.row_forms.datasets import PartitionRows
from easeml_plpy.server.errors import EasemlError
from easeml_plpy.trainers.networks import stack_gain
from easeml_plpy.trainers.networks.stack import Pass
from easeml_plpy.trainers.networks.stack_gain import LEAST_STEPS, StackGains, measured_gain
from easeml_plpy.units import batch_training
from easeml_plpy.units.batch import _told_of_member, orders_of
from easeml_plpy.units.batch_training import Learner, train_members
from easeml_plpy.units.units import TrialSpec, Unit, UnitContext
from tests.unit.plpy.trainers.test_stack import FLAT, again, passes, start

N_ROWS = 80
UNIT = {"step": 0, "kind": "train", "epoch": 1, "position": 0, "partition_number": 0, "seed": 3, "slot_id": 1,
        "lease_number": 1, "attempt": 1}  # fmt: skip


class FakeSession:
    """A session that keeps things and has nothing to commit."""

    SPIError = ZeroDivisionError

    def __init__(self) -> None:
        self.gains = StackGains()

    def kept(self, what: object) -> StackGains:
        return self.gains

    def commit(self) -> None:
        pass

    def execute(self, sql: str) -> None:
        pass


class Blamed(dict[int, str]):
    """The errors of members, by trial."""

    @contextmanager
    def __call__(self, trial_id: int) -> Iterator[None]:
        try:
            yield
        except EasemlError as error:
            self[trial_id] = str(error)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session whose partitions are those of `passes`, where stacks always pay."""

    def rows(session: object, dataset_id: int, split: str, number: int, view: str) -> PartitionRows:
        (own,) = passes(FLAT, [N_ROWS], number)
        return PartitionRows(own.inputs, own.targets, own.targets.numpy())

    monkeypatch.setattr(batch_training.datasets, "partition_rows", rows)
    monkeypatch.setattr(StackGains, "pays", lambda self, trials, passes: True)
    return FakeSession()


def learner(trial_id: int, **config: Any) -> Learner:
    fields = UNIT | {"trial_id": trial_id, "seed": trial_id}
    spec = TrialSpec("mlp", {}, 1, 1, (N_ROWS,))
    context = UnitContext._make([None] * len(UnitContext._fields))._replace(trial=spec, device="cpu")
    return Learner(Unit(text=json.dumps(fields), **fields), context, start("mlp", FLAT, trial_id, **config), 0)  # type: ignore[arg-type]


def alone(members: list[Learner]) -> dict[int, bytes]:
    """The states that members come to one after another."""
    (own,) = passes(FLAT, [N_ROWS])
    found = {}
    for member in members:
        trial = again(member.live)  # type: ignore[arg-type]
        trial.train(own.inputs, own.targets, seed=member.order.seed, pause=lambda: None)
        found[member.order.trial_id] = trial.dump()
    return found


def test_members_of_one_shape_are_stacked_and_others_train_as_alone(session: Any) -> None:
    members = [learner(k, hidden_units=[8 if k < 4 else 9]) for k in (1, 2, 3, 4)]
    states, blamed = alone(members), Blamed()
    learnt = train_members(session, members, blamed)
    assert blamed == {}
    assert [learnt[k].stack for k in (1, 2, 3, 4)] == [(3, 0, 10), (3, 1, 10), (3, 2, 10), None]
    assert learnt[4].state == states[4]
    assert learnt[1].facts["n_rows"] == N_ROWS


def test_a_stack_is_as_wide_as_memory_allows(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [learner(k) for k in range(5)]
    blueprint = members[0].live.blueprint  # type: ignore[attr-defined]
    needed = needed_bytes(blueprint.architecture, FLAT, blueprint.config, [N_ROWS])
    monkeypatch.setattr(batch_training, "device_bytes", lambda device: int(needed * 8.5))
    learnt = train_members(session, members, Blamed())
    assert [learnt[k].stack for k in range(5)] == [(2, 0, 10), (2, 1, 10), (2, 0, 10), (2, 1, 10), None]


def test_what_cannot_be_computed_together_is_done_in_turn_and_only_the_guilty_fails(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(batch_training, "train_stacked", broken)
    members = [learner(1), learner(2, optimizer="sgd", learning_rate=1e3), learner(3)]
    (own,) = passes(FLAT, [N_ROWS])
    wild = PartitionRows(own.inputs * 1e18, own.targets, own.targets.numpy())
    calm = batch_training.datasets.partition_rows
    members[1] = members[1]._replace(order=members[1].order._replace(partition_number=7))
    monkeypatch.setattr(
        batch_training.datasets, "partition_rows", lambda *where: wild if where[3] == 7 else calm(*where)
    )
    states, blamed = alone([members[0], members[2]]), Blamed()
    learnt = train_members(session, members, blamed)
    assert {k: learnt[k].state for k in learnt} == states
    assert list(blamed) == [2]


def test_the_gain_is_measured_once_and_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [start("mlp", FLAT, seed) for seed in range(3)]
    own = passes(FLAT, [8 * LEAST_STEPS] * 3)
    before = [trial.dump() for trial in trials]
    assert measured_gain(trials, own) > 0
    assert [trial.dump() for trial in trials] == before
    calls = []

    def counted(trials: object, passes: object) -> float:
        calls.append(1)
        return 2.0

    monkeypatch.setattr(stack_gain, "measured_gain", counted)
    gains = StackGains()
    assert gains.pays(trials, own)
    assert gains.pays(trials[:2], own[:2])  # two and three are near enough
    assert len(calls) == 1
    short = [Pass(each.inputs[:8], each.targets[:8], each.seed) for each in own]
    assert not gains.pays(trials, short)
    monkeypatch.setattr(stack_gain, "measured_gain", lambda trials, passes: 1.0)
    assert not StackGains().pays(trials, own)


def test_what_a_stack_waits_for_a_processor_is_not_held_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    trials, own = [start("mlp", FLAT, seed) for seed in range(8)], passes(FLAT, [8 * LEAST_STEPS] * 8)
    train = stack_gain.Stack.train

    def late(*arguments: Any) -> Any:
        time.sleep(0.5)  # hundreds of times as long as the steps take
        return train(*arguments)

    monkeypatch.setattr(stack_gain.Stack, "train", late)
    assert measured_gain(trials, own) > 0.3


def test_an_order_of_a_batch_is_read_as_units_that_know_their_place() -> None:
    text = json.dumps({"batch": [UNIT | {"trial_id": 5, "seed": 9}, UNIT | {"trial_id": 4}]})
    first, second = orders_of(text)
    assert (first.trial_id, second.trial_id, second.seed) == (4, 5, 9)
    assert json.loads(second.text) == UNIT | {"trial_id": 5, "seed": 9, "batch": {"rank": 1, "n_members": 2}}


def test_small_networks_weigh_less_than_a_trial_among_those_that_a_session_keeps() -> None:
    from easeml_plpy.units.live_trials import LEAST_WEIGHT, LIVE, N_LIVE_TRIALS, _KeptTrial

    small = _KeptTrial(1, "cpu", start("mlp", FLAT, 0))
    assert small.weight == LEAST_WEIGHT
    assert _KeptTrial(1, "cpu", SimpleNamespace()).weight == 1.0  # type: ignore[arg-type]
    kept = LIVE.make()
    for trial_id in range(64):
        kept.put(trial_id, small)
    assert all(kept.pop(trial_id) is not None for trial_id in range(64))
    assert LIVE.make().limit == N_LIVE_TRIALS


@pytest.mark.parametrize(
    ("sqlstate", "wanted"),
    [("ML006", "ML006"), ("55P03", "ML016"), ("57014", None), ("53100", None), ("40001", None), ("XX000", None)],
)
def test_only_errors_of_a_trial_are_blamed_on_it(sqlstate: str, wanted: str | None) -> None:
    class SPIError(Exception):
        spidata = (sum((ord(c) - ord("0") & 0x3F) << 6 * k for k, c in enumerate(sqlstate)), None, None)

    told = _told_of_member(SPIError("no"))
    assert (told and told["sqlstate"]) == wanted
    assert _told_of_member(ValueError("no")) is None
