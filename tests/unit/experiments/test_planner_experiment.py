"""The planner's experiment: what its tables and figures must show whatever the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from easeml_db.errors import InvalidArgument
from easeml_experiments.contract import Options
from easeml_experiments.planner import figures, plots, real, tables
from easeml_experiments.planner.experiment import MAKERS, REAL, _measures, run
from easeml_experiments.planner.kept_rows import rows_of
from easeml_experiments.planner.random_cases import Case, brute_force, cases, deadline_of
from easeml_experiments.planner.workloads import LEAST_SECONDS, truncated


@pytest.fixture(scope="module")
def found() -> dict[str, list[dict[str, object]]]:
    options = Options(is_quick=True)
    return {name: make(options) for name, make in MAKERS.items() if name != REAL}


def test_the_targets_hold_where_the_scaling_is_that_of_the_sheet(found: dict[str, list[dict[str, object]]]) -> None:
    wrong = {(one.name, one.setting) for one in _measures(found) if one.holds is False and "seconds" not in one.name}
    # On log-log scaling no plan whatever could reach it: a static cluster costs hardly more than the work alone.
    assert wrong == {("cost, best static / planned, at best over deadlines", "figure 12, start 1 s, log-log")}
    (row,) = [row for row in found["figure 12"] if (row["curve"], row["start_seconds"]) == ("log-log", 1.0)]
    assert float(str(row["static"])) / figures.least_cost_of_figure_12() < 1.3


def test_some_parts_alone_are_made_and_unknown_ones_refused() -> None:
    result = run(Options(is_quick=True, values={"only": "table 3, table 2"}))
    assert list(result.tables) == ["table 3", "table 2"]
    assert list(result.plots) == ["table 2"]
    assert {one.setting.split(",")[0] for one in result.measures} == {"table 2"}
    with pytest.raises(InvalidArgument, match=r"--only: expected some of table 1, .*, got 'table 7'"):
        run(Options(values={"only": "table 7"}))


def test_random_jobs_that_were_stopped_go_on_where_they_stood(tmp_path: Path) -> None:
    path, made = tmp_path / "rows", []

    def rows(n_cases: int, seed: int = 3) -> list[dict[str, object]]:
        def make(case: Case) -> dict[str, object]:
            made.append(case.number)
            return {"case": case.number, "ratio": case.slack}

        return list(rows_of(str(path), seed, cases(seed, n_cases), make, n_cases))

    first = rows(2)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"seed": 3, "ca')  # killed in the middle of a row
    assert rows(4)[:2] == first
    assert made == [0, 1, 2, 3]
    assert [row["case"] for row in rows(4)] == [0, 1, 2, 3]
    assert len(rows(1)) == 1
    assert made == [0, 1, 2, 3]
    with pytest.raises(InvalidArgument, match="--rows: expected a file of random jobs of seed 4"):
        rows(4, seed=4)


def test_every_figure_has_a_chart(found: dict[str, list[dict[str, object]]]) -> None:
    drawn = plots.charts(found)
    assert set(drawn) == {"figure 9", "figure 10", "figure 11", "figure 12", "table 2"}
    assert all(chart.to_dict()["data"] for chart in drawn.values())


def test_real_jobs_are_compared_with_their_plan_and_with_the_forecast_after_a_tenth() -> None:
    plan = {"made": 1000.0, "expected": 1060.0, "latest": 1090.0, "n_slots": [2, 1]}
    forecasts = [
        {"made": made, "seconds_left": left, "latest": made + left + 10} for made, left in ((1002, 58), (1010, 85))
    ]
    row = real.job_row("one", plan, 1100.0, forecasts)
    assert (row["actual_seconds"], row["start_seconds"], row["start_error"]) == (100, 60, pytest.approx(0.4))
    assert row["start_in_time"] is False
    assert (row["tenth_seconds"], row["tenth_latest"], row["tenth_in_time"]) == (95, 105, True)
    short = real.job_row("two", plan, 1060.0, [])
    assert (short["start_error"], short["start_in_time"], short["tenth_seconds"]) == (0, True, None)
    found = {one.setting: one.value for one in real.measures([row, short]) if "median" in one.name}
    assert found == {
        "2 of 2 jobs on 2 slots, as planned when asked for": pytest.approx(0.2),
        "1 of 2 jobs on 2 slots, after a tenth of the time": pytest.approx(0.05),
    }
    late = [real.deadline_row(name, plan, 1000.0 + seconds, 100.0) for name, seconds in (("one", 99), ("two", 101))]
    (kept,) = (one for one in real.measures([row, short, *late]) if one.name == "deadlines kept")
    assert (kept.value, kept.holds) == (1, False)


def test_table_3_lists_the_papers_stages() -> None:
    rows = tables.table_3(0)
    assert [(row["n_trials"], row["epochs"]) for row in rows] == [(32, 1), (10, 3), (3, 9), (1, 37)]
    assert [row["paper_n_slots"] for row in rows] == [32, 20, 12, 8]


def test_truncated_iterations_take_longer_than_the_mean_that_is_asked_for() -> None:
    mean, spread = truncated(4.0, 10.0)
    assert mean > 4.0
    assert spread < 10.0 / 4.0
    assert truncated(4.0, 0.01)[0] == pytest.approx(4.0)
    assert truncated(-2.0, 1.0)[0] > LEAST_SECONDS


def test_brute_force_finds_nothing_cheaper_in_time_than_what_it_returns() -> None:
    case = next(case for case in cases(0, 20, is_small=True) if case.simulator.n_stages == 2)
    best = brute_force(case.simulator, deadline_of(case)).prediction
    assert best.mean_seconds <= deadline_of(case)
