"""easeml run report against a server: real runs, of one's own and of others, finished, open and unknown."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from easeml_db.cli import commands
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator
from easeml_db.postgres.connection import connect_now
from easeml_db.postgres.queries import queries

TENANTS = ("report_ada", "report_bob")


@pytest.fixture(scope="module")
def reader(server: Embedded) -> Iterator[Any]:
    """`reader("ada", "run", "report", ...)` runs a command under that role and returns click's result."""
    wait_for_coordinator(server)
    with connect_now(server.dsn()) as connection:
        for role in TENANTS:
            connection.execute(f"CREATE ROLE {role} LOGIN IN ROLE easeml_tenant")
            connection.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}")

    def invoke(role: str, *arguments: object) -> Result:
        return CliRunner().invoke(commands, [*map(str, arguments), "--dsn", server.dsn(user=role)])

    for role in TENANTS:
        table = f"{role}.digits"
        assert invoke(role, "load", "digits", "--table", table).exit_code == 0
        create = ("dataset", "create", role, "--source", table, "--inputs", "pixels", "--target", "label")
        assert invoke(role, *create, "--n-partitions", 2).exit_code == 0
    yield invoke
    for role in TENANTS:
        assert invoke(role, "dataset", "drop", role, "--cascade").exit_code == 0


@pytest.fixture(scope="module")
def finished(reader: Any) -> dict[str, int]:
    """A finished run of each tenant."""
    run_ids = {}
    for role in TENANTS:
        ended = reader(role, "select", role, "--architectures", "mlp,linear", "--n-configs", 3, "--max-epochs", 2,
                       "--watch", "--json")  # fmt: skip
        assert ended.exit_code == 0, ended.output
        run_ids[role] = json.loads(ended.stdout)["run"]["run_id"]
    return run_ids


def test_a_finished_run_becomes_a_page_and_a_picture(reader: Any, finished: dict[str, int], tmp_path: Path) -> None:
    run_id = finished["report_ada"]
    result = reader("report_ada", "run", "report", "--out", tmp_path / "new" / "folder")
    assert result.exit_code == 0, result.output
    html, png = (Path(line) for line in result.stdout.splitlines())
    assert (html.name, png.name) == (f"run-{run_id}.html", f"run-{run_id}.png")
    text = html.read_text(encoding="utf-8")
    assert f"<title>Run {run_id} on report_ada: finished</title>" in text
    assert not re.search(r"<(?:script|link)[^>]+(?:src|href)", text)
    assert len(re.findall(r"<tr data-trial=", text)) == 3
    assert "<h2>Evaluation</h2>" in text
    charts = re.findall(r'data-chart="(\w+)"', text)
    assert {"confusion", "roc", "calibration", "inputs"} <= set(charts)
    scores = dict(
        re.findall(r'<tr><td class="name">(\w+)</td><td class="number">[^<]*</td><td class="number">([^<]+)', text)
    )
    best = reader("report_ada", "run", "leaderboard", run_id, "--json")
    trial_id = next(row["trial_id"] for row in json.loads(best.stdout) if row["rank"] == 1)
    told = reader("report_ada", "evaluate", "report_ada", "--trial", trial_id, "--json")
    assert scores["macro_f1"] == next(
        f"{row['test']:.4f}" for row in json.loads(told.stdout) if row["metric"] == "macro_f1"
    )
    content = png.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert min(struct.unpack(">II", content[16:24])) > 1000


def test_figures_are_what_sql_says(reader: Any, finished: dict[str, int], server: Embedded, tmp_path: Path) -> None:
    run_id = finished["report_ada"]
    result = reader(
        "report_ada", "run", "report", run_id, "--json", "--format", "html", "--out", tmp_path, "--no-evaluate"
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["run_id"], found["status"], found["png"]) == (run_id, "finished", None)
    assert "<h2>Evaluation</h2>" not in Path(found["html"]).read_text(encoding="utf-8")
    with connect_now(server.dsn()) as connection:
        said = connection.execute(
            "SELECT count(*) AS n_units, count(DISTINCT slot_id) AS n_slots, sum(seconds) AS busy_seconds,"
            " extract(epoch FROM max(finished_at) - min(started_at))::float8 AS makespan_seconds,"
            " coalesce(sum(state_bytes), 0)::bigint AS bytes_stored"
            " FROM easeml.training_timeline WHERE run_id = %s",
            [run_id],
        ).fetchone()
    assert said is not None
    figures = found["figures"]
    assert (figures["n_units"], figures["n_slots"]) == (said["n_units"], said["n_slots"]) == (30, 2)
    for name in ("busy_seconds", "makespan_seconds"):
        assert figures[name] == pytest.approx(said[name], abs=1e-4)
    assert found["traffic"]["bytes_stored"] == said["bytes_stored"] > 0
    assert figures["lower_bound_seconds"] <= figures["active_seconds"] + 1e-6


