"""Who logs in to the console must have proven who it is, and what it then does takes nobody else's pages."""

from __future__ import annotations

import base64
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import psycopg
import pytest

from easeml_db.console.app import make_app
from easeml_db.console.server import make_server
from easeml_db.console.settings import Settings
from easeml_db.local.preparation import prepare_database
from easeml_db.local.server import Embedded
from tests.attack.faces.test_console_connections import free_port
from tests.fixtures.sessions import Session

if TYPE_CHECKING:
    from flask.testing import FlaskClient

N_SLOTS = 1
N_POSTS = 24
SOON_SECONDS = 2.0


class Browser:
    """A browser that keeps its cookie, over a connection of its own for each page."""

    def __init__(self, settings: Settings, role: str, password: str) -> None:
        self._port, self._cookie = settings.port, ""
        told = {"key": settings.key, "role": role, "password": password}
        self.status, _ = self.ask("POST", "/login", told)

    def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> tuple[int, str]:
        """Return status and text of an answer."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=120)
        headers = {"Cookie": self._cookie, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, urlencode(form or {}), headers)
        answer = connection.getresponse()
        self._cookie = (answer.headers["Set-Cookie"] or self._cookie).partition(";")[0]
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def seconds(self, path: str = "/") -> float:
        """Return how long a page takes that must come."""
        started = time.monotonic()
        status, text = self.ask("GET", path)
        assert status == 200, text
        return time.monotonic() - started


@pytest.fixture(scope="module")
def root(module_database: Session) -> Session:
    """Anna and mallory have passwords; mallory has a task with an example."""
    for name in ("anna", "mallory"):
        session = module_database.as_role(name, "easeml_tenant")
        module_database.execute(f"ALTER ROLE {name} PASSWORD 'secret of {name}'")
        module_database.execute(f"CREATE SCHEMA of_{name} AUTHORIZATION {name}")
        session.execute("SELECT easeml.create_task('work', 'Input = [2] Output = [2]', schema => %s)", [f"of_{name}"])
        session.execute("SELECT easeml.feed('work', '{1,2}'::real[], '1')")
    return module_database


@pytest.fixture(scope="module")
def settings(root: Session) -> Iterator[Settings]:
    """A console as `easeml console` starts it."""
    settings = Settings(root.tcp_dsn, port=free_port())
    server = make_server(settings)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield settings
    server.close()


def log_in(dsn: str, role: str, password: str) -> tuple[int, str]:
    settings = Settings(dsn, port=80)
    client: FlaskClient = make_app(settings).test_client()
    answer = client.post("/login", data={"key": settings.key, "role": role, "password": password})
    return answer.status_code, answer.text


@pytest.mark.parametrize("role", ["anna", "postgres", "easeml_service"])
def test_a_socket_that_trusts_lets_nobody_in(root: Session, role: str) -> None:
    for password in ("secret of anna", "wrong", ""):
        status, text = log_in(root.dsn, role, password)
        assert status == 403
    assert "asks role" in text
    assert "pg_hba.conf" in text


def test_a_private_server_is_asked_where_it_asks_for_passwords(private_server: Embedded, root: Session) -> None:
    dsn = private_server.tcp_dsn(root.value("SELECT current_database()"))
    assert log_in(dsn, "anna", "secret of anna")[0] == 302
    for role, password in (("anna", "wrong"), ("anna", ""), ("postgres", "wrong"), ("postgres", "")):
        assert log_in(dsn, role, password)[0] == 403


def test_a_server_that_trusts_over_tcp_lets_nobody_in(own_server: Embedded) -> None:
    rules = own_server.cluster / "pg_hba.conf"
    rules.write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n", encoding="utf-8")
    with Session.open(own_server.dsn(database="postgres")) as session:
        session.execute("CREATE DATABASE easeml")
        session.execute("CREATE ROLE anna LOGIN PASSWORD 'secret of anna'")
        session.execute("SELECT pg_reload_conf()")
    with Session.open(own_server.dsn()) as session:
        prepare_database(session, n_slots=1)
    for role, password in (("anna", "secret of anna"), ("anna", "wrong"), ("postgres", "x")):
        status, text = log_in(own_server.tcp_dsn(), role, password)
        assert (status, "does not prove by SCRAM that it knows it" in text) == (403, True)


@pytest.fixture
def at_once() -> Iterator[Callable[..., None]]:
    """`at_once(do, n)` does something so many times at the same time, in the background until the test ends."""
    with ThreadPoolExecutor(64) as pool:
        yield lambda do, n: [pool.submit(do) for _ in range(n)] and None


def test_a_locked_row_and_many_posts_hold_no_page_of_another(
    root: Session, settings: Settings, at_once: Callable[..., None]
) -> None:
    anna, mallory = (Browser(settings, name, f"secret of {name}") for name in ("anna", "mallory"))
    assert (anna.status, mallory.status) == (302, 302)
    number = root.value("SELECT task_id FROM easeml.tasks WHERE tenant = 'mallory'")
    place = f"/tasks/{number}"
    token = re.search(r'name="form_token" value="([^"]+)"', mallory.ask("GET", place + "/refine")[1])
    assert token
    switch = {"form_token": token[1], "example_id": "1", "is_on": "false"}
    answers: list[tuple[int, str]] = []
    with psycopg.connect(root.dsn, user="mallory") as held:
        held.execute(f"UPDATE easeml_tasks.task_{number} SET is_on = is_on WHERE example_id = 1")
        at_once(lambda: answers.append(mallory.ask("POST", place + "/switch", switch)), N_POSTS)
        started = time.monotonic()
        while time.monotonic() < started + 3:
            assert anna.seconds() < SOON_SECONDS
            at_once(lambda: answers.append(mallory.ask("POST", place + "/switch", switch)), 4)
        held.rollback()
    assert {status for status, _ in answers} <= {302, 400, 503}, "the last ones may find the row free"
    refused = "".join(text for status, text in answers if status == 400)
    assert "an open transaction is in the way" in refused


def bomb(n_iterations: int) -> str:
    """A stored password whose check takes the client so many rounds."""
    salt, key = (base64.b64encode(os.urandom(n)).decode() for n in (16, 32))
    return f"SCRAM-SHA-256${n_iterations}:{salt}${key}:{key}"


def test_a_login_that_takes_for_ever_keeps_nobody_out(
    root: Session, settings: Settings, at_once: Callable[..., None]
) -> None:
    """The server hands a client the number of rounds that a role has stored for itself."""
    mallory = root.as_role("mallory_2")
    mallory.execute(f"ALTER ROLE mallory_2 PASSWORD '{bomb(1_500_000)}'")  # type: ignore[arg-type]
    at_once(lambda: Browser(settings, "mallory_2", "x"), N_POSTS)
    time.sleep(0.5)
    anna = Browser(settings, "anna", "secret of anna")
    assert anna.status == 302
    assert anna.seconds() < 2 * SOON_SECONDS
