"""The pages. Each reads over a connection of the logged-in role; a form that writes redirects to a page."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, g, redirect, render_template, request, url_for
from psycopg.types.json import Jsonb
from werkzeug.wrappers import Response as BaseResponse

from easeml_db.console.inputs import example_input
from easeml_db.console.pictures import answer_source, curve_sources, example_png, is_picture
from easeml_db.console.rows import Connection, Row, connected, example_bytes, examples, one, rows, switch
from easeml_db.errors import EasemlError, InvalidArgument
from easeml_db.report.datasets import chart_data
from easeml_db.report.rows import RunRows
from easeml_loaders.picture_labels import Wanted
from easeml_loaders.pictures import read_picture

pages = Blueprint("pages", __name__)
PAGE_ROWS = 24
CURVE_POINTS = 100  # of a trial: a second of a processor draws 50 trials of so many epochs
UNPACKING = threading.Lock()  # a picture takes hundreds of megabytes while it is unpacked: one at a time, for all
OPEN_STATUSES = ("queued", "running")


def _task(connection: Connection, task_id: int) -> Row:
    return one(connection, "task", f"task {task_id}", task_id=task_id)


@pages.get("/")
def tasks() -> str:
    """Show tasks, and the newest runs of all datasets."""
    with connected(g.login.dsn) as connection:
        listed, newest = rows(connection, "tasks"), rows(connection, "runs", limit=20)
    return render_template("tasks.html", tasks=listed, runs=newest, is_live=_has_open(newest))


@pages.get("/tasks/<int:task_id>")
def task(task_id: int) -> str:
    """Show one task: its facts, its history, and the status of its newest run."""
    with connected(g.login.dsn) as connection:
        task = _task(connection, task_id)
        story = rows(connection, "story", task=task["task_name"]) if task["is_own"] else []
        of_task = rows(connection, "task_runs", tenant=task["tenant"], dataset=task["task_name"])
        shown = _run_parts(connection, of_task[0]) if of_task else {}
    return render_template("task.html", task=task, story=story, runs=of_task, is_live=_has_open(of_task), **shown)


@pages.post("/tasks/<int:task_id>/run")
def run_task(task_id: int) -> BaseResponse:
    """Start a run of a task."""
    with connected(g.login.dsn) as connection:
        connection.execute("SELECT easeml.run_task(%s)", [_task(connection, task_id)["task_name"]])
    return redirect(url_for("pages.task", task_id=task_id))


@pages.get("/tasks/<int:task_id>/refine")
def refine(task_id: int) -> str:
    """Show examples of a task with their pictures and switches, newest first."""
    before = request.args.get("before", type=int)
    with connected(g.login.dsn) as connection:
        task = _task(connection, task_id)
        listed = examples(connection, task, before, PAGE_ROWS)
    pictured = [entry["column"] for entry in _columns(task) if is_picture(entry)]
    others = [entry["column"] for entry in task["inputs"] if not is_picture(entry)]
    return render_template("refine.html", task=task, examples=listed, pictured=pictured, others=others, n=PAGE_ROWS)


@pages.get("/tasks/<int:task_id>/examples/<int:example_id>/<column>.png")
def picture(task_id: int, example_id: int, column: str) -> Response:
    """Send the picture of an example."""
    with connected(g.login.dsn) as connection:
        task = _task(connection, task_id)
        entry = next((e for e in _columns(task) if e["column"] == column and is_picture(e)), None)
        if entry is None:
            raise InvalidArgument(f"task {task_id} has no pictures {column!r}")
        pixels = example_bytes(connection, task, example_id, column)
    return Response(example_png(entry, pixels), mimetype="image/png")


@pages.post("/tasks/<int:task_id>/switch")
def switch_example(task_id: int) -> BaseResponse:
    """Switch an example off or on, and show the page it was on again."""
    example_id = request.form.get("example_id", type=int)
    if example_id is None:
        raise InvalidArgument("expected the number of an example")
    with connected(g.login.dsn) as connection:
        switch(connection, _task(connection, task_id), example_id, is_on=request.form.get("is_on") == "true")
    before = request.form.get("before", type=int)
    return redirect(f"{url_for('pages.refine', task_id=task_id, before=before)}#example-{example_id}")


@pages.route("/tasks/<int:task_id>/infer", methods=["GET", "POST"])
def infer(task_id: int) -> tuple[str, int]:
    """Ask the best model of a task for its output for a picture or numbers; refused input stays in the form."""
    with connected(g.login.dsn) as connection:
        task = _task(connection, task_id)
    (first, *others) = task["inputs"]
    takes_picture = not others and is_picture(first)
    shown = {"task": task, "takes_picture": takes_picture, "example": _example(task)}
    try:
        answered = _answered(task, takes_picture) if request.method == "POST" else {}
    except EasemlError as error:
        problem = {"problem": error.message, "hint": error.hint}
        return render_template("infer.html", **shown, given=_given(), **problem), 400
    return render_template("infer.html", **shown, given=_given(), **answered), 200


@pages.get("/runs")
def runs() -> str:
    """Show the newest runs of all datasets."""
    with connected(g.login.dsn) as connection:
        listed = rows(connection, "runs", limit=200)
    return render_template("runs.html", runs=listed, is_live=_has_open(listed))


@pages.get("/runs/<int:run_id>")
def run(run_id: int) -> str:
    """Show one run: summary, leaderboard, learning curves, and why it waits."""
    with connected(g.login.dsn) as connection:
        run = one(connection, "run", f"run {run_id}", run_id=run_id)
        summary = [next(iter(row.values())) for row in rows(connection, "summary", run_id=run_id)]
        shown = _run_parts(connection, run)
    return render_template("run.html", run=run, summary=summary, is_live=_has_open([run]), **shown)


def _run_parts(connection: Connection, run: Row) -> dict[str, Any]:
    """Return the parts of a page about a run: its leaderboard, its curves, and the last decisions about it."""
    trials = rows(connection, "leaderboard", run_id=run["run_id"])
    step = max((trial["max_epochs"] for trial in trials), default=0) // CURVE_POINTS + 1
    curves = rows(connection, "curves", trial_ids=[trial["trial_id"] for trial in trials], step=step)
    data = chart_data(RunRows(run, trials, (), curves, (), (), {}), n_top=len(trials))
    return {
        "data": data,
        "pictures": curve_sources(data),
        "decisions": rows(connection, "decisions", run_id=run["run_id"]),
        "waits": rows(connection, "waits", run_id=run["run_id"]),
    }


def _answered(task: Row, takes_picture: bool) -> dict[str, Any]:
    """Return an answer together with the values that the page needs to show it."""
    with connected(g.login.dsn) as connection:
        answer = _answer(connection, task, takes_picture)
        classes = one(connection, "classes", f"task {task['task_id']}", task_id=task["task_id"])["classes"]
    source = answer_source(task["output"], answer["output"])
    return {"answer": answer, "source": source, "named": _named_outputs(classes, answer)}


def _given() -> str:
    return request.form.get("input", "")


def _answer(connection: Connection, task: Row, takes_picture: bool) -> dict[str, Any]:
    """Return the answer of easeml.infer to the input of the form. Raises InvalidArgument, InvalidData."""
    value: bytes | Jsonb
    given = request.files.get("picture")
    if takes_picture and given is not None and given.filename:
        height, width, channels = [*task["inputs"][0]["shape"], 1][:3]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "picture"
            given.save(path)
            with UNPACKING:
                value = read_picture(path, Wanted((height, width, channels), None, is_resized=True))
    else:
        try:
            value = Jsonb(json.loads(_given()))
        except (ValueError, RecursionError) as error:
            said = "nested too deep" if isinstance(error, RecursionError) else str(error)
            raise InvalidArgument(
                f"expected the input as JSON: {said}", hint=f"Its form is {_example(task)}."
            ) from error
    row = connection.execute("SELECT easeml.infer(%s, %s) AS answer", [task["task_name"], value]).fetchone()
    answer: dict[str, Any] = row["answer"] if row else {}
    return answer


def _example(task: Row) -> str:
    return example_input(task["inputs"], task["recursive"] or [])


def _named_outputs(classes: list[str] | None, answer: dict[str, Any]) -> list[tuple[str, float]]:
    """Return classes with their probabilities, the most probable first; empty if the answer has none."""
    if classes is None:
        return []
    return sorted(zip(classes, answer["output"], strict=True), key=lambda pair: -pair[1])[:20]


def _columns(task: Row) -> list[dict[str, Any]]:
    return [*task["inputs"], *([task["output"]] if task["output"] else [])]


def _has_open(listed: list[Row]) -> bool:
    return any(row["status"] in OPEN_STATUSES for row in listed)
