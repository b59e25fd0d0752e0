"""The console in front of a server: who comes in, what each role sees, and what a hostile page or name cannot do."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from flask.testing import FlaskClient
from PIL import Image

from easeml_db.console.app import make_app
from easeml_db.console.settings import Settings
from tests.integration.tasks.test_tasks import IMAGES, create, feed_pictures

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.sessions import Session

N_SLOTS = 1
MARKUP = """<script>alert("x")</script>' & <b>"""
QUICK = psycopg.types.json.Jsonb({"max_epochs": 1, "n_configs": 1, "architectures": ["mlp"]})


@pytest.fixture(scope="module")
def settings(module_database: Session) -> Settings:
    """A console for the database of the module, at the address that the test client asks."""
    return Settings(module_database.tcp_dsn, port=80)


@pytest.fixture(scope="module")
def ada(module_coordinated: Session) -> Session:
    """A tenant with a task that has a model, and one whose name and class are markup; bert has another."""
    ada, bert = (module_coordinated.as_role(name, "easeml_tenant") for name in ("ada", "bert"))
    for name in ("ada", "bert"):
        module_coordinated.execute(f"ALTER ROLE {name} PASSWORD '{name}'")
        module_coordinated.execute(f"CREATE SCHEMA of_{name} AUTHORIZATION {name}")
    create(ada, "galaxies", schema="of_ada", classes=["a", "b", "c"], run_options=QUICK, run_after_examples=100)
    create(ada, MARKUP, "Input = [2] Output = [2]", schema="of_ada", classes=[MARKUP, "other"])
    create(bert, "secret", "Input = [2] Output = [2]", schema="of_bert")
    feed_pictures(ada, "of_ada.galaxies", 120)
    ada.execute("SELECT easeml.feed(%s, '{1,2}'::real[], %s)", [MARKUP, MARKUP])
    bert.execute("SELECT easeml.feed('secret', '{1,2}'::real[], '1')")
    ada.wait_until("SELECT count(*) = 1 FROM easeml.task_report('galaxies') WHERE event LIKE 'first model%%'")
    return ada


@pytest.fixture
def browser(settings: Settings) -> Callable[..., FlaskClient]:
    """`browser("ada")` has logged in; `browser()` has not."""

    def open_browser(role: str | None = None) -> FlaskClient:
        client = make_app(settings).test_client()
        if role:
            answer = client.post("/login", data={"key": settings.key, "role": role, "password": role})
            assert answer.status_code == 302, answer.text
        return client

    return open_browser


def number(session: Session, name: str) -> int:
    found: int = session.value("SELECT task_id FROM easeml.task_status WHERE task_name = %s", name)
    return found


def token(page: str) -> str:
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    assert found
    return found[1]


def test_nobody_comes_in_without_the_key_or_with_a_wrong_role(
    ada: Session, browser: Callable[..., FlaskClient], settings: Settings
) -> None:
    client = browser()
    assert client.get("/").headers["Location"] == "/login"
    assert client.get("/login").status_code == 403
    assert client.post("/login", data={"role": "ada"}).status_code == 403
    assert client.post("/login", data={"role": "ada", "key": "guess"}).status_code == 403
    assert client.get("/login", query_string={"key": settings.key}).status_code == 200
    refused = client.post("/login", data={"key": settings.key, "role": MARKUP, "password": "x"})
    assert refused.status_code == 403
    assert "<script>" not in refused.text
    for _ in range(10):
        assert client.post("/login", data={"key": settings.key, "role": "nobody"}).status_code == 403
    assert client.post("/login", data={"key": settings.key, "role": "nobody"}).status_code == 429
    assert client.post("/login", data={"key": settings.key, "role": "ada", "password": "ada"}).status_code == 302, (
        "no failure was hers"
    )


