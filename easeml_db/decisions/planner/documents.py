"""The functions from JSON to JSON that SQL calls. A tenant may have written any of the input, so all is checked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from easeml_db.decisions.planner.declared import declared_stages, declares_stages
from easeml_db.decisions.planner.envelope import Past, envelopes
from easeml_db.decisions.planner.job import Cut, Job, TrialProfile, architectures_of
from easeml_db.decisions.planner.knowledge import Knowledge
from easeml_db.decisions.planner.planning import Alternative, Goal, make_plans, plan_frontier
from easeml_db.decisions.planner.prices import MAX_TYPES, InstanceType, PriceList, instance_type
from easeml_db.decisions.planner.simulation import Simulator
from easeml_db.decisions.search_space.refusal import refusal, shown, unknown_name
from easeml_db.errors import InvalidArgument
from easeml_db.words.run import Search

Row = dict[str, Any]
NUMBERS: Mapping[str, float | None] = {
    "n_slots": 1, "price_per_hour": None, "minimum_seconds": 0.0, "price_per_gb": 0.0, "queue_seconds": 0.0,
    "queue_sd_seconds": 0.0, "start_seconds": 0.0, "start_sd_seconds": 0.0, "speed": 1.0,
}  # fmt: skip
TEXTS: Mapping[str, str | None] = {
    "instance_type": None, "device_kind": "cuda", "billed_by": "second", "billed_per": "instance",
}  # fmt: skip
WHOLE = ("n_slots", "max_instances")
MAX_NAME = 200
MAX_POINTS = 100
LEAST_EPOCHS = 1.5  # of its shortest trial: no run is so short that it has no model
MOST_SAMPLES, FEWEST_SAMPLES, MAX_SAMPLED_TRIALS = 100, 20, 200_000


def read_price_list(price_list: str, types_json: str | None) -> str:
    """Return the instance types of a price list, completed, as a JSON array of rows of easeml.instance_types.

    Raises InvalidArgument with the path at which something is wrong.
    """
    if not price_list or len(price_list) > MAX_NAME or not price_list.isprintable():
        expected = f"a name of 1 to {MAX_NAME} printable characters"
        raise refusal("price_list", expected=expected, got=shown(price_list))
    raw = None if types_json is None else json.loads(types_json)
    if not isinstance(raw, list) or not 1 <= len(raw) <= MAX_TYPES:
        raise refusal("types", expected=f"an array of 1 to {MAX_TYPES} instance types", got=shown(raw))
    rows = [_type_row(item, f"types[{place}]") for place, item in enumerate(raw)]
    PriceList(price_list, tuple(map(instance_type, rows)))
    return json.dumps(rows)


def _type_row(raw: object, path: str) -> Row:
    if not isinstance(raw, dict):
        raise refusal(path, expected="an object", got=shown(raw))
    columns = (*TEXTS, *NUMBERS, "max_instances")
    for name in raw:
        if name not in columns:
            raise unknown_name(f"{path}.{name}", name, columns, expected=f"one of {', '.join(columns)}")
    row: Row = {name: _text(raw.get(name), default, f"{path}.{name}") for name, default in TEXTS.items()}
    row |= {name: _number(raw.get(name), default, f"{path}.{name}") for name, default in NUMBERS.items()}
    row["max_instances"] = None
    if raw.get("max_instances") is not None:
        row["max_instances"] = _number(raw["max_instances"], None, f"{path}.max_instances")
    return row


def _text(value: object, default: str | None, path: str) -> str:
    value = default if value is None else value
    if not isinstance(value, str) or not value or len(value) > MAX_NAME or not value.isprintable():
        raise refusal(path, expected=f"a text of 1 to {MAX_NAME} printable characters", got=shown(value))
    return value


def _number(value: object, default: float | None, path: str) -> float:
    value = default if value is None else value
    is_whole = path.endswith(WHOLE)
    if isinstance(value, bool) or not isinstance(value, int | float) or (is_whole and value != int(value)):
        raise refusal(path, expected="a whole number" if is_whole else "a number", got=shown(value))
    if not 0 <= value < 1e300:
        raise refusal(path, expected="a number of at least 0", got=shown(value))
    return int(value) if is_whole else float(value)


def make_plan(
    architectures_json: str,
    search_space_json: str | None,
    procedure: str,
    n_configs: int | None,
    max_epochs: int,
    seed: int,
    options_json: str | None,
    request_json: str,
) -> str:
    """Return the stages of the plan and of its alternatives, or the points of the frontier, as a JSON array of rows.

    The request is an object: `types`, rows of easeml.instance_types; `knowledge`, see `knowledge.py`; `goal`, an object
    {"deadline_seconds", "max_cost", "confidence", "max_seconds"} or {"n_points"}; names of price list and dataset.
    Raises InvalidArgument, NotReady.
    """
    request = json.loads(request_json)
    search = Search(architectures_json, search_space_json, procedure, n_configs, max_epochs, seed, options_json)
    prices = _prices(request)
    knowledge = Knowledge(request["knowledge"], request["dataset"], is_on_own_slots=request["is_local"])
    if declares_stages(procedure):
        stages = declared_stages(search)
    else:
        stages = envelopes(search, Past(knowledge.curves, knowledge.epoch_seconds), seed=seed)
    kinds = [instance.device_kind for instance in prices.types]
    profiles = knowledge.profiles(architectures_of(stages), kinds, is_local=request["is_local"])
    facts = request["knowledge"]
    reading = max(profile.reading_seconds for profile in profiles.values())
    margin = (facts.get("margin_seconds") or 0.0) + reading
    goal = request["goal"]
    job = Job(stages, profiles, data_gb=facts["data_gb"], margin_seconds=margin, cut=_cut(goal, profiles.values()))
    simulator = Simulator(job, prices, n_samples=_n_samples(job), seed=seed)
    if goal.get("n_points") is not None:
        return json.dumps([_point(simulator, plan) for plan in plan_frontier(simulator, _n_points(goal["n_points"]))])
    limits = Goal(goal["deadline_seconds"], goal["max_cost"], goal["confidence"])
    notes = "; ".join(knowledge.notes)
    rows: list[Row] = []
    for alternative in make_plans(simulator, limits):
        rows += plan_rows(simulator, alternative, notes)
        rows[-1]["chance"] = limits.chance(alternative.prediction)
    return json.dumps(rows)


def _cut(goal: Mapping[str, Any], profiles: Iterable[TrialProfile]) -> Cut | None:
    """Return when max_seconds cuts a run short: at the deadline if that is earlier, but after an epoch and a test."""
    limit = goal.get("max_seconds")
    if limit is None:
        return None
    deadline = goal.get("deadline_seconds")
    # A hair earlier: sums of floats are not exact, and the deadline is to hold.
    latest = math.inf if deadline is None else deadline * (1 - 1e-9)
    return Cut(limit, latest, LEAST_EPOCHS * min(profile.seconds(1) for profile in profiles))


def _prices(request: Mapping[str, Any]) -> PriceList:
    types = [instance_type(row) for row in request["types"]]
    most = request["knowledge"]["max_slots"]
    if most is not None:
        types = [_limited(instance, most) for instance in types if instance.n_slots <= most]
        if not types:
            raise InvalidArgument(
                f"price_list: expected instances of at most {most} slots, what your limit leaves, got larger ones",
                hint="Choose another price list, or ask an administrator for more slots.",
            )
    return PriceList(request["price_list"], tuple(types))


def _limited(instance: InstanceType, most_slots: int) -> InstanceType:
    most = most_slots // instance.n_slots
    return replace(instance, max_instances=min(most, instance.max_instances or most))


def _n_samples(job: Job) -> int:
    n_trials = sum(stage.n_trials for stage in job.stages)
    return max(FEWEST_SAMPLES, min(MOST_SAMPLES, MAX_SAMPLED_TRIALS // n_trials))


def _n_points(value: object) -> int:
    if not isinstance(value, int) or not 1 <= value <= MAX_POINTS:
        raise refusal("n_points", expected=f"a whole number from 1 to {MAX_POINTS}", got=shown(value))
    return value


def plan_rows(simulator: Simulator, alternative: Alternative, notes: str) -> list[Row]:
    """Return a row for each stage, then one for all, whose stage is null."""
    prediction, start = alternative.prediction, 0.0
    rows = []
    for number, (type_number, n_slots) in enumerate(alternative.plan):
        stage, instance = simulator.job.stages[number], simulator.prices.types[type_number]
        rows.append(
            {
                "plan": alternative.name, "stage": number, "label": stage.label, "n_trials": stage.n_trials,
                "n_epochs": round(stage.n_epochs, 3), "instance_type": instance.name, "n_slots": n_slots,
                "n_instances": instance.n_instances(n_slots), "start_seconds": start, **stage.key._asdict(),
                "width": _width(simulator, number, instance, n_slots),
                **_statistics(prediction.stage_seconds[number], prediction.stage_cost[number]), "note": None,
            }
        )  # fmt: skip
        start += float(prediction.stage_seconds[number].mean())
    if prediction.done < 1:
        cut = f"it is cut short with {100 * prediction.done:.0f} % of the search done"
        notes = "; ".join(filter(None, (notes, cut)))
    total = dict.fromkeys(rows[0]) | {"plan": alternative.name, "start_seconds": 0.0, "note": notes or None}
    total["n_slots"] = max(n_slots for _, n_slots in alternative.plan)
    return [*rows, total | _statistics(prediction.seconds, prediction.cost)]


def _width(simulator: Simulator, number: int, instance: InstanceType, n_slots: int) -> int:
    """Return how many slots each trial of a stage has."""
    stage = simulator.job.stages[number]
    if stage.is_overlapped:  # other trials take what it leaves
        return 1
    return min(max(1, n_slots // stage.n_trials), simulator.times.max_width(number, instance))


def _point(simulator: Simulator, alternative: Alternative) -> Row:
    types = [simulator.prices.types[type_number].name for type_number, _ in alternative.plan]
    statistics = _statistics(alternative.prediction.seconds, alternative.prediction.cost)
    n_slots = [n_slots for _, n_slots in alternative.plan]
    return {"point": int(alternative.name), **statistics, "n_slots": n_slots, "instance_types": types}


def _statistics(seconds: Any, cost: Any) -> Row:
    p50, p95 = np.quantile(seconds, [0.5, 0.95])
    return {
        "seconds_mean": float(seconds.mean()), "seconds_p50": float(p50), "seconds_p95": float(p95),
        "cost_mean": float(cost.mean()), "cost_p95": float(np.quantile(cost, 0.95)),
    }  # fmt: skip
