"""What tenants name steers neither the terminal of whoever asks any of the newer commands nor the files they write."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from easeml_db.cli import main
from easeml_db.cli.answers import exports
from easeml_db.cli.answers.exports import file_name

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
EVIL = "\x1b]0;o\x07\x9b1m\u202ek\u2066\nrun 1\r\ufeff"
TASK = "t" + EVIL
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
TABLE = """
CREATE TABLE points AS SELECT sin(i) AS {evil}, CASE WHEN sin(i) > 0 THEN {label} ELSE 'no' END AS {y}
FROM generate_series(1, 80) i
"""


@pytest.fixture(scope="module")
def evil(module_coordinated: Session) -> Session:
    """Hostile columns, classes, tasks, segments, groups, problems, notes and errors, and a model of them."""
    root, y = module_coordinated, sql.Identifier("y" + EVIL)
    root.execute(sql.SQL(TABLE).format(evil=sql.Identifier(EVIL), label=sql.Literal(EVIL), y=y))
    root.execute("SELECT easeml.create_dataset(%s, 'points', %s, %s, n_partitions => 1)", [EVIL, [EVIL], "y" + EVIL])
    root.execute("SELECT easeml.select_models(%s, '{sgd}', n_configs => 1, max_epochs => 1)", [EVIL])
    root.execute("CREATE SCHEMA lab")
    create = "SELECT easeml.create_task(%s, 'Input = [2] Output = [2]', schema => 'lab', classes => %s)"
    root.execute(create, [TASK, [EVIL, "other"]])
    root.execute("SELECT easeml.feed(%s, '{1,2}'::real[], %s)", [TASK, EVIL])
    root.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    root.execute("SELECT easeml.set_refresh(%s, '1 day')", [EVIL])
    root.execute("UPDATE easeml.refresh_rules SET problem = %s, not_before = now() + interval '1 day'", [EVIL])
    root.execute("UPDATE easeml.tasks SET problem = %s, not_before = now() + interval '1 day'", [EVIL])
    root.execute("UPDATE easeml.segments SET segment_name = %s || segment_name", [EVIL])
    return root


SHOWN = (
    ["task"], ["task", "refine", TASK], ["task", "report", TASK], ["task", "infer", TASK, "--input", "[1, 2]"],
    ["dataset", "refreshes"], ["drift", EVIL, "--source", "points"], ["evaluate", EVIL], ["confusion-matrix", EVIL],
    ["calibration", EVIL], ["explain", EVIL], ["segment"], ["slot"], ["serving"], ["plan", EVIL], ["residuals", EVIL],
    ["export", EVIL], ["evaluate", EVIL + "?"], ["task", "report", EVIL + "?"], ["drift", EVIL + "?"],
    ["import", "/nonexistent" + EVIL], ["restore", EVIL],
)  # fmt: skip


@pytest.mark.parametrize("command", SHOWN, ids=lambda command: " ".join(command)[:30].encode("unicode_escape").decode())
def test_no_command_steers_the_terminal(
    evil: Session,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with suppress(SystemExit):
        main([*command, "--dsn", evil.dsn])
    told = capsys.readouterr()
    shown = told.out + told.err
    assert "No such command" not in shown
    assert not STEERING.search(shown), repr(shown)
    assert not any(line.startswith("run 1") for line in shown.splitlines())


def test_an_export_makes_no_file_that_is_hidden_or_an_option_and_follows_no_link(
    evil: Session, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [file_name(name) for name in ("-rf", "..", ".profile", "a b", "naïve")] == [
        "rf.safetensors", "trial.safetensors", "profile.safetensors", "a-b.safetensors", "naïve.safetensors",
    ]  # fmt: skip
    prey, prepared = tmp_path / "prey", tmp_path / "mine.safetensors"
    prepared.symlink_to(prey)
    with pytest.raises(SystemExit):
        main(["export", EVIL, "--out", str(prepared), "--dsn", evil.dsn])
    assert "mine.safetensors exists already" in capsys.readouterr().err
    assert not prey.exists()
    # A file without end is not read to its end.
    monkeypatch.setattr(exports, "MOST_BYTES", 1000)
    with pytest.raises(SystemExit):
        main(["import", "/dev/zero", "--dsn", evil.dsn])
    assert "expected a trial of at most 1000 bytes" in capsys.readouterr().err
