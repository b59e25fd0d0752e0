"""Reports without a server: figures worked out by hand, pauses, wording, escaping, what the page and picture hold."""

from __future__ import annotations

import datetime
import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.cli.search.report import report_paths
from easeml_db.errors import EasemlError
from easeml_db.report.datasets import HUES, as_rows, chart_data, slot_names
from easeml_db.report.figures import busy_over_time, figures
from easeml_db.report.libraries import safe_script
from easeml_db.report.page import page
from easeml_db.report.picture import picture
from easeml_db.report.rows import RunRows
from easeml_db.report.timeline import timeline
from easeml_db.report.wording import bytes_text, duration_text, split_configs, value_text

START = 1_700_000_000.0
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.timezone.utc)
DAY = 86400.0
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def unit(trial_id: int, slot_id: int, begin: float, end: float, **other: Any) -> dict[str, Any]:
    """A row of query `units`; begin and end in seconds after START."""
    row = {"trial_id": trial_id, "kind": "train", "epoch": 1, "partition_number": 0, "slot_id": slot_id, "attempt": 1}
    return {**row, "started_seconds": START + begin, "finished_seconds": START + end, **other}


def trial(trial_id: int, **other: Any) -> dict[str, Any]:
    """A row of query `trials`."""
    row = {
        "rank": trial_id, "trial_id": trial_id, "trial_number": trial_id, "architecture": "mlp", "status": "finished",
        "validation_metric": 1 - trial_id / 1000, "test_metric": 0.5, "best_epoch": 1, "n_epochs_done": 1,
        "max_epochs": 1, "training_seconds": 2.0, "is_deployed": False, "config": {"learning_rate": 0.1 * trial_id},
        "failure_reason": None,
    }  # fmt: skip
    return {**row, **other}


def run(**other: Any) -> dict[str, Any]:
    """A row of query `run`."""
    row = {
        "run_id": 7, "tenant": "ada", "dataset_name": "digits", "dataset_version": 1, "status": "finished",
        "procedure": "random", "metric": "accuracy", "max_epochs": 1, "seed": 0, "n_trials": 2, "n_finished": 2,
        "n_failed": 0, "n_units_done": 4, "n_units": 4, "percent_done": 100.0, "best_trial_id": 1,
        "best_metric_value": 0.999, "created_at": NOON, "started_at": NOON, "finished_at": NOON, "read_at": NOON,
        "failure_reason": None, "task": "classification", "source": "public.digits", "input_columns": ["pixels"],
        "target_column": "label", "input_shape": [8, 8], "n_outputs": 10, "n_partitions": 4, "n_train_rows": 1000,
        "n_validation_rows": 100, "n_test_rows": 100, "n_bytes": 1_234_567,
        "n_folds": None, "cost_so_far": 0.0123, "price_list": None,
        "eta_at": None, "eta_p95_at": None, "is_at_risk": None,
    }  # fmt: skip
    return {**row, **other}


def rows_of(units: Sequence[dict[str, Any]], **other: Any) -> RunRows:
    """A whole run around some units, with a curve of one epoch for each trial."""
    trials = other.get("trials", [trial(1), trial(2)])
    traffic = {
        "run_id": 7, "n_units": len(units), "n_hops": 3, "bytes_hopped": 3000, "bytes_stored": 4000,
        "n_live_states": 2, "live_state_bytes": 2000, "largest_state_bytes": 1000,
    }  # fmt: skip
    curves = [
        {"trial_id": each["trial_id"], "epoch": 1, "training_loss": 0.5, "validation_metric": 0.9} for each in trials
    ]
    slots = [{"slot_id": n, "slot_name": f"slot-{n}", "device": "cpu", "n_threads": 1} for n in (1, 2)]
    given = {"run": run(), "trials": trials, "curves": curves, "slots": slots, "events": [], "traffic": traffic}
    return RunRows(units=units, **{**given, **other})


# Two slots, three trials: busy 4 + 3 + 2 + 1 = 10 s, first start 0, last end 7.
FOUR_UNITS = (
    unit(1, 1, 0, 4),
    unit(2, 2, 0, 3),
    unit(1, 2, 4, 6, kind="validate"),
    unit(3, 1, 6, 7, kind="test", attempt=2),
)


# Figures


