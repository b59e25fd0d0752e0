"""What tenants name, write and provoke cannot steer the terminal of whoever looks, nor fake a line, piped or not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from easeml_db.cli import commands
from easeml_db.cli.terminal.output import print_error
from easeml_db.cli.terminal.plain_table import PlainTable
from easeml_db.errors import NotFound
from easeml_db.words.visible_text import visible, visible_value

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eknab\u2066\nrun 1 finished\r[link=http://x]here[/link]\ufeff"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
CLI = Path(__file__).parents[3] / "easeml_db" / "cli"


@given(st.text())
def test_visible_text_is_one_line_that_steers_nothing_and_letters_stay(text: str) -> None:
    shown = visible(text)
    assert not STEERING.search(shown)
    assert len(shown.splitlines()) <= 1
    assert visible(shown) == shown
    assert text.isprintable() <= (shown == text)


def test_words_of_many_scripts_are_left_alone() -> None:
    words = ["naïve", "数据", "बिना", "נתונים", "a\u200cb", "\U0001f468\u200d\U0001f469", "a b", "x\\n"]
    assert [visible(word) for word in words] == words
    assert visible("\x1b[0m\u202e\n\t") == "\\x1b[0m\\u202e\\n\\t"
    assert visible_value({"a\n": ["\x07", 1, None, {"b": "\x1b"}]}) == {"a\\n": ["\\x07", 1, None, {"b": "\\x1b"}]}


def test_errors_and_what_lies_behind_them_are_lines_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(NotFound(f"there is no {EVIL}", detail=f"one\neasyml: {EVIL}", hint=EVIL))
    lines = capsys.readouterr().err.splitlines()
    assert not STEERING.search("".join(lines))
    assert [line[:3] for line in lines if not line.startswith(("easeml: ", "  "))] == []


def test_brackets_in_a_cell_are_no_markup() -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    table = PlainTable()
    table.add_column("name")
    table.add_row("[link=http://x]here[/link] [red]x[/red]")
    with console.file:
        console.print(table)
    assert "[link=http://x]here[/link] [red]x[/red]" in console.export_text()


def test_commands_print_through_one_place() -> None:
    """What goes around it would go around the escapes, too."""
    around = {
        path.name: re.findall(r"\bclick\.s?echo\(|(?<![.\w])print\(|(?<![.\w])Table\((?=box)", path.read_text())
        for path in CLI.glob("*.py")
        if path.name != "output.py"
    }
    assert not {name: found for name, found in around.items() if found}


# With a server


@pytest.fixture(scope="module")
def evil(module_database: Session) -> Session:
    """A database in which everything that a tenant can name is hostile."""
    root = module_database
    root.execute("CREATE TABLE points AS SELECT i * 0.1 AS x, i % 2 AS y FROM generate_series(1, 40) i")
    root.execute("SELECT easeml.create_dataset(%s, 'points', '{x}', 'y')", [EVIL])
    root.execute("SELECT easeml.select_models(%s, '{linear}', n_configs => 2, max_epochs => 1)", [EVIL])
    root.execute("UPDATE easeml.trials SET status = 'failed', failure_reason = %s", [EVIL])
    root.execute(
        "INSERT INTO easeml.events (tenant, run_id, kind, message)"
        " SELECT tenant, run_id, 'warning', %s FROM easeml.runs",
        [EVIL],
    )
    root.execute("UPDATE easeml.runs SET status = 'running'")
    root.execute("UPDATE easeml.runs SET status = 'failed', failure_reason = %s", [EVIL])
    return root


LISTINGS = (
    *("dataset", "run", "run leaderboard", "run watch", "run arms", "run decisions", "run allocations"),
    *("tenant", "doctor", "slot"),
)
NOTHING_OF_OTHERS = ("run decisions", "run allocations", "tenant", "doctor", "slot")


def shell(session: Session, *arguments: str) -> Any:
    return CliRunner().invoke(commands, [*arguments, "--dsn", session.dsn])


@pytest.mark.parametrize("command", [*LISTINGS, "regret"])
def test_no_listing_steers_the_terminal(evil: Session, command: str) -> None:
    done = shell(evil, *command.split(), *(["--all"] if command == "regret" else []))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "\\x1b" in done.output or command in NOTHING_OF_OTHERS
    assert not STEERING.search(done.output), repr(done.output)
    assert not any(line.startswith("run 1 finished") for line in done.output.splitlines())


def test_json_is_the_data_as_it_is(evil: Session) -> None:
    done = shell(evil, "dataset", "--json")
    assert json.loads(done.stdout)[0]["dataset_name"] == EVIL
    assert not STEERING.search(done.stdout)
    assert "\u202e" not in done.stdout


def test_errors_of_the_server_steer_nothing(evil: Session, capsys: pytest.CaptureFixture[str]) -> None:
    from easeml_db.cli import main

    with pytest.raises(SystemExit):
        main(["dataset", "refresh", EVIL + "?", "--dsn", evil.dsn])
    told = capsys.readouterr()
    assert "\\x1b" in told.err
    assert not STEERING.search(told.err + told.out)


def test_a_report_shows_what_would_reorder_its_lines(evil: Session, tmp_path: Path) -> None:
    done = shell(evil, "run", "report", "--out", str(tmp_path / "run.html"))
    assert done.exit_code == 0, done.output
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    ours = page[: page.index("<script>")]
    assert "\\u202e" in ours or "\\\\u202e" in ours
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b\x07\x9b]", ours)


def test_the_command_line_trusts_no_schema_of_tenants(evil: Session) -> None:
    evil.execute("CREATE ROLE builder; GRANT CREATE ON SCHEMA public TO builder")
    evil.execute(
        "CREATE FUNCTION public.hashtext(name) RETURNS integer LANGUAGE plpgsql AS"
        " $$BEGIN RAISE 'hijacked'; END$$; CREATE TABLE public.pg_roles (hijacked integer)"
    )
    for command in ("slot", "run", "tenant", "doctor"):
        assert "hijacked" not in shell(evil, command).output
    from easeml_db.cli.terminal.connection import database

    with database(evil.dsn) as connection:
        assert connection.execute("SHOW search_path").fetchone() == {"search_path": "pg_catalog, pg_temp"}
    with database(evil.dsn, has_own_names=True) as connection:
        assert "public" in str(connection.execute("SHOW search_path").fetchone())