def test_a_tenant_reports_own_runs_only(reader: Any, finished: dict[str, int], tmp_path: Path) -> None:
    refused = reader("report_bob", "run", "report", finished["report_ada"], "--out", tmp_path)
    assert refused.exit_code == 1
    assert f"there is no run {finished['report_ada']} that you can see" in str(refused.exception)
    newest = reader("report_ada", "run", "report", "--out", tmp_path, "--format", "png", "--json", "--no-evaluate")
    assert json.loads(newest.stdout)["run_id"] == finished["report_ada"] < finished["report_bob"]


def test_who_may_not_see_the_rows_gets_a_report_without_evaluation(
    reader: Any, finished: dict[str, int], server: Embedded, tmp_path: Path
) -> None:
    with connect_now(server.dsn()) as connection:
        connection.execute("CREATE ROLE report_reader LOGIN IN ROLE easeml_reader")
    result = reader("report_reader", "run", "report", finished["report_ada"], "--out", tmp_path, "--format", "html")
    assert result.exit_code == 0, result.output
    (page,) = tmp_path.iterdir()
    text = page.read_text(encoding="utf-8")
    assert (
        "Held-out rows are not evaluated here: there is no dataset &#x27;report_ada.report_ada&#x27; whose rows" in text
    )


def test_commands_of_evaluation_show_what_the_functions_say(reader: Any, finished: dict[str, int]) -> None:
    """Each command is a session that imports torch, so two stand for those that are made alike."""
    result = reader("report_ada", "class-metrics", "report_ada", "--split", "validation", "--json")
    assert result.exit_code == 0, result.output
    assert [row["label"] for row in json.loads(result.stdout)] == [str(digit) for digit in range(10)]
    shown = reader("report_ada", "explain", "report_ada", "--metric", "log_loss")
    assert shown.exit_code == 0, shown.output
    assert re.search(r"^pixels\S* +\d", shown.output, re.MULTILINE), shown.output
    refused = reader("report_ada", "residuals", "report_ada")
    assert (refused.exit_code, str(refused.exception)) == (
        1, "dataset 'report_ada' is a classification, which has no residuals")  # fmt: skip
    few = reader("report_ada", "run", "hyperparameter-importance", finished["report_ada"])
    assert "has no architecture with 4 measured trials that differ" in str(few.exception)
    assert reader("report_ada", "explain", "report_ada", "--label", "1").exit_code == 2


def test_an_unknown_run_is_one_line_and_writes_nothing(reader: Any, finished: dict[str, int], tmp_path: Path) -> None:
    refused = reader("report_ada", "run", "report", 999_999, "--out", tmp_path)
    assert refused.exit_code == 1
    assert "\n" not in str(refused.exception)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_said(reader: Any, finished: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = reader("report_ada", "run", "report", "--out", tmp_path / "file" / "below", "--no-evaluate")
    assert refused.exit_code == 1
    assert "cannot write" in str(refused.exception)


def test_a_run_that_goes_on_is_reported_as_far_as_it_is(reader: Any, tmp_path: Path) -> None:
    started = reader("report_ada", "select", "report_ada", "--architectures", "mlp", "--max-epochs", 5000, "--json")
    run_id = json.loads(started.stdout)["run_id"]
    try:
        result = reader(
            "report_ada", "run", "report", run_id, "--out", tmp_path / "now.html", "--json", "--no-evaluate"
        )
        assert result.exit_code == 0, result.output
        state = json.loads(result.stdout)["status"]
        assert state in ("queued", "running")
        text = (tmp_path / "now.html").read_text(encoding="utf-8")
        assert f": {state}</title>" in text
        assert "The run has not ended." in text
    finally:
        dropped = reader("report_ada", "run", "drop", run_id, "--force")
        assert dropped.exit_code == 0, dropped.output


def test_every_query_of_the_report_reads_views_only(server: Embedded) -> None:
    with connect_now(server.dsn(user="postgres")) as connection:
        views = {row["relname"] for row in connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'v'")}  # fmt: skip
        for statement in queries("report").values():
            connection.execute(b"EXPLAIN " + statement.encode(), {"run_id": 1})
            assert set(re.findall(r"easeml\.(\w+)", statement)) <= views
