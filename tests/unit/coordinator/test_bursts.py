"""Very many runs at once: they are read together, and messages are handled in turns of bounded length."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.coordinator import loop
from easeml_db.coordinator.belief_records import BeliefRecords
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.ports.messages import SlotReady
from easeml_db.decisions.bandits.prior import independent_prior
from easeml_db.decisions.tenancy.arm_rules import ARM_RULES
from easeml_db.decisions.tenancy.policies import make_policy
from easeml_db.decisions.tenancy.pool import Pool
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import Selector
from easeml_db.errors import InvalidArgument, InvalidData
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.topology import Slot


def world_of(n_runs: int) -> SimulatedWorld:
    runs = [new_run(i, n_trials=1, n_partitions=1, max_epochs=1) for i in range(1, n_runs + 1)]
    return SimulatedWorld([Slot(1, "one", 1)], runs, seconds_of=lambda unit, slot_id: 1.0)


def test_a_coordinator_that_begins_reads_open_runs_a_hundred_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    process = SimulatedProcess(world_of(250))
    read: list[int] = []

    async def read_ahead(run_ids: list[int]) -> None:
        read.append(len(run_ids))

    monkeypatch.setattr(process.ports.runs, "read_ahead", read_ahead)
    asyncio.run(Coordinator(process.ports).serve(until_idle=True))
    assert read == [100, 100, 50]


def test_of_very_many_new_runs_a_hundred_are_read_before_arms_are_opened_again() -> None:
    async def read_some() -> list[int]:
        process = SimulatedProcess(world_of(250))
        coordinator = Coordinator(process.ports)
        parts = coordinator._parts
        await parts.lease.acquire()
        for run_id in range(1, 251):
            parts.reading.report(run_id)
        n_read = []
        while coordinator._until_next() == 0.0 and parts.reading:
            async for _ in parts.reading.read_some():
                pass  # nothing else happens
            n_read.append(len(parts.dispatcher.runs))
        assert sorted(process.world.tables.beliefs) == list(range(1, 251))
        return n_read

    assert asyncio.run(read_some()) == [100, 200, 250]


class OneRefused:
    """A store that takes no number of run 2."""

    def __init__(self) -> None:
        self.priors: dict[int, object] = {}
        self.beliefs: dict[int, object] = {}

    async def keep_priors(self, priors: dict[int, object]) -> None:
        if 2 in priors:
            raise InvalidData("run 2 makes no sense")
        self.priors |= priors

    async def keep_beliefs(self, beliefs: dict[int, object]) -> None:
        self.beliefs |= beliefs


def test_numbers_that_the_tables_refuse_keep_those_of_other_runs_from_nothing() -> None:
    pool, store = Pool(), OneRefused()
    records = BeliefRecords(store, Lease(None), pool)  # type: ignore[arg-type]
    for run_id in (1, 2, 3):
        run, prior = new_run(run_id, n_trials=1, n_partitions=1, max_epochs=1), independent_prior(1)
        pool.put_run(run, prior)
        records.began(run_id, prior, [1])
        records.changed(run_id)
    refused = asyncio.run(records.keep())
    assert ({run_id: str(error) for run_id, error in refused.items()}, sorted(store.priors), sorted(store.beliefs)) == (
        {2: "run 2 makes no sense"},
        [1, 3],
        [1, 3],
    )
    assert asyncio.run(records.keep()) == {}


def test_more_messages_than_a_turn_takes_wait_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MESSAGES_A_TURN", 3)
    process = SimulatedProcess(world_of(1))
    coordinator = Coordinator(process.ports)
    process.inbox.extend([SlotReady(1)] * 8)
    left = []
    for _ in range(4):
        asyncio.run(coordinator._handle_messages(0.0))
        left.append(len(process.inbox))
    assert left == [5, 2, 0, 0]


def selector_of(n_runs: int) -> Selector[int]:
    selector: Selector[int] = Selector(make_policy("hybrid"), ARM_RULES["ucb"])
    for run in range(n_runs):
        selector.join(run, RunBandit(independent_prior(2), np.ones(2)))
    return selector


@given(
    n_runs=st.integers(1, 6), weight=st.floats(0.01, 10), deadline=st.sampled_from([math.inf, 5.0]),
    former=st.sampled_from([math.inf, 3.0]), data=st.data(),
)  # fmt: skip
def test_runs_of_a_tenant_share_its_terms_as_if_each_were_told(n_runs, weight, deadline, former, data) -> None:
    keys = data.draw(st.sets(st.integers(0, n_runs - 1), min_size=1))
    told, shared = selector_of(n_runs), selector_of(n_runs)
    for selector in (told, shared):
        selector.set_terms(0, weight=1.0, deadline_seconds=former)
    for key in keys:
        told.set_terms(key, weight=weight, deadline_seconds=deadline)
    shared.share_terms(keys, weight=weight, deadline_seconds=deadline)
    assert shared.standings.weight.tolist() == told.standings.weight.tolist()
    assert dict(shared.deadlines()) == dict(told.deadlines())


def test_a_weight_of_nothing_is_refused_for_several_runs_too() -> None:
    with pytest.raises(InvalidArgument):
        selector_of(2).share_terms([0, 1], weight=0.0)
