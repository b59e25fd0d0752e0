"""The console's pages: names of tenants turn no line around, and what is uploaded does not fill its memory."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import pytest
from flask.testing import FlaskClient
from PIL import Image
from werkzeug.datastructures import FileStorage
from werkzeug.test import encode_multipart

from easeml_db.console.app import MOST_FORM_BYTES, MOST_LOGIN_BYTES, make_app
from easeml_db.console.settings import Settings

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
EVIL = "\u202eknab\u2066\x1b[2J\u200b\ufeffx"
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff]")


@pytest.fixture(scope="module")
def pages(module_database: Session) -> FlaskClient:
    """A console into which mallory has logged in, who has given hostile names to all that has a name."""
    root, mallory = module_database, module_database.as_role("mallory", "easeml_tenant")
    root.execute("ALTER ROLE mallory PASSWORD 'mallory'")
    root.execute("CREATE SCHEMA mallory AUTHORIZATION mallory")
    for name, program in ((EVIL, "Input = [2] Output = [2]"), ("pictures", "Input = [8,8,3] Output = [2]")):
        create = "SELECT easeml.create_task(%s, %s, schema => 'mallory', classes => %s)"
        mallory.execute(create, [name, program, [EVIL, "other"]])
    mallory.execute("SELECT easeml.feed(%s, '{1,2}'::real[], %s)", [EVIL, EVIL])
    mallory.execute("CREATE TABLE mine AS SELECT sin(i) AS x, i % 2 = 0 AS y FROM generate_series(1, 40) i")
    mallory.execute("SELECT easeml.create_dataset(%s, 'mine', '{x}', 'y', n_partitions => 1)", [EVIL + "!"])
    mallory.execute("SELECT easeml.select_models(%s, '{linear}', n_configs => 1, max_epochs => 1)", [EVIL + "!"])
    root.execute("UPDATE easeml.trials SET status = 'failed', failure_reason = %s", [EVIL])
    root.execute("UPDATE easeml.tasks SET problem = %s", [EVIL])
    settings = Settings(root.tcp_dsn, port=80)
    client = make_app(settings).test_client()
    assert (
        client.post("/login", data={"key": settings.key, "role": "mallory", "password": "mallory"}).status_code == 302
    )
    return client


def number(root: Session, name: str) -> int:
    return int(root.value("SELECT task_id FROM easeml.task_status WHERE task_name = %s", name))


def test_no_page_turns_a_line_around(module_database: Session, pages: FlaskClient) -> None:
    task, run = number(module_database, EVIL), module_database.value("SELECT max(run_id) FROM easeml.runs")
    for place in ("/", f"/tasks/{task}", f"/tasks/{task}/refine", f"/tasks/{task}/infer", "/runs", f"/runs/{run}"):
        answer = pages.get(place)
        assert answer.status_code == 200, answer.text
        assert "\\u202eknab" in answer.text
        assert not HIDDEN.search(answer.text), place


def form_token(page: str) -> str:
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    assert found
    return found[1]


def bomb() -> bytes:
    """A few hundred bytes that are 64 million pixels."""
    file = io.BytesIO()
    Image.new("1", (8000, 8000)).save(file, "TIFF", compression="group4")
    return file.getvalue()


def test_a_small_file_of_very_many_pixels_is_refused_before_it_is_unpacked(
    module_database: Session, pages: FlaskClient
) -> None:
    place = f"/tasks/{number(module_database, 'pictures')}/infer"
    told = {"form_token": form_token(pages.get(place).text), "picture": (io.BytesIO(bomb()), "x.tif")}
    answer = pages.post(place, data=told)
    assert answer.status_code == 400
    assert "8000 by 8000 pixels in" in answer.text
    assert "made to fill the memory" in answer.text


def test_json_that_nests_very_deep_is_an_error_of_the_form(module_database: Session, pages: FlaskClient) -> None:
    place = f"/tasks/{number(module_database, EVIL)}/infer"
    answer = pages.post(place, data={"form_token": form_token(pages.get(place).text), "input": "[" * 100_000})
    assert answer.status_code == 400
    assert "nested too deep" in answer.text


def test_a_form_larger_than_any_page_sends_is_refused_before_it_is_parsed(
    module_database: Session, pages: FlaskClient
) -> None:
    place = f"/tasks/{number(module_database, EVIL)}/infer"
    told = {"form_token": form_token(pages.get(place).text), "input": "[" + "[]," * (MOST_FORM_BYTES // 3) + "[]]"}
    assert pages.post(place, data=told).status_code == 413
    assert posted_parts(pages, place, told) == 413
    picture = FileStorage(io.BytesIO(bytes(2 * MOST_FORM_BYTES)), "x.png")
    assert posted_parts(pages, place, {"form_token": told["form_token"], "picture": picture}) == 400, (
        "files may be larger"
    )


def posted_parts(pages: FlaskClient, place: str, told: dict[str, Any]) -> int:
    boundary, body = encode_multipart(told)
    return pages.post(place, data=body, content_type=f"multipart/form-data; boundary={boundary}").status_code


@pytest.mark.parametrize("way", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_who_has_no_key_has_nothing_parsed(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    client = make_app(Settings("", port=80)).test_client()
    monkeypatch.setattr("werkzeug.formparser.FormDataParser.parse", lambda *given: pytest.fail("it was parsed"))
    assert client.post("/login", data=b"a&" * MOST_LOGIN_BYTES, content_type=way).status_code == 413
    assert client.post("/tasks/1/infer", data=b"a&" * MOST_LOGIN_BYTES, content_type=way).status_code == 302