def test_figures_of_four_units_worked_out_by_hand() -> None:
    found = figures(timeline(FOUR_UNITS))
    assert (found.n_units, found.n_slots, found.n_retried_units) == (4, 2, 1)
    assert found.busy_seconds == pytest.approx(10)
    assert found.makespan_seconds == found.active_seconds == pytest.approx(7)
    assert (found.longest_trial_id, found.longest_trial_seconds) == (1, pytest.approx(6))
    assert found.lower_bound_seconds == pytest.approx(6)  # the longest trial; 10 s / 2 slots is less
    assert found.active_over_bound == pytest.approx(7 / 6)
    assert found.utilisation == pytest.approx(10 / 14)
    first, second = found.slots
    assert (first.train_seconds, first.validate_seconds, first.test_seconds) == pytest.approx((4, 0, 1))
    assert (first.busy_seconds, first.utilisation) == pytest.approx((5, 5 / 7))
    assert (second.n_units, second.busy_seconds) == (2, pytest.approx(5))


def test_the_bound_is_total_by_slots_where_no_trial_is_long() -> None:
    found = figures(timeline([unit(n, n % 2, 2 * (n // 2), 2 * (n // 2) + 2) for n in range(6)]))
    assert found.lower_bound_seconds == pytest.approx(6)
    assert found.active_over_bound == pytest.approx(1)
    assert found.utilisation == pytest.approx(1)


def test_a_run_without_units_has_no_figures_and_no_bound() -> None:
    found = figures(timeline([]))
    assert (found.n_units, found.makespan_seconds, found.lower_bound_seconds, found.utilisation) == (0, 0, None, None)
    assert busy_over_time((), 0.0) == []


def test_busy_slots_are_means_over_equal_parts() -> None:
    line = timeline(FOUR_UNITS)
    assert [part.n_busy for part in busy_over_time(line.units, 7.0, n_bins=7)] == pytest.approx([2, 2, 2, 1, 1, 1, 1])
    assert [part.n_busy for part in busy_over_time(line.units, 7.0, n_bins=2)] == pytest.approx([6.5 / 3.5, 1])


SPANS = st.lists(st.tuples(st.floats(0, 1000), st.floats(0.01, 50), st.integers(1, 4), st.integers(1, 9)), min_size=1)


@given(SPANS, st.integers(1, 50))
def test_no_time_is_lost_between_units_parts_and_slots(spans: list[tuple[float, float, int, int]], n_bins: int) -> None:
    line = timeline([unit(t, s, begin, begin + seconds) for begin, seconds, s, t in spans])
    found = figures(line)
    parts = busy_over_time(line.units, found.active_seconds, n_bins)
    busy = sum(part.n_busy * (part.end_seconds - part.begin_seconds) for part in parts)
    assert busy == pytest.approx(found.busy_seconds, rel=1e-6)
    assert sum(slot.busy_seconds for slot in found.slots) == pytest.approx(found.busy_seconds)
    ends = [begin + seconds for begin, seconds, _, _ in spans]
    assert found.makespan_seconds == pytest.approx(max(ends) - min(begin for begin, *_ in spans), abs=1e-5)


# Pauses


def test_a_day_between_cancel_and_resume_is_cut_out() -> None:
    line = timeline([unit(1, 1, 0, 10), unit(1, 2, DAY + 10, DAY + 15), unit(2, 1, DAY + 11, DAY + 12)])
    (pause,) = line.pauses
    assert (pause.at_seconds, pause.seconds) == pytest.approx((10, DAY))
    assert [each.begin_seconds for each in line.units] == pytest.approx([0, 10, 11])
    found = figures(line)
    assert found.active_seconds == pytest.approx(15)
    assert found.makespan_seconds == pytest.approx(DAY + 15)
    assert found.utilisation == pytest.approx(16 / 30)
    assert [line.active(START + at) for at in (-5, 5, 100, DAY, DAY + 13, 3 * DAY)] == pytest.approx(
        [0, 5, 10, 10, 13, 15]
    )


def test_short_idle_times_and_those_with_one_busy_slot_are_no_pauses() -> None:
    assert not timeline([unit(1, 1, 0, 1), unit(1, 1, 5, 6)]).pauses
    assert not timeline([unit(1, 1, 0, 1000), unit(1, 1, 1060, 2000)]).pauses
    assert not timeline([unit(1, 1, 0, DAY), unit(2, 2, 0, 1), unit(2, 2, DAY - 1, DAY)]).pauses


# Wording


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "0.012 s"), (0.35, "0.35 s"), (7.24, "7.2 s"), (9.97, "10 s"), (42.4, "42 s"), (59.7, "1 min 0 s"),
     (184, "3 min 4 s"), (7800, "2 h 10 min"), (DAY + 3 * 3600, "1 d 3 h")],
)  # fmt: skip
def test_durations_are_compact(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 bytes"), (512, "512 bytes"), (1200, "1.2 kB"), (999_600, "1.0 MB"), (36_000_000, "36 MB"),
     (1_240_000_000, "1.2 GB"), (5_000_000_000_000_000, "5000 TB")],
)  # fmt: skip
def test_bytes_are_compact(n_bytes: int, text: str) -> None:
    assert bytes_text(n_bytes) == text


def test_configs_are_split_into_what_differs_and_what_does_not() -> None:
    configs = [{"a": 1, "b": [64, 32], "only": True}, {"a": 2, "b": [64, 32]}]
    assert split_configs(configs) == ([{"a": "1", "only": "yes"}, {"a": "2"}], {"b": "[64, 32]"})
    assert split_configs(configs[:1]) == ([{"a": "1", "b": "[64, 32]", "only": "yes"}], {})
    assert value_text({"rate": 0.123456}) == "{rate: 0.1235}"


def test_slots_that_are_gone_and_names_that_repeat_stay_apart() -> None:
    slots = [{"slot_id": 1, "slot_name": "gpu"}, {"slot_id": 2, "slot_name": "gpu"}]
    assert slot_names(slots, [1, 2, 9]) == {1: "gpu (1)", 2: "gpu (2)", 9: "slot 9"}


# The page and the picture


def page_of(rows: RunRows, n_top: int = 20) -> str:
    return page(chart_data(rows, n_top=n_top), made_by="easeml-db")


def drawing(html: str) -> Any:
    """What the page's script reads."""
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])  # type: ignore[index]


