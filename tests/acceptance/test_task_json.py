"""At the shell a task is fed and asked in JSON, whatever goes in: vectors, several tensors, series, trees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from easeml_db.cli import commands
from easeml_db.errors import EasemlError, InvalidData, ShapeMismatch
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator
from tests.fixtures.sessions import PATIENCE_SECONDS

Run = Callable[..., Result]
LEAF = {"word": [0.0, 1.0]}
PROGRAMS = {
    "vectors in json": ("Input = [2] Output = [2]", "mlp"),
    "several in json": ("{input: {[a :: Tensor[1], b :: Tensor[2,2]],[]}, output: {[Tensor[1]],[]}}", "mlp"),
    "series in json": ("{input: {[Tensor[2]],[next]}, output: {[Tensor[2]],[next]}}", "seq2seq"),
    "trees in json": ("{input: {[word :: Tensor[2]],[left, right]}, output: {[Tensor[2]],[]}}", "tree_rnn"),
}
EXAMPLES: dict[str, Callable[[int], Any]] = {
    "vectors in json": lambda k: ([k % 7, -k % 5], str(k % 2)),
    "several in json": lambda k: ({"a": [k], "b": [[k, 1], [2, 3]]}, float(k % 3)),
    "series in json": lambda k: ([[k % 3, i] for i in range(k % 4 + 1)], [[0.0, 1.0]] * (k % 3 + 1)),
    "trees in json": lambda k: ({**LEAF, "left": LEAF, "right": {**LEAF, "left": LEAF} if k % 2 else None}, str(k % 2)),
}


@pytest.fixture(scope="module")
def asked(server: Embedded) -> Run:
    """`asked("infer", task, ..., given=text)`: a command of `easeml task`, with what it reads from standard input."""
    wait_for_coordinator(server)
    environment = {"EASEML_DATA": str(server.folder), "EASEML_DSN": None}

    def run(*arguments: str, given: str | None = None) -> Result:
        return CliRunner().invoke(commands, ["task", *arguments], env=environment, input=given)

    for name, (program, arm) in PROGRAMS.items():
        options = json.dumps({"architectures": [arm], "max_epochs": 1, "n_configs": 1})
        made = run("create", name, program, "--run-options", options)
        assert made.exit_code == 0, made.exception
        lines = [dict(zip(("input", "output"), EXAMPLES[name](k), strict=True)) for k in range(60)]
        fed = run("feed", name, "-", "--json", given="\n".join(map(json.dumps, lines)))
        assert fed.exit_code == 0, fed.exception
        assert json.loads(fed.stdout)["n_fed"] == 60
        assert run("run", name).exit_code == 0
    return run


def answers(asked: Run, task: str, *arguments: str, given: str | None = None) -> list[Any]:
    """What `easeml task infer` prints as JSON, once the task has a model."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        done = asked("infer", task, *arguments, "--json", given=given)
        if done.exit_code == 0:
            found: list[Any] = json.loads(done.stdout)
            return found
        assert "no model" in str(done.exception), done.exception
        assert time.monotonic() < deadline
        time.sleep(0.3)


def refusal(asked: Run, *arguments: str, given: str | None = None) -> EasemlError:
    done = asked(*arguments, given=given)
    assert isinstance(done.exception, EasemlError), done.output or done.exception
    return done.exception


@pytest.mark.parametrize("task", PROGRAMS)
def test_inputs_of_every_shape_are_asked_line_by_line(asked: Run, task: str, tmp_path: Path) -> None:
    inputs = [EXAMPLES[task](k)[0] for k in (1, 2, 3)]
    text = "\n".join(map(json.dumps, inputs))
    (tmp_path / "inputs.jsonl").write_text(text)
    found = answers(asked, task, "--input", "-", given=text)
    assert [answer["input"] for answer in found] == ["line 1", "line 2", "line 3"]
    assert answers(asked, task, "--input", text) == found
    assert answers(asked, task, "--input", f"@{tmp_path / 'inputs.jsonl'}") == found
    (alone,) = answers(asked, task, "--input", "-", given=json.dumps(inputs[0], indent=2))
    assert alone == {**found[0], "input": "input"}


def test_what_comes_out_is_said_whole(asked: Run) -> None:
    (answer,) = answers(asked, "series in json", "--input", "[[1, 0], [1, 1]]")
    said = asked("infer", "series in json", "--input", "[[1, 0], [1, 1]]").output.strip()
    assert json.loads(said.removeprefix("input: ")) == answer["output"]
    (answer,) = answers(asked, "several in json", "--input", '{"a": [1], "b": [[1, 2], [3, 4]]}')
    said = asked("infer", "several in json", "--input", '{"a": [1], "b": [[1, 2], [3, 4]]}').output.strip()
    assert said == f"input: {answer['output'][0]}"


def test_what_does_not_fit_is_named_by_its_line(asked: Run) -> None:
    answers(asked, "vectors in json", "--input", "[1, 2]")
    refused = refusal(asked, "infer", "vectors in json", "--input", "-", given="[1, 2]\n\n[1, 2, 3]\n")
    assert isinstance(refused, ShapeMismatch)
    assert str(refused).startswith("line 3: ")
    refused = refusal(asked, "infer", "vectors in json", "--input", "-", given="[1, 2]\n[1, 2\n")
    assert isinstance(refused, InvalidData)
    assert "standard input, line 2, column 6: no JSON" in str(refused)
    assert "cannot read @nowhere" in str(refusal(asked, "infer", "vectors in json", "--input", "@nowhere"))
    assert "there is no task 'nowhere' that you may ask" in str(refusal(asked, "infer", "nowhere", "--input", "[1]"))
    assert asked("infer", "vectors in json").exit_code == 2


def test_a_line_that_is_no_example_is_named_and_nothing_is_fed(asked: Run) -> None:
    def n_fed() -> int:
        return len(json.loads(asked("refine", "trees in json", "--limit", "1000", "--json").stdout))

    good, before = json.dumps({"input": LEAF, "output": "1"}), n_fed()
    for bad, told in (
        ('{"input": ', "standard input, line 3, column 11: no JSON"),
        ('{"input": {"word": [1]}, "output": "1"}', "standard input, line 3: word: expected Tensor[2] of each object"),
        ('{"input": {"word": [1, 2]}, "output": "9"}', "standard input, line 3: output: expected one of"),
    ):
        refused = refusal(asked, "feed", "trees in json", "-", given=f"{good}\n\n{bad}\n")
        assert told in str(refused)
    assert n_fed() == before
    skipped = asked("feed", "trees in json", "-", "--on-error", "skip", "--json", given=f"{good}\n{bad}\n")
    assert json.loads(skipped.stdout)["problems"][0].startswith("line 2: ")


@pytest.mark.parametrize(
    ("command", "told"), [("feed", "expected JSON in UTF-8"), ("infer", "cannot read - as JSON in UTF-8")]
)
def test_bytes_that_are_no_utf_8_are_refused_in_any_locale(
    command: str, told: str, asked: Run, server: Embedded
) -> None:
    told_how = ["feed", "vectors in json", "-"] if command == "feed" else ["infer", "vectors in json", "--input", "-"]
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "EASEML_DATA": str(server.folder)}
    environment = {name: value for name, value in os.environ.items() if name != "EASEML_DSN"} | locale
    done = subprocess.run(
        [sys.executable, "-m", "easeml_db", "task", *told_how],
        input=b'{"input": ["\xff"], "output": "0"}\n', capture_output=True, check=False, cwd="/", env=environment,
    )  # fmt: skip
    assert done.returncode != 0
    assert told in done.stderr.decode()
