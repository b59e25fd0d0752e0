"""What a generated client is given wrongly: one clear line each, before anything is sent, and nothing is fed."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from easeml_db.cli import commands

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.sessions import Session

N_SLOTS = 1
PROGRAMS = {
    "pairs": "{input: {[a :: Tensor[2], b :: Tensor[3]],[]}, output: {[Tensor[2]],[]}}",
    "single": "Input = [2] Output = [2]",
    "series": "{input: {[Tensor[3]],[next]}, output: {[Tensor[2]],[]}}",
    "trees": "{input: {[word :: Tensor[2]],[left, right]}, output: {[Tensor[2]],[]}}",
    "evil\x1b[2J\u202e\n": "Input = [2] Output = [2]",
}
NAN = float("nan")
ITSELF: dict[str, Any] = {"word": [1.0, 2.0]}
ITSELF["left"] = ITSELF
COMPLEX = np.array([1j, 2])
A_TREE = {"word": [1, 2], "left": {"word": [3, 4]}}


@pytest.fixture(scope="module")
def client_of(module_database: Session, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    """`client_of(task)`: the module of its generated client."""
    made: dict[str, ModuleType] = {}
    module_database.execute("CREATE SCHEMA lab")
    for task, program in PROGRAMS.items():
        module_database.execute("SELECT easeml.create_task(%s, %s, schema => 'lab')", [task, program])
        out = tmp_path_factory.mktemp("client") / "made"
        told = ["task", "client", task, "--out", str(out), "--json", "--dsn", module_database.dsn]
        done = CliRunner().invoke(commands, told)
        assert done.exit_code == 0, done.output
        package = json.loads(done.stdout)["package"]
        spec = importlib.util.spec_from_file_location(f"{package}_input", out / package / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[spec.name] = made[task] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made[task])
    return made.__getitem__


WRONG = [
    ("pairs", {"a": [1, 2]}, "expected tensors named a, b, got 'a'"),
    ("pairs", {"a": [1, 2], "b": [1, 2, 3], "c": [1]}, "expected tensors named a, b, got 'a', 'b', 'c'"),
    ("pairs", {}, "expected tensors named a, b, got none"),
    ("pairs", [1, 2], "expected tensors by name (a, b), got list"),
    ("pairs", {"a": [1, 2], "b": ["x", "y", "z"]}, "b: expected numbers, got <U1"),
    ("pairs", {"a": [1, NAN], "b": [1, 2, 3]}, "a: expected finite numbers, got nan at [1]"),
    ("pairs", {"a": [1, 2], "b": None}, "b: expected numbers, got NoneType"),
    ("pairs", {"a": {"a": 1}, "b": [1, 2, 3]}, "a: expected numbers, got dict"),
    ("single", "abc", "expected numbers, got str"),
    ("single", [1, [2]], "expected as many numbers in each row"),
    ("single", [1, 1e999], "expected finite numbers, got inf at [1]"),
    ("single", [1, 2, 3], "expected shape (2,), got (3,)"),
    ("single", COMPLEX, "expected numbers, got complex128"),
    ("series", [[1, 2, NAN]], "the series: expected finite numbers, got nan at [0, 2]"),
    ("series", [[1, 2]], "expected a series of shape (n, 3), got (1, 2)"),
    ("series", 7, "expected a series of shape (n, 3), got ()"),
    ("trees", {"left": {"word": [1, 2]}}, "expected tensors named word, got none"),
    ("trees", {"word": [1, 2], "left": [1, 2]}, "expected an object with word, left, right, got list"),
    ("trees", [[1, 2]], "expected an object with word, left, right, got list"),
    ("trees", {"word": [1, 2], "middle": A_TREE}, "expected tensors named word, got 'word', 'middle'"),
    ("trees", ITSELF, "is there one that leads to itself?"),
]


@pytest.mark.parametrize(("task", "value", "message"), WRONG, ids=[f"{row[0]}-{row[2][:40]}" for row in WRONG])
def test_an_input_that_the_task_does_not_take_is_named(
    client_of: Callable[[str], ModuleType], module_database: Session, task: str, value: Any, message: str
) -> None:
    with client_of(task).Client(module_database.dsn) as client:
        for call in (client.infer, lambda given: client.feed(given, [0.0, 1.0])):
            with pytest.raises(ValueError, match=r"expected ") as refused:
                call(value)
            assert message in str(refused.value)
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([0.0, NAN], "the output: expected finite numbers, got nan at [1]"),
        (np.array([1j, 0]), "the output: expected numbers, got complex128"),
        ({"x": 1}, "the output: expected numbers, got dict"),
        ([0.0, 1.0], "the output: expected a class, got shape (2,)"),
        ([[1], [2, 3]], "the output: expected as many numbers in each row"),
    ],
)
def test_an_output_that_is_no_number_is_named(
    client_of: Callable[[str], ModuleType], module_database: Session, output: Any, message: str
) -> None:
    with client_of("single").Client(module_database.dsn) as client, pytest.raises(ValueError, match="expected") as no:
        client.feed([1, 2], output)
    assert message in str(no.value)


def test_numbers_of_numpy_are_fed(client_of: Callable[[str], ModuleType], module_database: Session) -> None:
    with client_of("pairs").Client(module_database.dsn) as client:
        client.feed({"a": np.array([True, False]), "b": np.arange(3, dtype=np.longdouble)}, np.int64(1))
    assert module_database.value("SELECT count(*) FROM lab.pairs") == 1


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("single", "[1, NaN]", "expected finite numbers, got nan at [1]"),
        ("single", "[" * 100_000, "nested too deep"),
        ("pairs", '{"a": [1, 2]}', "expected tensors named a, b, got 'a'"),
        ("trees", '{"word": [1, 2], "left": 7}', "expected an object with word, left, right, got int64"),
        ("evil\x1b[2J\u202e\n", "[1]", "expected shape (2,), got (1,)"),
        ("single", "[1, 2]", "has no model yet"),  # said by the server
    ],
)
def test_the_command_says_it_in_one_line_that_steers_no_terminal(
    client_of: Callable[[str], ModuleType],
    module_database: Session,
    capsys: pytest.CaptureFixture[str],
    task: str,
    given: str,
    message: str,
) -> None:
    assert client_of(task).main(["--dsn", module_database.dsn, "infer", given]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert line.isprintable()