def without_scripts(html: str) -> str:
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])  # type: ignore[return-value]


EMPTY = rows_of([], curves=[], run=run(status="queued", started_at=None, finished_at=None, best_trial_id=None))


def test_what_users_named_is_text_and_never_markup() -> None:
    trials = [
        trial(1, architecture=NASTY, config={NASTY: NASTY}, status=NASTY),
        trial(2, failure_reason=NASTY, config={NASTY: 1, "x": [NASTY]}),
    ]
    events = [{"happened_at": NOON, "happened_seconds": START + 1, "trial_id": 2, "kind": "failed", "message": NASTY}]
    names = ("dataset_name", "tenant", "metric", "source", "target_column", "failure_reason", "procedure", "status")
    named = run(**dict.fromkeys(names, NASTY), input_columns=[NASTY])
    slots = [{"slot_id": 1, "slot_name": NASTY, "device": NASTY, "n_threads": 1}]
    html = page_of(rows_of(FOUR_UNITS, trials=trials, events=events, run=named, slots=slots))
    assert html.count("<script") == html.count("</script>") == 3
    assert "<img" not in without_scripts(html)
    assert html.count("&lt;img src=x") > 10
    assert drawing(html)["datasets"]["failures"]["message"] == [NASTY]


def test_the_page_needs_no_network_and_may_not_use_any() -> None:
    html = page_of(rows_of(FOUR_UNITS))
    assert not re.search(r"<script[^>]+src", html)
    assert not re.search(r"<(?:link|img|iframe)|https?:|@import|url\(", without_scripts(html))
    assert "default-src 'none'" in html


def test_the_libraries_come_once_whatever_the_number_of_charts() -> None:
    html = page_of(rows_of(FOUR_UNITS))
    assert set(drawing(html)["charts"]) == {
        "units_by_slot", "units_by_trial", "metric", "loss", "busy_slots", "slot_utilisation"
    }  # fmt: skip
    assert len(html) < 1_200_000
    assert html.count("window.vegaEmbed") == 1


def test_scripts_cannot_be_ended_early() -> None:
    assert "</script" not in safe_script('x = "</script>"')


def test_every_chart_names_data_that_the_page_has() -> None:
    drawn = drawing(page_of(rows_of(FOUR_UNITS)))
    for chart in drawn["charts"].values():
        named = set(re.findall(r'"data": \{"name": "(\w+)"', json.dumps(chart)))
        assert named <= set(chart["data_names"]) <= set(drawn["datasets"])
        assert "datasets" not in chart


@pytest.mark.parametrize("n_epochs", [1, 2, 3, 12])
def test_each_of_a_few_epochs_has_one_tick(n_epochs: int) -> None:
    curves = [
        {"trial_id": 1, "epoch": epoch, "training_loss": 0.5, "validation_metric": 0.9}
        for epoch in range(1, n_epochs + 1)
    ]
    drawn = drawing(page_of(rows_of(FOUR_UNITS, curves=curves)))
    axis = f'"title": "epoch", "values": {list(range(1, n_epochs + 1))}'
    assert axis in json.dumps(drawn["charts"]["metric"])


def test_the_page_says_the_figures() -> None:
    text = without_scripts(page_of(rows_of(FOUR_UNITS)))
    assert "Run 7 on digits" in text
    assert "makespan is 1.17 times that" in text
    assert "71 %" in text
    assert "10 s / 2 = 5.0 s" in text
    assert "States changed slots 3 times, 3.0 kB in all; 4.0 kB were stored" in text


