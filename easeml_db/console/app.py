"""The application: access checks, the headers of every response, and the pages for errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from flask import Blueprint, Flask, Request, Response, abort, g, redirect, render_template, request, url_for
from werkzeug.exceptions import HTTPException, ServiceUnavailable
from werkzeug.wrappers import Response as BaseResponse

from easeml_db.console.logins import Login, Logins, is_same
from easeml_db.console.pages import pages
from easeml_db.console.rows import connected, dsn_of_role
from easeml_db.console.settings import Settings
from easeml_db.console.shares import Shares
from easeml_db.errors import EasemlError, NotFound
from easeml_db.report.wording import FILTERS, failed
from easeml_db.words.visible_text import visible_value

N_PAGES, N_LOGINS = 40, 8
N_THREADS = N_PAGES + N_LOGINS
"""Pages and logins that are answered at once, each on a connection of its own to the database."""
MOST_BYTES = 32 << 20
"""Of what is uploaded: files go to the disk."""
MOST_FORM_BYTES, MOST_LOGIN_BYTES = 1 << 20, 1 << 14
"""Of a form's other values, which fill the memory thirty times over once they are parsed, and of who has no key yet."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""No script, no frame, nothing from elsewhere, and no address handed on: that of the login page holds the key."""
OPEN = frozenset({"login", "static", "report.static"})
REPORT = Blueprint(
    "report", "easeml_db.report", static_folder="static", static_url_path="/report", template_folder="templates"
)
"""The style and the parts of pages that are the report's, too."""


def make_app(settings: Settings, now: Callable[[], float] = time.monotonic) -> Flask:
    """Return the application."""
    app = Flask("easeml_db.console")
    app.config["MAX_CONTENT_LENGTH"], app.config["MAX_FORM_MEMORY_SIZE"] = MOST_BYTES, MOST_FORM_BYTES
    app.jinja_env.filters.update(FILTERS)
    app.jinja_env.tests["failed"] = failed
    app.jinja_env.finalize = _shown
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    logins, cookie = Logins(now), f"easeml_console_{settings.port}"
    # Apart: a login names its role itself, so that invented ones may hold all threads of logins, but none of pages.
    shares = {"pages": Shares(N_PAGES), "logins": Shares(N_LOGINS)}
    app.register_blueprint(pages)
    app.register_blueprint(REPORT)

    @app.before_request
    def _let_in() -> BaseResponse | None:
        if request.host not in settings.hosts:
            abort(421)
        if request.mimetype != "multipart/form-data":  # of others the limit on forms bounds nothing
            request.max_content_length = MOST_FORM_BYTES
        g.login = logins.of(request.cookies.get(cookie))
        if request.endpoint in OPEN:
            return None
        if g.login is None:
            return redirect(url_for("login"))
        _take_share(shares, "pages", g.login.role)
        _check_form(request, g.login)
        return None

    @app.teardown_request
    def _give_back(_error: BaseException | None) -> None:
        if taken := g.pop("share", None):
            kind, who = taken
            shares[kind].give_back(who)

    @app.after_request
    def _seal(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response

    @app.route("/login", methods=["GET", "POST"])
    def login() -> BaseResponse | str | tuple[str, int]:
        request.max_content_length = request.max_form_memory_size = MOST_LOGIN_BYTES
        key = request.values.get("key")
        if not is_same(key, settings.key):
            return render_template("closed.html"), 403
        if request.method == "GET":
            return render_template("login.html", key=key)
        _take_share(shares, "logins", request.form.get("role", ""))
        if logins.is_blocked(request.form.get("role", "")):
            return render_template("login.html", key=key, problem="Too many attempts as this role: wait a minute."), 429
        return _log_in(settings, logins, cookie)

    @app.post("/logout")
    def logout() -> BaseResponse:
        logins.remove(request.cookies.get(cookie))
        answer = redirect(url_for("login"))
        answer.delete_cookie(cookie)
        return answer

    app.register_error_handler(EasemlError, _problem)
    app.register_error_handler(HTTPException, _refusal)
    return app


def _log_in(settings: Settings, logins: Logins, cookie: str) -> BaseResponse | tuple[str, int]:
    """Log a role in: the server itself says whether its password is right."""
    role = request.form.get("role", "")
    try:
        dsn = dsn_of_role(settings.dsn, role, request.form.get("password", ""))
        with connected(dsn) as connection:
            connection.execute("SELECT easeml.version()")
    except EasemlError as error:
        logins.fail(role)
        return render_template("login.html", key=settings.key, role=role, problem=error.message), 403
    answer = redirect(url_for("pages.tasks"))
    answer.set_cookie(cookie, logins.add(role, dsn), httponly=True, samesite="Strict", path="/")
    return answer


def _take_share(shares: Mapping[str, Shares], kind: str, who: str) -> None:
    """Refuse a request of somebody whose other requests hold as many threads as one may."""
    if not shares[kind].take(who):
        raise ServiceUnavailable("Other pages of this role are still being made. Try again in a moment.", retry_after=1)
    g.share = kind, who


def _check_form(asked: Request, login: Login) -> None:
    """Refuse a form that no page of the console sent."""
    if asked.method not in ("GET", "HEAD") and not is_same(asked.form.get("form_token"), login.form_token):
        abort(400, "This form is none of the console's, or its login has ended. Load the page again.")


def _problem(error: EasemlError) -> tuple[str, int]:
    status = 404 if isinstance(error, NotFound) else 400
    return render_template("problem.html", message=error.message, hint=error.hint), status


def _refusal(error: HTTPException) -> tuple[str, int]:
    return render_template("problem.html", message=error.description or error.name, hint=None), error.code or 500


def _shown(value: object) -> object:
    """Return a value as templates write it: untrusted texts in one line, without characters that change the writing
    direction; nothing for None.
    """
    if value is None:
        return ""
    return visible_value(value) if type(value) in (str, list, dict, tuple) else value
