"""The console in a real browser: every page, light and dark, wide and narrow; names of markup; another's pages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from werkzeug.serving import make_server

from easeml_db.console.app import make_app
from easeml_db.console.settings import Settings
from tests.chromium import CHROMIUM, Browser, chromium
from tests.integration.service.test_console import MARKUP, ada, number

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

__all__ = ["ada"]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; test_console.py asks the same pages")
N_SLOTS = 1
LOOKS = [(1280, "light"), (1280, "dark"), (500, "light"), (500, "dark")]


@pytest.fixture(scope="module")
def address(module_database: Session) -> Iterator[str]:
    """The login page, whose address holds the key, of a console that listens on a port of its own."""
    server = make_server("127.0.0.1", 0, lambda environ, start: [], threaded=True)
    settings = Settings(module_database.tcp_dsn, port=server.port)
    server.app = make_app(settings)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield settings.address
    server.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def browser(ada: Session, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser in which ada has logged in through the form."""
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        found.open(address)
        for field in ("role", "password"):
            found.value(f"document.querySelector('input[name={field}]').value = 'ada'")
        found.submit("form")
        assert "galaxies" in found.value("document.body.innerText")
        yield found


def root_of(address: str) -> str:
    return address.partition("/login")[0]


def paths(session: Session) -> dict[str, str]:
    galaxies, markup = number(session, "galaxies"), number(session, MARKUP)
    run = session.value("SELECT max(run_id) FROM easeml.run_status")
    return {
        "tasks": "/",
        "task": f"/tasks/{galaxies}",
        "examples": f"/tasks/{galaxies}/refine",
        "infer": f"/tasks/{galaxies}/infer",
        "markup": f"/tasks/{markup}",
        "markup_examples": f"/tasks/{markup}/refine",
        "runs": "/runs",
        "run": f"/runs/{run}",
    }


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_page_fits_its_window_and_takes_the_colours_of_the_system(
    ada: Session, browser: Browser, address: str, width: int, scheme: str, tmp_path: Path
) -> None:
    browser.look(width=width, scheme=scheme)
    for name, path in paths(ada).items():
        browser.open(root_of(address) + path)
        assert "That did not work" not in browser.value("document.body.innerText"), name
        assert browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name
        assert browser.value("document.querySelectorAll('script').length") == 0, name
        browser.picture(tmp_path / f"{name}.png")
        assert browser.value("[...document.images].every(each => each.naturalWidth > 0)"), name
        with Image.open(tmp_path / f"{name}.png") as picture:
            corner = picture.convert("L").getpixel((picture.width - 2, 400))
            assert (corner > 127) == (scheme == "light"), name


def test_names_that_are_markup_are_text(ada: Session, browser: Browser, address: str) -> None:
    for path in ("/", f"/tasks/{number(ada, MARKUP)}", f"/tasks/{number(ada, MARKUP)}/refine"):
        browser.open(root_of(address) + path)
        assert browser.value(f"document.body.innerText.includes({json.dumps(MARKUP)})"), path
        assert browser.value("document.querySelectorAll('script, main b').length") == 0, path


def test_pages_of_another_tenant_are_refused(
    ada: Session, module_database: Session, browser: Browser, address: str
) -> None:
    secret = module_database.value("SELECT task_id FROM easeml.tasks WHERE task_name = 'secret'")
    for path in (f"/tasks/{secret}", f"/tasks/{secret}/refine", f"/tasks/{secret}/infer"):
        browser.open(root_of(address) + path)
        said = browser.value("document.body.innerText")
        assert "that you can see" in said, path
        assert "secret" not in said, path


def test_a_switch_is_clicked_and_stays(ada: Session, browser: Browser, address: str) -> None:
    browser.open(f"{root_of(address)}/tasks/{number(ada, 'galaxies')}/refine")
    browser.submit("form[action$='/switch']")
    newest = "SELECT is_on FROM of_ada.galaxies_refine ORDER BY example_id DESC LIMIT 1"
    assert ada.value(newest) is False
    browser.submit("form[action$='/switch']")
    assert ada.value(newest) is True
