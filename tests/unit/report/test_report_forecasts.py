"""What a report says of time and cost: forecasts and plans beside what happened, folds, colours in the dark."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import vl_convert

from easeml_db.report import page as page_module
from easeml_db.report.charts import DARK, HUES, Frame, config, forecast_chart
from easeml_db.report.datasets import as_rows, chart_data
from easeml_db.report.forecasts import forecast_sentences
from easeml_db.report.libraries import vega_lite_version
from easeml_db.report.page import page
from tests.unit.report.test_report import FOUR_UNITS, NASTY, NOON, rows_of, run, trial

LATER = NOON + datetime.timedelta(seconds=200)


def forecast(made: float, end: float, **other: Any) -> dict[str, Any]:
    """A row of query `forecasts`: within ten seconds of the end."""
    row = {
        "made_seconds": made, "eta_seconds": end, "earliest_seconds": end - 10, "latest_seconds": end + 10,
        "cost_expected": 0.25, "cost_p95": 0.3, "note": None,
    }  # fmt: skip
    return {**row, **other}


FORECASTS = [forecast(5, 100), forecast(25, 190), forecast(100, 205)]
PLAN = {
    "revision": 1, "reason": NASTY, "n_slots": [2, 1], "made_seconds": 0.0, "end_seconds": 150.0,
    "latest_seconds": 160.0, "cost_expected": 0.2, "cost_p95": 0.24, "max_cost": 0.5, "price_list": "local",
}  # fmt: skip


def html(**other: Any) -> str:
    """A page without its libraries."""
    found = page(chart_data(rows_of(FOUR_UNITS, **other), n_top=5), made_by="tests")
    return found[: found.index('<script type="application/json"')]


def test_an_ended_run_is_set_beside_what_was_forecast_after_a_tenth_of_its_time() -> None:
    rows = rows_of(FOUR_UNITS, run=run(finished_at=LATER, cost_so_far=0.26), forecasts=FORECASTS)
    (sentence,) = forecast_sentences(rows)
    assert sentence.startswith("25 s after its start the run was expected to take 3 min 10 s")
    assert "(in 90 of 100 cases 3 min 0 s to 3 min 20 s), and to cost 0.25" in sentence
    assert sentence.endswith("It took 3 min 20 s and cost 0.26, slot time at the prices of this server.")


def test_a_run_under_way_shows_its_newest_forecast() -> None:
    under_way = run(
        status="running", finished_at=None, cost_so_far=0.2, eta_at=LATER, eta_p95_at=LATER, is_at_risk=True
    )
    (sentence,) = forecast_sentences(rows_of(FOUR_UNITS, run=under_way, forecasts=FORECASTS))
    assert "100 s after" not in sentence
    assert "3 min 25 s" in sentence
    assert "So far it cost 0.20" in sentence
    shown = html(run=under_way, forecasts=FORECASTS)
    assert "It should end at " in shown
    assert "it may miss its deadline or its limit of cost" in shown


def test_a_run_without_forecasts_and_plans_has_no_such_section() -> None:
    assert "Time and cost" not in html()
    assert "Time and cost" in html(forecasts=FORECASTS[:1])
    assert 'data-chart="forecasts"' not in html(forecasts=FORECASTS[:1])
    assert 'data-chart="forecasts"' in html(forecasts=FORECASTS)


def test_plans_are_a_table_of_what_was_planned_and_why() -> None:
    shown = html(plans=[PLAN, PLAN | {"revision": 2, "reason": "ahead of the plan"}], run=run(finished_at=LATER))
    assert "2 plans at the prices of list local, at most 0.50" in shown
    assert "<td>2, 1</td><td>2 min 30 s</td><td>2 min 40 s</td><td>0.20</td><td>0.24</td>" in shown
    assert "ahead of the plan" in shown
    assert "<img" not in shown


def test_each_stage_stands_as_it_was_planned_beside_what_came_of_it() -> None:
    stage = {
        "label": NASTY, "seconds_planned": 100.0, "seconds_p95_planned": 120.0, "seconds": 130.0, "cost_planned": 0.2,
        "cost": None, "n_slots_planned": 2, "n_slots": 1, "reason": "1 slots instead of 2",
    }  # fmt: skip
    unplanned = stage | dict.fromkeys(("seconds_planned", "seconds_p95_planned", "cost_planned", "n_slots_planned"))
    shown = html(plans=[PLAN], stages=[stage, unplanned], run=run(finished_at=LATER))
    planned = "<td>1 min 40 s</td><td>2 min 0 s</td><td>2 min 10 s</td><td>0.20</td><td></td><td>2</td><td>1</td>"
    assert f"{planned}<td>1 slots instead of 2</td>" in shown
    assert "<td></td><td></td><td>2 min 10 s</td><td></td><td></td><td></td><td>1</td>" in shown
    assert "<img" not in shown


def test_vega_draws_the_forecasts() -> None:
    data = chart_data(rows_of(FOUR_UNITS, run=run(finished_at=LATER), forecasts=FORECASTS), n_top=5)
    drawn = forecast_chart(Frame(400, False)).to_dict(validate=False) | {"config": config()}
    drawn["datasets"] = {name: as_rows(data.datasets[name]) for name in ("forecasts", "forecast_end")}
    svg = vl_convert.vegalite_to_svg(drawn, vl_version=vega_lite_version())
    assert svg.count("<path") > 4
    assert "forecast, s after the start" in svg


def test_a_trial_that_was_stopped_is_no_failed_one() -> None:
    trials = [
        trial(1, status="stopped", failure_reason="the run ended before this trial"),
        trial(2, status="failed", failure_reason="it diverged"),
    ]
    shown = html(trials=trials)
    assert "the run ended before this trial" not in shown
    assert shown.count("it diverged") == 2  # in the leaderboard and among the failed


def test_folds_are_named_instead_of_no_rows_to_validate() -> None:
    assert "142 to train and validate in 5 folds, 36 to test" in html(
        run=run(n_folds=5, n_train_rows=142, n_validation_rows=0, n_test_rows=36)
    )
    assert "1,000 to train, 100 to validate, 100 to test" in html()


def test_every_colour_of_the_style_has_one_for_the_dark_and_dark_hues_become_lighter() -> None:
    style = (Path(page_module.__file__).parent / "static" / "style.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"(--[a-z0-9-]+): (#\w+)", block)) for block in style.split("@media", 2)[:2])
    assert light.keys() == dark.keys()
    assert not re.findall(r"#[0-9a-fA-F]{3,6}\b", style.split("}\n}", 1)[1])  # all others are variables
    assert {hue for hue in HUES if _lightness(hue) < 0.35} <= DARK.keys()
    for place, hue in enumerate(HUES):
        assert (light[f"--hue-{place}"], dark[f"--hue-{place}"]) == (hue, DARK.get(hue, hue))


def _lightness(colour: str) -> float:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return 0.3 * red + 0.59 * green + 0.11 * blue
