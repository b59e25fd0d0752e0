"""Imports the bundle of docs/dashboards into a real Superset, and looks at it in a browser, with a run under way.

    python tests/dashboards/check.py FOLDER

FOLDER takes two gigabytes: an environment with apache-superset, its database, a private server on the port that the
bundle names, and dashboard.png to look at. It needs Chromium. What is there already is used again.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

import psycopg
import yaml

CLONE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CLONE))

from easeml_db.local.server import Embedded  # noqa: E402 - the clone is no package, and this file a program
from easeml_db.local.waiting import running_coordinator  # noqa: E402
from tests.chromium import Browser, chromium  # noqa: E402

BUNDLE = CLONE / "docs" / "dashboards" / "superset"
# It imports rich and cachetools without asking for them, and later flask-caching passes what its cache does not take.
PACKAGES = ("apache-superset==6.1.0", "flask-caching<2.4", "rich", "cachetools", "psycopg2-binary")
ROLE, SECRET = "dashboard", "secret"
PORT = 8399
SITE = f"http://127.0.0.1:{PORT}"
PATIENCE_SECONDS = 300.0
CONFIG = """
SECRET_KEY = "of this check alone"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
WTF_CSRF_ENABLED = TALISMAN_ENABLED = False
"""
WORK = """
CREATE ROLE dashboard LOGIN PASSWORD 'secret';
GRANT easeml_reader TO dashboard;
CREATE TABLE flats AS
    SELECT i AS id, i % 37 AS area, i % 5 AS rooms, CASE WHEN i % 37 < 18 THEN 'small' ELSE 'large' END AS kind
    FROM generate_series(1, 4000) i;
SELECT easeml.create_dataset('flats', 'flats', '{area,rooms}', 'kind', n_partitions => 2);
SELECT easeml.select_models('flats', '{linear,mlp}', procedure => 'random', n_configs => 4, max_epochs => 6);
"""
LONG = "SELECT easeml.select_models('flats', '{mlp}', procedure => 'random', n_configs => 2, max_epochs => 5000)"
SHOWN = "[...document.querySelectorAll('[data-test=chart-grid-component]')]"
LOADING = "document.querySelectorAll('[data-test=loading-indicator], .loading').length"
ALERTS = "[...document.querySelectorAll('[role=alert]')].map(each => each.innerText)"
NOTHING = "No results were returned"


def main() -> None:
    """Do all of it; end with what is wrong, if anything is."""
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.chmod(folder, 0o755)  # root's server runs as another user, who must be able to enter it
    superset = Superset(folder)
    superset.install()
    server = Embedded(folder / "server")
    server.start(port=_port_of_the_bundle())
    try:
        server.prepare(n_slots=2)
        with running_coordinator(server):
            _work(server)
            superset.import_bundle()
            with superset.serving(), chromium(folder / "profile") as browser:
                _look(browser, superset, folder / "dashboard.png")
    finally:
        server.remove()


def _port_of_the_bundle() -> int:
    (found,) = (BUNDLE / "databases").glob("*.yaml")
    return int(urllib.parse.urlsplit(yaml.safe_load(found.read_text(encoding="utf-8"))["sqlalchemy_uri"]).port or 0)


def _work(server: Embedded) -> None:
    """A run that has ended, and one under way."""
    with psycopg.connect(server.dsn(), autocommit=True) as session:
        session.execute(WORK)
        while session.execute("SELECT FROM easeml.runs WHERE is_open").fetchall():
            time.sleep(0.2)
        session.execute(LONG)
        while not session.execute("SELECT FROM easeml.slots WHERE unit_started_at IS NOT NULL").fetchall():
            time.sleep(0.05)


class Superset:
    """A Superset of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._bin = folder, folder / "venv" / "bin"
        config = folder / "superset_config.py"
        config.write_text(CONFIG.format(folder=folder), encoding="utf-8")
        self._environment = os.environ | {
            "SUPERSET_CONFIG_PATH": str(config), "FLASK_APP": "superset.app:create_app()", "PGPASSWORD": SECRET,
            "SUPERSET_HOME": str(folder),
        }  # fmt: skip

    def install(self) -> None:
        """Make its environment and an empty database with a user."""
        if not (self._bin / "superset").exists():
            subprocess.run([sys.executable, "-m", "venv", self._folder / "venv"], check=True)
            subprocess.run([self._bin / "pip", "install", "--quiet", *PACKAGES], check=True)
        (self._folder / "superset.db").unlink(missing_ok=True)
        self._call("db", "upgrade")
        names = ("--username", ROLE, "--firstname", "a", "--lastname", "b", "--email", "a@b.example")
        self._call("fab", "create-admin", *names, "--password", SECRET)
        self._call("init")

    def import_bundle(self) -> None:
        """Import docs/dashboards/superset as connecting.md says."""
        packed = shutil.make_archive(str(self._folder / "superset"), "zip", BUNDLE.parent, BUNDLE.name)
        self._call("import-dashboards", "--path", packed, "--username", ROLE)

    def _call(self, *arguments: str) -> None:
        command = [self._bin / "superset", *arguments]
        done = subprocess.run(command, env=self._environment, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"superset {' '.join(arguments)}: {done.stdout}{done.stderr}")

    @contextmanager
    def serving(self) -> Iterator[None]:
        """It answers as long as the block lasts."""
        command = [self._bin / "superset", "run", "--port", str(PORT), "--with-threads"]
        with open(self._folder / "superset.log", "wb") as log:
            process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < deadline:
                try:
                    urllib.request.urlopen(f"{SITE}/health")
                    break
                except OSError:
                    time.sleep(1.0)
            yield
        finally:
            process.terminate()
            process.wait()

    def cookies(self) -> CookieJar:
        """Log in; return what a browser keeps of it."""
        jar = CookieJar()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        form = urllib.parse.urlencode({"username": ROLE, "password": SECRET}).encode()
        opener.open(f"{SITE}/login/")
        opener.open(f"{SITE}/login/", form)
        return jar


def _look(browser: Browser, superset: Superset, picture: Path) -> None:
    """Open the dashboard; say what its charts show, and write the picture."""
    for cookie in superset.cookies():
        browser.call("Network.setCookie", name=cookie.name, value=cookie.value, url=SITE)
    # As tall as the dashboard: Superset draws no chart that cannot be seen.
    browser.call("Emulation.setDeviceMetricsOverride", width=1600, height=1500, deviceScaleFactor=1, mobile=False)
    browser.open(f"{SITE}/superset/dashboard/easeml/?standalone=1")
    n_charts, n_quiet = len(list((BUNDLE / "charts").glob("*.yaml"))), 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and n_quiet < 5:
        time.sleep(1.0)
        is_drawn = browser.value(f"{SHOWN}.length") == n_charts and not browser.value(LOADING)
        n_quiet = n_quiet + 1 if is_drawn else 0
    picture.write_bytes(base64.b64decode(browser.call("Page.captureScreenshot")["data"]))
    shown: list[str] = browser.value(f"{SHOWN}.map(each => each.innerText)")
    alerts: list[str] = browser.value(ALERTS)
    print(json.dumps({"charts": [each[:160] for each in shown], "alerts": alerts, "picture": str(picture)}, indent=2))
    if len(shown) != n_charts or alerts or any(NOTHING in each for each in shown):
        sys.exit(f"expected {n_charts} charts, each with something in it")


if __name__ == "__main__":
    main()
