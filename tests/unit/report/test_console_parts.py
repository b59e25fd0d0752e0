"""Parts of the console without a server: logins, addresses, curves."""

from __future__ import annotations

from base64 import b64decode
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict

from easeml_db.cli.search.console import console
from easeml_db.console.app import make_app
from easeml_db.console.inputs import example_input
from easeml_db.console.logins import IDLE_SECONDS, MOST_FAILURES, MOST_LOGINS, Logins, is_same
from easeml_db.console.pictures import curve_sources
from easeml_db.console.rows import CONNECT_SECONDS, NO_FILE, NO_TICKETS, dsn_of_role
from easeml_db.console.settings import Settings
from easeml_db.errors import InvalidArgument
from easeml_db.report.charts import DARK
from easeml_db.report.datasets import HUES, chart_data
from tests.unit.report.test_report import NASTY, rows_of, trial


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_login_ends_when_it_was_idle_too_long_or_is_removed() -> None:
    clock = Clock()
    logins = Logins(clock)
    token = logins.add("ada", "user=ada")
    clock.seconds += IDLE_SECONDS - 1
    assert logins.of(token) is not None
    clock.seconds += IDLE_SECONDS - 1
    assert logins.of(token) is not None, "it was seen meanwhile"
    clock.seconds += IDLE_SECONDS + 1
    assert logins.of(token) is None
    other = logins.add("ada", "user=ada")
    logins.remove(other)
    assert logins.of(other) is None
    assert logins.of(None) is None
    assert logins.of("") is None


def test_the_oldest_login_gives_way_and_tokens_differ() -> None:
    clock = Clock()
    logins = Logins(clock)
    tokens = []
    for _ in range(MOST_LOGINS + 1):
        clock.seconds += 1
        tokens.append(logins.add("ada", "user=ada"))
    assert logins.of(tokens[0]) is None
    assert logins.of(tokens[1]) is not None
    assert len(set(tokens)) == len(tokens)
    first, second = (logins.of(token) for token in tokens[1:3])
    assert first is not None
    assert second is not None
    assert first.form_token != second.form_token


def test_many_failures_block_logins_for_a_minute() -> None:
    clock = Clock()
    logins = Logins(clock)
    for _ in range(MOST_FAILURES):
        assert not logins.is_blocked("anna")
        logins.fail("anna")
    assert logins.is_blocked("anna")
    clock.seconds += 61
    assert not logins.is_blocked("anna")


def test_who_fails_as_one_role_keeps_no_other_out() -> None:
    logins = Logins(Clock())
    for _ in range(10 * MOST_FAILURES):
        logins.fail("mallory")
    assert logins.is_blocked("mallory")
    assert not logins.is_blocked("anna")


def test_who_logs_in_again_and_again_ends_nobody_elses_login() -> None:
    clock = Clock()
    logins = Logins(clock)
    anna = logins.add("anna", "user=anna")
    first, *others = (_later(clock, logins) for _ in range(3 * MOST_LOGINS))
    assert logins.of(anna) is not None
    assert logins.of(first) is None
    assert logins.of(others[-1]) is not None


def _later(clock: Clock, logins: Logins) -> str:
    clock.seconds += 1
    return logins.add("mallory", "user=mallory")


def test_secrets_are_compared_whole() -> None:
    assert is_same("a", "a")
    assert not is_same("", "a")
    assert not is_same(None, "a")
    assert not is_same("\N{GREEK SMALL LETTER ALPHA}", "a")


@pytest.mark.parametrize(
    ("host", "is_loopback", "asked"),
    [
        ("127.0.0.1", True, "localhost:1"),
        ("::1", True, "[::1]:1"),
        ("localhost", True, "127.0.0.1:1"),
        ("0.0.0.0", False, "0.0.0.0:1"),
        ("example.org", False, "example.org:1"),
    ],
)
def test_only_this_machine_is_loopback_and_other_names_are_not_answered(
    host: str, is_loopback: bool, asked: str
) -> None:
    settings = Settings("", host, 1)
    assert settings.is_loopback is is_loopback
    assert asked in settings.hosts
    assert "evil.example:1" not in settings.hosts
    assert "localhost" not in settings.hosts
    assert ("localhost" in Settings("", host, 80).hosts) is is_loopback
    assert settings.key in settings.address
    assert Settings("").key != settings.key


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_an_address_that_no_browser_can_ask_is_refused(host: str) -> None:
    found = CliRunner().invoke(console, ["--remote", "--host", host, "--dsn", "dbname=nowhere"]).exception
    assert isinstance(found, InvalidArgument)
    assert found.hint == "Name the address that browsers will use."


