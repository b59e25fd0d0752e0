"""Runs as tenants of one pool: a pool made from what was written down decides as the one before would have."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.history import MAX_RUNS, History
from easeml_db.decisions.tenancy.policies import POLICIES
from easeml_db.decisions.tenancy.pool import Pool
from easeml_db.words.run import Arm, Run
from easeml_db.words.tenant import PastArm, Tenancy

N_ARMS = 4


class Tables:
    """What the database would hold of runs, with a pool over it; every arm costs a second."""

    def __init__(self, policy: str, past: Sequence[PastArm] = ()) -> None:
        self.tenancy = Tenancy(policy=policy, prior="auto" if past else "independent", seed=3)
        self.past = past
        self.priors: dict[int, Prior] = {}
        self.runs: dict[int, Run] = {}
        self.memory: dict = {}
        self.served: list[tuple[int, int]] = []
        self.n_events = 0
        self.pool = Pool(self.tenancy, History(past))

    def put(self, run_id: int, tenant: str | None = None) -> None:
        arms = tuple(Arm(run_id * 10 + k, f"arm{k}") for k in range(N_ARMS))
        self.runs[run_id] = Run(run_id, 0, "running", None, None, (), {}, tenant=tenant or f"role{run_id}", arms=arms)
        self.renew(run_id)

    def renew(self, run_id: int) -> None:
        run = self.runs[run_id]
        self.pool.put_run(run, self.priors.setdefault(run_id, self.pool.prior_of(run)))

    def end(self, run_id: int) -> None:
        del self.runs[run_id]
        self.pool.drop_run(run_id)

    def restart(self) -> None:
        self.pool = Pool(self.tenancy, History(self.past))
        for run_id in sorted(self.runs):
            self.renew(run_id)
        self.pool.remember(self.memory)

    def step(self) -> bool:
        opening = self.pool.choose(0.0, n_slots=1)
        if opening is None:
            return False
        row = json.loads(json.dumps(opening.row()))
        self.memory = row["memory"]
        run_id, place = opening.run_id, opening.arm_id % 10
        self.served.append((run_id, place))
        quality = float(np.random.default_rng((run_id, place)).uniform(0.2, 0.9))
        arm = replace(self.runs[run_id].arms[place], opening=self._event(), bound=row["bound"])
        self.pool.opened(opening, self.n_events)
        arm = replace(arm, closing=self._event(), quality=quality, cost_seconds=1.0)
        self.runs[run_id] = replace(
            self.runs[run_id], arms=tuple(arm if k == place else old for k, old in enumerate(self.runs[run_id].arms))
        )
        self.pool.arm_closed(self.runs[run_id], arm)
        return True

    def _event(self) -> int:
        self.n_events += 1
        return self.n_events


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("n_before", [1, 5, 8])
def test_a_pool_goes_on_after_a_restart_while_runs_end_and_arrive(policy: str, n_before: int) -> None:
    served = []
    for is_disturbed in (True, False):
        tables = Tables(policy)
        for run_id in (1, 2, 3, 4):
            tables.put(run_id)
        for _ in range(n_before):
            tables.step()
        tables.end(2)
        tables.put(5)
        if is_disturbed:
            tables.restart()
        while tables.step():
            pass
        served.append(tables.served)
    assert served[0] == served[1]
    assert len(set(served[0])) == len(served[0])
    assert {(5, k) for k in range(N_ARMS)} <= set(served[0])


@pytest.mark.parametrize("n_before", [4, 6, 9, 12])
def test_what_runs_have_shown_one_another_of_a_history_is_found_again_after_a_restart(n_before: int) -> None:
    past = [
        PastArm(run, "classification", f"arm{k}", 0.9 - 0.2 * k + 0.01 * run, 1.0, 1.0)
        for run in range(-6, 0) for k in range(N_ARMS)
    ]  # fmt: skip
    seen = []
    for is_disturbed in (True, False):
        tables = Tables("robust", past)
        for run_id, tenant in ((1, "ada"), (2, "ada"), (3, "bob"), (4, "eve")):
            tables.put(run_id, tenant)
        for k in range(4 * N_ARMS):
            if k == n_before:
                tables.end(3)  # what it has shown leaves with it
                tables.put(6, "bob")
            if is_disturbed and k >= n_before:
                tables.restart()
            if (opening := tables.pool.choose(0.0, n_slots=1)) is not None:
                seen.append((is_disturbed, opening.run_id, opening.arm_id, opening.decision.history_weight,
                             opening.decision.score))  # fmt: skip
            tables.step()
    disturbed, undisturbed = ([row[1:] for row in seen if row[0] == kind] for kind in (True, False))
    assert disturbed == undisturbed
    assert len({weight for _, _, weight, _ in undisturbed}) > 4


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_that_is_renewed_keeps_its_place_among_the_others(policy: str) -> None:
    served = []
    for is_renewed in (True, False):
        tables = Tables(policy)
        for run_id in (1, 2, 3):
            tables.put(run_id)
        for _ in range(4):
            tables.step()
        if is_renewed:
            arms = tables.runs[1].arms
            closed = next(arm for arm in arms if arm.is_closed)
            changed = tuple(replace(arm, work=2.0) if arm is closed else arm for arm in arms)  # of no more consequence
            tables.runs[1] = replace(tables.runs[1], arms=changed)
            tables.renew(1)
        while tables.step():
            pass
        served.append(tables.served)
    assert served[0] == served[1]


@pytest.mark.parametrize("prior", ["auto", "empirical", "rbf"])
def test_a_past_run_whose_every_arm_failed_does_not_stop_new_runs(prior: str) -> None:
    past = [PastArm(run, "classification", f"arm{k}", 0.0, 1.0, 1.0) for run in (1, 2) for k in range(N_ARMS)]
    tables = Tables("hybrid")
    tables.tenancy = replace(tables.tenancy, prior=prior)
    tables.pool = Pool(tables.tenancy, History(past))
    tables.put(7)
    assert tables.pool.prior_of(tables.runs[7]).name == "independent"
    assert tables.step()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_choice_changes_nothing_before_it_is_carried_out(policy: str) -> None:
    tables = Tables(policy)
    for run_id in (1, 2, 3):
        tables.put(run_id)
    for _ in range(5):
        tables.step()
    before = pickle.dumps(tables.pool)
    chosen = tables.pool.choose(0.0, n_slots=4, blocked={1})
    assert pickle.dumps(tables.pool) == before
    again = tables.pool.choose(0.0, n_slots=4, blocked={1})
    assert chosen is not None
    assert again is not None
    assert again.row() == chosen.row()


def test_a_history_of_very_many_runs_keeps_the_newest_and_what_all_of_them_cost() -> None:
    def past(run_ids: range) -> list[PastArm]:
        return [PastArm(run, "t", name, run / 9999, 2.0, 1.0) for run in run_ids for name in ("a", "b")]

    history, newest = History(past(range(3000))), History(past(range(2500, 3000)))
    found = history.qualities("t", ("a", "b"), without=0)
    assert np.array_equal(found, newest.qualities("t", ("a", "b"), without=0))
    assert len(found) == MAX_RUNS
    assert history.seconds_per_work("a") == 2.0
    assert len(pickle.dumps(history)) < 1.2 * len(pickle.dumps(newest))
