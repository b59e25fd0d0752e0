"""Somebody can watch the service: easeml.health, a page for Prometheus, a log with run and trial, a dashboard."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

from easeml_db.local.processes import server_environment

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from stored_rows.catalogue_rows import QUICK, fill

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
DASHBOARD = Path(__file__).resolve().parents[3] / "docs" / "dashboards" / "grafana.json"
TABLE = "CREATE TABLE points AS SELECT i AS id, i % 7 AS x, chr(97 + i % 2) AS y FROM generate_series(1, 200) i"
SAMPLE = re.compile(r"^(easeml_\w+) (-?[\d.e+]+)$", re.MULTILINE)
TYPED = re.compile(r"^# TYPE (easeml_\w+) (counter|gauge)$", re.MULTILINE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs") / "easeml.log"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def watched(module_database: Session, coordinator: Any, port: int, log_file: Path) -> Iterator[Session]:
    """A database in which a run has ended, whose coordinator is watched."""
    module_database.execute(TABLE)
    module_database.execute("SELECT easeml.create_dataset('points', 'points', '{x}', 'y', n_partitions => 2)")
    log_file.parent.chmod(0o777)
    arguments = ("--metrics-port", str(port), "--log-file", str(log_file), "--log-json", "--log-units")
    with coordinator(module_database, *arguments):
        run_id = module_database.value(
            "SELECT easeml.select_models('points', '{sgd}', n_configs => 1, max_epochs => 2)"
        )
        module_database.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)
        module_database.wait_until("SELECT units_recorded = 10 FROM easeml.health")
        yield module_database


def test_health_counts_since_the_coordinator_began(watched: Session) -> None:
    (row,) = watched.rows("SELECT * FROM easeml.health")
    assert row["is_alive"]
    assert (
        row["units_recorded"] == row["n_units_done"] == watched.value("SELECT count(*) FROM easeml.training_timeline")
    )
    assert (row["units_failed"], row["units_lost"], row["n_lost_slots"], row["n_slots"]) == (0, 0, 0, 1)
    assert (row["n_queued_runs"], row["n_running_runs"], row["oldest_queued_seconds"]) == (0, 0, None)
    recorded = watched.value("SELECT sum(seconds) FROM easeml.training_timeline")
    assert row["unit_seconds"] >= 0.5 * recorded > 0


def test_what_begins_while_somebody_looks_has_no_age_below_zero(watched: Session) -> None:
    ages = """SELECT h.heartbeat_age_seconds AS heartbeat, h.longest_unit_seconds AS longest,
        (SELECT max(s.unit_seconds) FROM easeml.slot_status s) AS unit FROM easeml.health h"""
    with watched.transaction(force_rollback=True):
        watched.execute("UPDATE easeml.coordinators SET heartbeat_at = clock_timestamp() + interval '1 minute'")
        watched.execute("UPDATE easeml.slots SET unit_started_at = clock_timestamp() + interval '1 minute'")
        assert watched.rows(ages) == [{"heartbeat": 0, "longest": 0, "unit": 0}]
        watched.execute("UPDATE easeml.slots SET unit_started_at = NULL")
        assert watched.rows(ages) == [{"heartbeat": 0, "longest": None, "unit": None}]


def test_the_page_has_the_numbers_of_the_view(watched: Session, port: int) -> None:
    text = page(port)
    samples = {name: float(value) for name, value in SAMPLE.findall(text)}
    types = dict(TYPED.findall(text))
    assert samples.keys() == types.keys()
    assert len(text.splitlines()) == 2 * len(samples)
    assert samples["easeml_units_recorded_total"] == 10
    assert types["easeml_units_recorded_total"] == "counter"
    assert (samples["easeml_is_alive"], samples["easeml_database_up"], samples["easeml_n_slots"]) == (1, 1, 1)
    assert all(types[name] == "gauge" for name in samples if not name.endswith("_total"))


def test_other_paths_and_methods_are_refused_and_nobody_is_kept_waiting(watched: Session, port: int) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page(port, "/")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/metrics", data=b"x"), timeout=60)
    with socket.create_connection(("127.0.0.1", port)) as silent, socket.create_connection(("127.0.0.1", port)) as rude:
        rude.sendall(b"\xff" * 100_000 + b"\n")
        assert silent.fileno() >= 0
        assert "easeml_is_alive 1" in page(port)


def test_only_this_machine_is_answered(watched: Session, port: int) -> None:
    listening = {
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"
    }
    assert {address.split(":")[0] for address in listening if int(address.split(":")[1], 16) == port} == {"0100007F"}


def test_a_port_in_use_is_said_before_anything_else(watched: Session, port: int) -> None:
    dsn = make_conninfo(watched.dsn, user="easeml_service")
    command = [sys.executable, "-m", "easeml_db", "coordinator", "--dsn", dsn, "--metrics-port", str(port)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", env=server_environment())
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"easeml: --metrics-port: port {port} of 127.0.0.1 is in use",
        "  hint: Choose another, or end what listens there.",
    ]


def test_the_log_has_a_json_line_for_each_unit_with_run_and_trial(watched: Session, log_file: Path) -> None:
    lines = [json.loads(line) for line in log_file.read_text(encoding="utf-8").splitlines()]
    assert lines[0]["message"] == "coordinator is up"
    (trial,) = watched.rows("SELECT run_id, trial_id FROM easeml.trials")
    recorded = [line for line in lines if line["event"] == "recorded"]
    assert len(recorded) == 10
    assert all({name: line[name] for name in trial} == trial and line["slot_id"] == 1 for line in recorded)
    assert any(line["event"] == "run" and line["run_id"] == trial["run_id"] for line in lines)
    assert log_file.stat().st_mode & 0o077 == 0


def test_health_reads_nothing_that_grows(database: Session) -> None:
    fill(database, QUICK)
    plan = json.dumps(database.value("EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM easeml.health"))
    assert "runs_open" in plan
    assert "runs_pkey" not in plan


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"])


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_each_panel_of_the_dashboard_shows_something(panel: dict[str, Any], watched: Session) -> None:
    (target,) = panel["targets"]
    query = re.sub(
        r"\$__timeGroupAlias\((\w+), \$__interval\)", r"""date_trunc('minute', \1) AS "time" """, target["rawSql"]
    )
    query = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN now() - interval '1 day' AND now()", query)
    assert "$" not in query
    rows = watched.as_role("grafana", "easeml_reader").rows(query)
    assert rows or panel["title"] == "Failures and retries"
    if target["format"] == "time_series" and rows:
        assert list(rows[0])[:2] == ["time", "metric"]


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= document.keys()
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    taken = set()
    for panel in document["panels"]:
        assert {"id", "type", "title", "gridPos", "targets", "datasource", "fieldConfig"} <= panel.keys()
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