@pytest.mark.parametrize("dsn", ["service=shop", "service=shop host=db", "postgresql:///?service=shop"])
def test_a_service_is_refused_since_it_may_log_somebody_else_in(dsn: str) -> None:
    found = CliRunner().invoke(console, ["--host", "192.0.2.1", "--remote", "--dsn", dsn]).exception
    assert isinstance(found, InvalidArgument)
    assert "the console takes no service, and got service=shop" in str(found)
    assert "host, port and dbname" in (found.hint or "")


def test_a_role_gets_nothing_that_lets_somebody_else_in() -> None:
    own = "host=/run port=5 dbname=d user=boss password=secret passfile=/root/.pgpass options='-c role=boss'"
    given = conninfo_to_dict(dsn_of_role(own, "ada 'x' dbname=other", "pass word"))
    assert given == {
        "host": "/run", "port": "5", "dbname": "d", "user": "ada 'x' dbname=other", "password": "pass word",
        "passfile": NO_FILE, "sslcert": NO_FILE, "sslkey": NO_FILE, "gssencmode": "disable", **NO_TICKETS,
        "connect_timeout": CONNECT_SECONDS,
    }  # fmt: skip
    assert conninfo_to_dict(dsn_of_role(own + " require_auth=md5", "ada", ""))["require_auth"] == "md5"
    assert "password" not in conninfo_to_dict(dsn_of_role(own, "ada", ""))


@pytest.mark.parametrize(
    ("role", "password"), [("", "x"), ("\0", "x"), ("boss\0", "x"), ("boss", "\0"), ("boss", "x\0")]
)
def test_a_role_that_the_driver_would_take_for_another_is_refused(role: str, password: str) -> None:
    with pytest.raises(InvalidArgument, match="expected the name of a role, and no NUL"):
        dsn_of_role("host=/run dbname=d", role, password)
    settings = Settings("host=/nowhere", port=80)
    told = {"key": settings.key, "role": role, "password": password}
    answer = make_app(settings).test_client().post("/login", data=told)
    assert answer.status_code == 403
    assert "expected the name of a role" in answer.text


CURVES = tuple(
    {"trial_id": trial_id, "epoch": epoch, "training_loss": 0.5, "validation_metric": 0.9}
    for trial_id in (1, 2)
    for epoch in (1, 2, 3)
)


def test_learning_curves_are_the_reports_as_images_that_run_nothing() -> None:
    data = chart_data(rows_of((), curves=CURVES, trials=[trial(1, architecture=NASTY), trial(2)]), n_top=50)
    (title, light, dark), (loss, *_) = curve_sources(data)
    assert (title, loss) == ("Validation accuracy by epoch", "Training loss by epoch")
    kind, _, content = light.partition(",")
    assert kind == "data:image/svg+xml;base64"
    drawn = b64decode(content).decode()
    assert fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert "<script" not in drawn
    assert "NaN" not in drawn
    assert HUES[0] in drawn
    assert DARK[HUES[0]] in b64decode(dark.partition(",")[2]).decode()


def test_without_measures_there_are_no_curves() -> None:
    assert curve_sources(chart_data(rows_of((), curves=()), n_top=50)) == []


def entry(name: str, shape: list[int], n_values: int, role: str | None = None) -> dict[str, Any]:
    return {"name": name, "shape": shape, "n_values": n_values, **({"role": role} if role else {})}


@pytest.mark.parametrize(
    ("inputs", "recursive", "example"),
    [
        ([entry("field1", [3], 3)], [], "[0, 0, 0]"),
        ([entry("field1", [2, 2], 4)], [], "[[0, 0], [0, 0]]"),
        ([entry("field1", [64, 64, 3], 12288)], [], "Tensor[64,64,3]"),
        ([entry("a", [1], 1), entry("b", [50], 50)], [], '{"a": [0], "b": Tensor[50]}'),
        ([entry("field1", [2], 2, "object")], ["next"], "[[0, 0], [0, 0]]"),
        (
            [
                entry("word", [2], 2, "object"),
                entry("left", [], 1, "link"),
                entry("right", [], 1, "link"),
            ],
            ["left", "right"],
            '{"word": [0, 0], "left": {"word": [0, 0]}, "right": null}',
        ),
    ],
)
def test_the_form_shows_what_goes_in(inputs: list[dict[str, Any]], recursive: list[str], example: str) -> None:
    assert example_input(inputs, recursive) == example
