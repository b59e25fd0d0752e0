"""Two people use the console of a private server. Both have a password, and one of them is hostile.

Anna has a task with a model and looks at it, switches an example off and asks for an answer. Mallory tries other
passwords and roles, locks rows of a task of its own under a flood of forms, and opens many pages at once.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

import psycopg
import pytest

from tests.fixtures.sessions import Session

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

PEOPLE = ("anna", "mallory")
SOON_SECONDS = 3.0
QUICK = '{"max_epochs": 1, "n_configs": 1, "architectures": ["linear"]}'
CONSOLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
from easeml_db.cli import main
main()
"""


class Visitor:
    """Somebody's browser: it knows the address of the console that was printed, and keeps the cookie."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._host, self._port, self._cookie = parts.hostname or "", parts.port, ""
        self._key = parse_qs(parts.query)["key"][0]

    def ask(self, path: str, form: dict[str, str] | None = None) -> tuple[int, str]:
        """Return status and text of a page, or of the answer to a form."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=120)
        headers = {"Cookie": self._cookie, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request("GET" if form is None else "POST", path, urlencode(form or {}), headers)
        answer = connection.getresponse()
        self._cookie = (answer.headers["Set-Cookie"] or self._cookie).partition(";")[0]
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def log_in(self, role: str, password: str) -> int:
        """Fill the form in; return the status of the answer."""
        return self.ask("/login", {"key": self._key, "role": role, "password": password})[0]

    def form_token(self, path: str) -> str:
        """Return what the forms of a page send."""
        found = re.search(r'name="form_token" value="([^"]+)"', self.ask(path)[1])
        assert found
        return found[1]


@pytest.fixture(scope="module")
def root(server: Embedded) -> Iterator[Session]:
    """The private server of `easeml up`; an administrator has made two tenants with passwords, and each a task."""
    with Session.open(server.dsn()) as session:
        for name in PEOPLE:
            session.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret of {name}'")  # type: ignore[arg-type]
            session.execute("SELECT easeml.create_tenant(%s)", [name])
            session.execute(f"CREATE SCHEMA of_{name} AUTHORIZATION {name}")  # type: ignore[arg-type]
            person = session.as_role(name)
            person.execute(
                "SELECT easeml.create_task('work', 'Input = [2] Output = [2]', schema => %s, run_options => %s,"
                " run_after_examples => 60)",
                [f"of_{name}", QUICK],
            )
            for n in range(80 if name == "anna" else 1):
                person.execute("SELECT easeml.feed('work', ARRAY[%s, 1]::real[], %s)", [n % 2, str(n % 2)])
        yield session


@pytest.fixture(scope="module")
def address(root: Session, server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`easeml console` beside it, with the defaults of a user; a port of its own, since tests share a machine."""
    from tests.attack.faces.test_console_connections import free_port

    command = [sys.executable, "-c", CONSOLE, "console", "--port", str(free_port())]
    environment = {name: value for name, value in os.environ.items() if name != "EASEML_DSN"}
    process = subprocess.Popen(
        command, env={**environment, "EASEML_DATA": str(server.folder)}, stdout=subprocess.PIPE, text=True,
        cwd=tmp_path_factory.mktemp("home"),
    )  # fmt: skip
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_two_people_use_the_console_and_one_of_them_is_hostile(root: Session, address: str) -> None:
    anna, mallory = Visitor(address), Visitor(address)
    for role, password in (("anna", "guess"), ("anna", ""), ("postgres", "guess"), ("easeml_service", "")):
        assert mallory.log_in(role, password) == 403, role
    assert anna.log_in("anna", "secret of anna") == 302
    assert mallory.log_in("mallory", "secret of mallory") == 302

    root.wait_until("SELECT count(*) = 1 FROM easeml.leaderboard WHERE tenant = 'anna' AND status = 'finished'")
    numbers = {row["tenant"]: row["task_id"] for row in root.rows("SELECT tenant, task_id FROM easeml.tasks")}
    place, hers = f"/tasks/{numbers['anna']}", f"/tasks/{numbers['mallory']}"
    assert mallory.ask(place)[0] == 404
    assert anna.ask(place)[0] == 200, "the first page with curves loads what draws them"

    flood = {"form_token": mallory.form_token(hers + "/refine"), "example_id": "1", "is_on": "false"}
    with psycopg.connect(root.dsn, user="mallory") as held, ThreadPoolExecutor(48) as pool:
        held.execute(f"UPDATE easeml_tasks.task_{numbers['mallory']} SET is_on = is_on WHERE example_id = 1")
        answers = [pool.submit(mallory.ask, hers + "/switch", flood) for _ in range(24)]
        answers += [pool.submit(mallory.ask, "/") for _ in range(24)]
        work_as_usual(anna, place)
        assert {answer.result()[0] for answer in answers} <= {200, 400, 503}
        held.rollback()
    assert root.value(f"SELECT count(*) FROM easeml_tasks.task_{numbers['anna']} WHERE NOT is_on") == 1
    assert mallory.ask("/")[0] == 200, "it is let in again when its flood is over"


def work_as_usual(anna: Visitor, place: str) -> None:
    """Look at pages, switch an example off and ask for an answer; each page comes soon."""
    token = anna.form_token(place + "/refine")
    visits: list[tuple[str, dict[str, str] | None, int]] = [
        ("/", None, 200),
        (place, None, 200),
        (place + "/refine", None, 200),
        (place + "/switch", {"form_token": token, "example_id": "1", "is_on": "false"}, 302),
        ("/runs", None, 200),
    ]
    for path, form, status in visits:
        started = time.monotonic()
        found, text = anna.ask(path, form)
        assert found == status, text
        assert time.monotonic() - started < SOON_SECONDS, path
    found, text = anna.ask(place + "/infer", {"form_token": token, "input": "[1, 1]"})
    assert found == 200, text
