"""Experiments that only simulate: schedulers, tenants, water-filling."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.acceptance.experiments.conftest import OutcomeOf


def test_schedulers_are_compared_with_random_and_with_the_bound(outcome_of: OutcomeOf) -> None:
    outcome = outcome_of("schedulers")
    measures = outcome.measures
    (mean,) = [each for each in measures if each["setting"] == "mean over all settings"]
    assert mean["holds"]
    rows = outcome.table("makespans")
    assert {row["scheduler"] for row in rows} > {"random", "longest_remaining", "rotation", "milp", "auto"}
    assert all(float(row["relative_to_bound"]) >= 1 - 1e-9 for row in rows)
    outcome.check_files({"makespans"})


def test_tenants_are_replayed_and_compared_without_any_data(outcome_of: OutcomeOf) -> None:
    outcome = outcome_of("tenants")
    measures = outcome.measures
    names = {each["name"] for each in measures}
    assert {"MOSTCITED / ours, time from loss 0.1 to 0.02", "ours / oracle_hull, cost to loss 0.02"} < names
    assert {"hybrid: log-log slope of regret", "one decision and posterior update, milliseconds"} < names
    rows = outcome.table("V9_costs")
    assert {row["line"] for row in rows} == {
        "ours", "hybrid", "spearmint", "hybrid_best_prior", "spearmint_best_prior", "oracle_hull",
    }  # fmt: skip
    assert all(float(row["mean_low"]) <= float(row["mean_high"]) for row in rows if row["mean_low"])
    assert {row["line"] for row in outcome.table("history_costs")} == {
        "default", "ours", "hybrid_best_prior", "default_in_turns",
    }  # fmt: skip
    assert "default: the same, the tenant farthest behind" in names
    assert len(outcome.table("decision")) == 3
    outcome.check_files({"V9", "15", "devices", "history", "regret"})


def test_water_filling_is_compared_with_one_trial_on_each_device(outcome_of: OutcomeOf) -> None:
    outcome = outcome_of("fluid")
    measures = outcome.measures
    held = {each["setting"]: each["holds"] for each in measures if each["holds"] is not None}
    assert {f"synchronous BOHB, {n} GPUs" for n in (4, 8, 16)} < set(held)
    assert all(held[f"{name}, least of all sizes and seeds"] for name in ("synchronous BOHB", "BOHB", "ASHA"))
    assert all(each["holds"] for each in measures if each["name"].startswith("StaticFluid / (2 OPT"))
    points = outcome.table("figures")
    assert {row["figure"] for row in points} == {"7", "11a", "11b", "12", "13a", "13b"}
    assert all(0 < float(row["utilisation_with"]) <= 1 + 1e-9 for row in points)
    assert all(float(row["ratio"]) >= 1 - 1e-9 for row in outcome.table("bound"))
    outcome.check_files({"ratios", "utilisation", "bound"})
