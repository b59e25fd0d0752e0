"""Procedures inside the coordinator's loop: what they decide is done as soon as nobody holds the trials."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from easeml_db.coordinator.loop import Coordinator
from easeml_db.errors import NotFound
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.run import Run, Search
from easeml_db.words.topology import Slot

SPECIFICATIONS = '[{"architecture": "mlp", "hyperparameters": [{"name": "x", "kind": "float", "default": 0.1}]}]'
SPACE = '{"x": {"low": 0.0, "high": 1.0}}'


def halving() -> Run:
    """Two trials for an epoch, the better one for two: nothing is certain before both have done the first."""
    run = new_run(1, n_trials=2, n_partitions=1, max_epochs=2)
    options = '{"eta": 2}'
    search = Search(SPECIFICATIONS, SPACE, "successive_halving", n_configs=2, max_epochs=2, options_json=options)
    return replace(run, search=search, trials=tuple(replace(trial, target_epochs=1) for trial in run.trials))


def makespan(monkeypatch: pytest.MonkeyPatch, n_refusals: int) -> float:
    """Seconds of the run when somebody holds its trials at the first so many decisions."""
    world = SimulatedWorld([Slot(1, "slot-1", 1)], [halving()], seconds_of=lambda unit, slot_id: 1.0)
    apply, refused = world.tables.searches.apply_decisions, []

    def apply_later(run: Run, arm_id: int, decisions: Sequence[Mapping[str, Any]], lease_number: int) -> None:
        if len(refused) < n_refusals:
            refused.append(decisions)
            raise NotFound("somebody is at the trials")
        apply(run, arm_id, decisions, lease_number)

    monkeypatch.setattr(world.tables.searches, "apply_decisions", apply_later)
    process = SimulatedProcess(world)
    asyncio.run(Coordinator(process.ports).serve(until_idle=True))
    assert len(refused) == n_refusals
    assert len(world.units) == 2 * 2 + 2 + 1
    return max(unit.finished_seconds for unit in world.units)


def test_a_decision_that_met_somebody_for_a_moment_is_made_within_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = makespan(monkeypatch, 0)
    assert makespan(monkeypatch, 3) - undisturbed == pytest.approx(0.02 + 0.04 + 0.08)


def test_whoever_holds_trials_for_long_is_asked_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = makespan(monkeypatch, 0)
    growing = sum(0.02 * 2**k for k in range(6))
    assert makespan(monkeypatch, 10) - undisturbed == pytest.approx(growing + 4 * 1.0)
