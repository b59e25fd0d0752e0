"""The forecast of a run under way, from JSON to JSON. SQL has read the input with the rights of the role that asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from easeml_db.decisions.hopper.allocation.registry import needs_gangs
from easeml_db.decisions.planner.envelope import Past
from easeml_db.decisions.planner.forecast import Forecast, SlotsHeld, forecast, until_limit
from easeml_db.decisions.planner.job import Stage, architectures_of
from easeml_db.decisions.planner.knowledge import Knowledge
from easeml_db.decisions.planner.remaining import ArmState, TrialState, remaining_stages
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.decisions.search_space.specs import RESERVED
from easeml_db.errors import NotReady
from easeml_db.words.run import Search

Row = Mapping[str, Any]


def make_forecast(state_json: str) -> str:
    """Return a JSON object {"seconds", "seconds_least", "seconds_most", "cost", "cost_most", "note"}: seconds from now
    and further cost until a run is done.

    The state is an object: `search` of a run whose procedure decides on the way (null: all trials are there),
    `run_id`, `arms` [{"name", "trials": [...]}], `knowledge` (see knowledge.py), `dataset`, `seed`, `device_kind`,
    `n_slots`, `price_per_hour` of one, `seconds_to_limit`, and its `allocation`.
    Raises NotReady, InvalidArgument.
    """
    state = json.loads(state_json)
    try:
        expected, notes = _forecast(state)
    except NotReady as error:
        if state["seconds_to_limit"] is None:
            raise
        expected = until_limit(_held(state), state["seconds_to_limit"])
        notes = [f"{error.message}: it has its time limit"]
    return json.dumps({**vars(expected), "note": "; ".join(notes) or None})


def _forecast(state: Row) -> tuple[Forecast, list[str]]:
    stages, knowledge = rest_of(state)
    held = _held(state)
    profiles = knowledge.profiles(architectures_of(stages), [held.device_kind], is_local=False, has_guesses=True)
    expected = forecast(stages, profiles, held, seconds_to_limit=state["seconds_to_limit"], seed=state["seed"])
    return expected, knowledge.notes


def _held(state: Row) -> SlotsHeld:
    return SlotsHeld(state["device_kind"], state["n_slots"], state["price_per_hour"])


def rest_of(state: Row, *, is_on_own_slots: bool = True) -> tuple[tuple[Stage, ...], Knowledge]:
    """Return the remaining stages of a run, and the knowledge of its times. Raises NotReady, InvalidArgument."""
    knowledge = Knowledge(
        state["knowledge"], state["dataset"], is_parallel=needs_gangs(state.get("allocation", "")),
        is_on_own_slots=is_on_own_slots, run_id=state.get("run_id"),
    )  # fmt: skip
    past = Past(knowledge.curves, knowledge.epoch_seconds)
    search = None if state["search"] is None else Search(**state["search"])
    return remaining_stages(search, [_arm(arm, past) for arm in state["arms"]], past, seed=state["seed"]), knowledge


def _arm(arm: Row, past: Past) -> ArmState:
    return ArmState(
        arm["name"],
        [_trial(arm["name"], row) for row in arm["trials"]],
        [_history(row, past) for row in arm["trials"] if row["scores"] is not None or row["is_open"]],
    )


def _trial(arm: str, row: Row) -> TrialState:
    return TrialState(row["architecture"], arm, row["bracket"], row["n_epochs"], row["target_epochs"], row["is_open"])


def _history(row: Row, past: Past) -> TrialHistory:
    scores: Sequence[float] = row["scores"] or ()
    epoch = past.epoch_seconds.get(row["architecture"], 1.0)
    moments = tuple(epoch * (k + 1) for k in range(len(scores)))
    config = {RESERVED: row["architecture"], **(row["config"] or {})}
    status = "running" if row["is_open"] else "stopped"
    return TrialHistory(
        row["trial_number"], config, status, tuple(scores), row["target_epochs"], moments=moments,
        seconds=epoch * len(scores),
    )  # fmt: skip