def test_the_page_says_what_went_from_server_to_server() -> None:
    assert "From server to server" not in page_of(rows_of(FOUR_UNITS))
    traffic = dict(rows_of(FOUR_UNITS).traffic)
    traffic |= {"n_node_hops": 8, "n_node_hops_ahead": 6, "node_bytes": 8_000_000, "node_seconds": 2.0}
    traffic |= {"row_bytes": 5_000_000, "row_seconds": 1.0}
    packed = run(shuffle="across", n_moved_bytes=2_000_000, packing_seconds=3.0)
    text = without_scripts(page_of(rows_of(FOUR_UNITS, run=packed, traffic=traffic)))
    assert "From server to server they went 8 times, 8.0 MB in 2.0 s; 75 % were there before a unit asked." in text
    assert "5.0 MB of packed rows went to servers that lacked them, in 1.0 s." in text
    assert "shuffled across them in 3.0 s; 2.0 MB went from node to node" in text


def test_the_leaderboard_shows_as_many_trials_as_asked_for() -> None:
    trials = [trial(n) for n in range(1, 31)]
    html = page_of(rows_of(FOUR_UNITS, trials=trials), n_top=5)
    assert re.findall(r'<tr data-trial="(\d+)"', html) == ["1", "2", "3", "4", "5"]
    assert "The 5 best of 30 trials" in html
    assert sum(drawing(html)["datasets"]["curves"]["is_top"]) == 5


def test_hues_follow_the_leaderboard_and_begin_again() -> None:
    trials = [trial(n) for n in range(1, len(HUES) + 2)]
    hues = chart_data(rows_of(FOUR_UNITS, trials=trials), n_top=20).hues
    assert sorted(set(hues.values())) == list(range(len(HUES)))
    assert hues[1] == hues[len(HUES) + 1] == 0


def test_lost_attempts_and_failed_trials_are_marked_at_their_time() -> None:
    kinds = ("retry", "failed", "cancelled")
    events = [
        {"happened_at": NOON, "happened_seconds": START + n, "trial_id": 2, "kind": kind, "message": kind}
        for n, kind in enumerate(kinds)
    ]
    data = chart_data(rows_of(FOUR_UNITS, events=events), n_top=20)
    marked = [(each["begin"], each["what"]) for each in as_rows(data.datasets["failures"])]
    assert marked == [(0, "attempt lost"), (1, "trial failed")]


@pytest.mark.parametrize("status", ["queued", "running", "interrupted", "cancelled", "failed"])
def test_a_run_without_units_still_has_a_page_and_a_picture(status: str) -> None:
    rows = rows_of([], curves=[], run={**EMPTY.run, "status": status})
    html = page_of(rows)
    assert f"<title>Run 7 on digits: {status}</title>" in html
    assert "No unit is recorded yet." in html
    assert drawing(html)["charts"] == {}
    assert min(size_of(picture(chart_data(rows, n_top=20)))) > 200


def test_what_is_no_number_is_left_out_of_the_charts() -> None:
    curves = [{"trial_id": 1, "epoch": 1, "training_loss": float("nan"), "validation_metric": float("inf")}]
    data = chart_data(rows_of(FOUR_UNITS, curves=curves), n_top=20)
    assert as_rows(data.datasets["curves"])[0]["loss"] is None
    assert size_of(picture(data))[0] > 2000


def test_a_run_of_twenty_thousand_units_stays_small_and_whole() -> None:
    units = [unit(n % 2 + 1, n % 8, n // 8 + 0.1, n // 8 + 0.9, partition_number=n % 4) for n in range(20_000)]
    html = page_of(rows_of(units))
    assert len(drawing(html)["datasets"]["units"]["trial"]) == 20_000
    assert len(html) < 2_500_000


# Where it is written


@pytest.mark.parametrize(
    ("out", "wanted", "paths"),
    [
        (".", None, {"html": "run-7.html", "png": "run-7.png"}),
        ("folder", "png", {"png": "folder/run-7.png"}),
        ("a/b.html", None, {"html": "a/b.html"}),
        ("b.png", "both", {"html": "b.html", "png": "b.png"}),
        ("v1.2", "html", {"html": "v1.2/run-7.html"}),
        ("b.v2.png", "html", {"html": "b.v2.html"}),
    ],
)
def test_where_a_report_goes(out: str, wanted: str | None, paths: dict[str, str]) -> None:
    assert report_paths(Path(out), 7, wanted) == {kind: Path(path) for kind, path in paths.items()}


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from easeml_db.cli.search.report import write_report

    for name in ("page", "picture"):
        monkeypatch.delitem(sys.modules, f"easeml_db.report.{name}")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(EasemlError, match="vl_convert") as refused:
        write_report(EMPTY, {}, 20)
    assert refused.value.hint == "pip install 'easeml-db[report]'"