def test_the_cookie_is_for_this_site_and_no_script_and_pages_have_none(
    ada: Session, browser: Callable[..., FlaskClient], settings: Settings
) -> None:
    answer = browser().post("/login", data={"key": settings.key, "role": "ada", "password": "ada"})
    assert re.search(r"HttpOnly; Path=/; SameSite=Strict", answer.headers["Set-Cookie"])
    client = browser("ada")
    for path in ("/", "/runs", "/runs/1", f"/tasks/{number(ada, 'galaxies')}", "/nowhere"):
        answer = client.get(path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script" not in policy
        assert "unsafe" not in policy
        assert not re.search(r"<script|style=|\son\w+=|https?://", answer.text), path
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_another_name_of_the_host_is_not_answered(ada: Session, browser: Callable[..., FlaskClient]) -> None:
    """A page elsewhere whose name is made to mean this machine (DNS rebinding) gets nothing."""
    client = browser("ada")
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 421


def test_a_role_sees_its_own_and_names_are_text(ada: Session, browser: Callable[..., FlaskClient]) -> None:
    page = browser("ada").get("/").text
    assert "galaxies" in page
    assert "&lt;script&gt;alert(" in page
    assert "<script>" not in page
    assert "secret" not in page
    own = browser("ada").get(f"/tasks/{number(ada, MARKUP)}/refine").text
    assert "<script>" not in own
    assert "&lt;script&gt;" in own


def test_pages_of_another_tenant_are_not_there(
    module_database: Session, ada: Session, browser: Callable[..., FlaskClient]
) -> None:
    secret = module_database.value("SELECT task_id FROM easeml.tasks WHERE task_name = 'secret'")
    client = browser("ada")
    form_token = token(client.get("/").text)
    for path in ("", "/refine", "/infer", "/examples/1/input.png"):
        assert client.get(f"/tasks/{secret}{path}").status_code == 404, path
    for path, data in (("run", {}), ("switch", {"example_id": "1", "is_on": "false"}), ("infer", {"input": "[1,2]"})):
        answer = client.post(f"/tasks/{secret}/{path}", data={"form_token": form_token, **data})
        assert answer.status_code == 404, path
    assert browser("bert").get("/runs/1").status_code == 404
    assert module_database.value(f"SELECT is_on FROM easeml_tasks.task_{secret}") is True


def test_a_form_that_no_page_of_ours_sent_changes_nothing(ada: Session, browser: Callable[..., FlaskClient]) -> None:
    client, task_id = browser("ada"), number(ada, "galaxies")
    for forged in ({}, {"form_token": "guess"}, {"form_token": token(browser("ada").get("/").text)}):
        data = {"example_id": "7", "is_on": "false", **forged}
        assert client.post(f"/tasks/{task_id}/switch", data=data).status_code == 400
        assert client.post("/logout", data=forged).status_code == 400
    assert ada.value("SELECT is_on FROM of_ada.galaxies_refine WHERE example_id = 7") is True


def test_examples_are_shown_with_their_pictures_and_switched(ada: Session, browser: Callable[..., FlaskClient]) -> None:
    client, task_id = browser("ada"), number(ada, "galaxies")
    page = client.get(f"/tasks/{task_id}/refine").text
    assert page.count("<img ") == 24
    picture = client.get(f"/tasks/{task_id}/examples/7/input.png")
    assert Image.open(io.BytesIO(picture.data)).size == (8, 8)
    for is_on in (False, True):
        data = {"form_token": token(page), "example_id": "7", "is_on": str(is_on).lower(), "before": "10"}
        moved = client.post(f"/tasks/{task_id}/switch", data=data)
        assert moved.headers["Location"] == f"/tasks/{task_id}/refine?before=10#example-7"
        assert ada.value("SELECT is_on FROM of_ada.galaxies_refine WHERE example_id = 7") is is_on
    assert client.get(f"/tasks/{task_id}/examples/7/output.png").status_code == 400
    assert client.get(f"/tasks/{task_id}/examples/99999/input.png").status_code == 404


def test_a_task_shows_its_leaderboard_its_curves_its_story_and_why_it_waits(
    ada: Session, browser: Callable[..., FlaskClient]
) -> None:
    page = browser("ada").get(f"/tasks/{number(ada, 'galaxies')}").text
    for text in (
        "Leaderboard",
        "mlp",
        "Learning curves",
        '<img src="data:image/svg+xml;base64,',
        "Why do I wait?",
        "first model",
    ):
        assert text in page, text
    # Another test asks for a run of another task, which may be the newest.
    run = ada.value("SELECT run_id FROM easeml.task_report('galaxies') WHERE event LIKE 'first model%'")
    assert "It has ended: finished." in browser("ada").get(f"/runs/{run}").text


def test_a_picture_is_asked_about(ada: Session, browser: Callable[..., FlaskClient]) -> None:
    client, task_id = browser("ada"), number(ada, "galaxies")
    form = {"form_token": token(client.get(f"/tasks/{task_id}/infer").text)}
    picture = io.BytesIO()
    Image.new("L", (9, 9), 100).save(picture, "PNG")
    picture.seek(0)
    data: dict[str, Any] = {**form, "picture": (picture, "../../x.png")}
    assert re.search(r'class="answer">[abc] ', client.post(f"/tasks/{task_id}/infer", data=data).text)
    data = {**form, "picture": (io.BytesIO(b"no picture"), "x.png")}
    broken = client.post(f"/tasks/{task_id}/infer", data=data)
    assert (broken.status_code, "cannot be read as a picture" in broken.text) == (400, True)
    for given, problem in (("nonsense", "expected the input as JSON"), ("[1]", "expected")):
        answer = client.post(f"/tasks/{task_id}/infer", data={**form, "input": given})
        assert (answer.status_code, problem in answer.text) == (400, True)
        assert f">{given}</textarea>" in answer.text, "what was typed is still there to be mended"


def test_a_tree_is_shown_by_its_columns_and_asked_about_as_the_form_says(
    module_coordinated: Session, browser: Callable[..., FlaskClient]
) -> None:
    eve = module_coordinated.as_role("eve", "easeml_tenant")
    module_coordinated.execute("ALTER ROLE eve PASSWORD 'eve'")
    module_coordinated.execute("CREATE SCHEMA of_eve AUTHORIZATION eve")
    program = "{input: {[word :: Tensor[2]],[left, right]}, output: {[Tensor[2]],[]}}"
    create(eve, "sentences", program, schema="of_eve", run_after_examples=None, run_after_minutes=None)
    said = '{"word": [0, 0], "left": {"word": [0, 0]}, "right": null}'
    eve.execute("SELECT easeml.feed('sentences', examples => %s::text)", [f'{{"input": {said}, "output": "1"}}'])
    client, task_id = browser("eve"), number(eve, "sentences")
    assert "<small>input_left</small> [2, null]</code>" in client.get(f"/tasks/{task_id}/refine").text
    page = client.get(f"/tasks/{task_id}/infer").text
    assert f"of the form <code>{html.escape(said)}</code>".replace("&quot;", "&#34;") in page
    broken = client.post(f"/tasks/{task_id}/infer", data={"form_token": token(page), "input": "{"})
    assert html.escape(f"Its form is {said}").replace("&quot;", "&#34;") in broken.text


@pytest.mark.parametrize(
    ("examples", "minutes", "said"),
    [
        (10, 2.5, "after 10 examples or 2.5 minutes"),
        (10, None, "after 10 examples"),
        (None, 2.5, "after 2.5 minutes"),
        (None, None, "by hand"),
    ],
)
def test_a_task_says_when_a_run_begins(
    ada: Session, browser: Callable[..., FlaskClient], examples: int | None, minutes: float | None, said: str
) -> None:
    ada.execute("SELECT easeml.alter_task(%s, %s, %s)", [MARKUP, examples, minutes])
    page = browser("ada").get(f"/tasks/{number(ada, MARKUP)}").text
    assert f"a run begins {said}</dd>" in page


def test_a_run_is_asked_for_and_logging_out_ends_the_login(ada: Session, browser: Callable[..., FlaskClient]) -> None:
    client, task_id = browser("ada"), number(ada, MARKUP)
    form_token = token(client.get("/").text)
    answer = client.post(f"/tasks/{task_id}/run", data={"form_token": form_token})
    assert answer.status_code == 302
    assert client.post("/logout", data={"form_token": form_token}).headers["Location"] == "/login"
    assert client.get("/").headers["Location"] == "/login"


def test_an_administrator_sees_tasks_of_all_and_switches_none(
    module_database: Session, ada: Session, browser: Callable[..., FlaskClient]
) -> None:
    module_database.as_role("boss", "easeml_admin")
    module_database.execute("ALTER ROLE boss PASSWORD 'boss'")
    client = browser("boss")
    page = client.get("/").text
    assert "secret" in page
    assert "galaxies" in page
    assert IMAGES in client.get(f"/tasks/{number(ada, 'galaxies')}").text
