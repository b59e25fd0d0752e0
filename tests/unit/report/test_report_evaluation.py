"""The report's section on held-out rows: what it shows of each task, how little it carries, and that all is escaped."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import vl_convert

from easeml_db.report.datasets import as_rows, chart_data
from easeml_db.report.evaluation import MOST_POINTS, held_out_columns, score_lines, thinned
from easeml_db.report.page import page
from easeml_db.report.rows import RunRows

NASTY = "</script><script>alert(1)</script>"
EVALUATED = ("confusion", "roc", "calibration", "residuals", "inputs", "hyperparameters")


def rows_of(task: str, held_out: dict[str, Any], unmeasured: str | None = None) -> RunRows:
    run = {
        "run_id": 7, "tenant": "ada", "dataset_name": "churn", "dataset_version": 1, "status": "finished",
        "procedure": "random", "metric": "accuracy", "max_epochs": 1, "seed": 0, "n_trials": 1, "n_finished": 1,
        "n_failed": 0, "n_units_done": 0, "n_units": 0, "percent_done": 100.0, "best_trial_id": 1,
        "best_metric_value": 0.9, "created_at": None, "started_at": None, "finished_at": None, "read_at": None,
        "failure_reason": None, "task": task, "source": "s", "input_columns": ["x"], "target_column": "y",
        "input_shape": [1], "n_outputs": 2, "n_partitions": 1, "n_train_rows": 1, "n_validation_rows": 1,
        "n_test_rows": 1, "n_bytes": 1, "n_folds": None, "cost_so_far": 0.0, "price_list": None,
    }  # fmt: skip
    trial = {
        "rank": 1, "trial_id": 1, "trial_number": 1, "architecture": "mlp", "status": "finished",
        "validation_metric": 0.9, "test_metric": 0.8, "best_epoch": 1, "n_epochs_done": 1, "max_epochs": 1,
        "training_seconds": 1.0, "is_deployed": False, "config": {}, "failure_reason": None,
    }  # fmt: skip
    traffic = {"n_hops": 0, "bytes_hopped": 0, "bytes_stored": 0, "n_live_states": None, "largest_state_bytes": None}
    return RunRows(run, [trial], [], [], [], [], traffic, held_out, unmeasured)


def points(name: str, n: int) -> list[dict[str, Any]]:
    return [
        {"positive_class": name, "false_positive_rate": k / n, "true_positive_rate": min(1, 2 * k / n),
         "threshold": float("inf") if k == 0 else 1 - k / n}
        for k in range(n + 1)
    ]  # fmt: skip


CLASSES = {
    "scores": [
        {"metric": "n_rows", "validation": 1500.0, "test": 1499.0, "summary": "rows of the split"},
        {"metric": "roc_auc", "validation": 0.91234, "test": None, "summary": "area"},
        {"metric": "top_3_accuracy", "validation": None, "test": None, "summary": "not defined"},
    ],
    "confusion": [
        {"actual": a, "predicted": b, "n_rows": 3, "share": 0.5 if a == b else None} for a in ("no", NASTY)
        for b in ("no", NASTY)
    ],
    "roc": points(NASTY, 5000),
    "calibration": [{"positive_class": NASTY, "mean_probability": 0.3, "positive_share": 0.25, "n_rows": 4}],
    "inputs": [{"input": NASTY, "importance": 0.25, "standard_deviation": 0.01}],
    "hyperparameters": [{"architecture": "mlp", "hyperparameter": "dropout", "importance": 0.5}],
}  # fmt: skip
NUMBERS = {
    "scores": [{"metric": "rmse", "validation": 2.5, "test": 12345.678, "summary": "root"}],
    "residuals": [{"actual": float(k), "predicted": k + 0.5} for k in range(3000)],
    "inputs": [],
    "hyperparameters": [],
}


def charts_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    return found


@pytest.mark.parametrize(("task", "held_out", "shown"), [
    ("classification", CLASSES, {"confusion", "roc", "calibration", "inputs", "hyperparameters"}),
    ("regression", NUMBERS, {"residuals"}),
])  # fmt: skip
def test_each_task_has_its_charts_and_vega_can_draw_them(task: str, held_out: dict[str, Any], shown: set[str]) -> None:
    text = page(chart_data(rows_of(task, held_out), n_top=3), made_by="test")
    assert set(re.findall(r'data-chart="(\w+)"', text)) & set(EVALUATED) == shown
    document = charts_of(text)
    for name in shown:
        spec = document["charts"][name]
        data = {each: as_rows(document["datasets"][each]) for each in spec.pop("data_names")}
        svg = vl_convert.vegalite_to_svg({**spec, "datasets": data, "width": 300})
        assert "<svg" in svg
        assert "NaN" not in svg
    assert "<script>alert" not in text


def test_metrics_are_shown_where_one_split_has_them() -> None:
    assert score_lines(rows_of("classification", CLASSES)) == [
        ("n_rows", "1,500", "1,499", "rows of the split"), ("roc_auc", "0.9123", "", "area"),
    ]  # fmt: skip
    text = page(chart_data(rows_of("regression", NUMBERS), n_top=3), made_by="test")
    assert '<td class="name">rmse</td><td class="number">2.5000</td><td class="number">12,345.7</td>' in text


def test_curves_of_many_rows_are_thinned_and_keep_their_ends() -> None:
    columns = held_out_columns(rows_of("classification", CLASSES))
    assert len(columns["roc"]["wrong"]) == MOST_POINTS
    assert (columns["roc"]["wrong"][0], columns["roc"]["wrong"][-1]) == (0.0, 1.0)
    assert columns["roc"]["threshold"][0] is None, "infinity is not JSON"
    assert columns["roc_diagonal"] == {"at": [0.0, 1.0]}
    assert thinned([{"k": k} for k in range(10)], 4) == [{"k": 0}, {"k": 3}, {"k": 6}, {"k": 9}]
    assert len(held_out_columns(rows_of("regression", NUMBERS))["residuals"]["actual"]) == MOST_POINTS


def test_too_many_classes_have_no_chart() -> None:
    many = {
        "confusion": [{"actual": str(k), "predicted": str(k), "n_rows": 1, "share": 1.0} for k in range(41**2)],
        "roc": [row for k in range(11) for row in points(f"class {k}", 3)],
    }
    assert held_out_columns(rows_of("classification", many)) == {}


def test_a_report_says_why_there_is_no_evaluation_and_is_silent_where_none_was_asked_for() -> None:
    refused = page(chart_data(rows_of("classification", {}, f"no right {NASTY}"), n_top=3), made_by="test")
    assert "Held-out rows are not evaluated here: no right &lt;/script&gt;" in refused
    silent = page(chart_data(rows_of("classification", {}), n_top=3), made_by="test")
    assert "<h2>Evaluation</h2>" not in silent
