"""Makes and feeds tasks from files: folders of pictures, arrays, and lines of JSON."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from easeml_db.cli.terminal.statements import Connection, Row, call_rows
from easeml_db.errors import InvalidArgument, InvalidData, NotAllowed
from easeml_db.postgres.connection import server_error
from easeml_loaders.copy_stream import FILE_HEADER, FILE_TRAILER
from easeml_loaders.json_lines import inputs_of, lines_of_json, parts_of
from easeml_loaders.picture_labels import Skipped, Wanted, classes_of, read_labels
from easeml_loaders.plain_arrays import copied_pictures

if TYPE_CHECKING:
    from easeml_loaders.source import Source

STANDARD_INPUT = Path("-")
EXAMPLE = re.compile(r"example (\d+): ")  # the name of an example in messages of easeml.feed


def program_of(folder: Path, labels: Path, classes: list[str] | None) -> tuple[str, list[str] | None]:
    """Return the program of a folder of pictures and its table, with the classes: the first picture says its shape."""
    try:
        rows = read_labels(labels)
    except InvalidData:
        pairs = read_labels(labels, "output")
        input_, output = (_dimensions(folder, side) for side in (pairs, [(other, "") for _, other in pairs]))
        return f"Input = [{input_}]  Output = [{output}]", classes
    known_classes = classes or classes_of(rows)
    return f"Input = [{_dimensions(folder, rows)}]  Output = [{len(known_classes)}]", known_classes


def _dimensions(folder: Path, rows: Sequence[tuple[str, str]]) -> str:
    from easeml_loaders.pictures import picture_size

    return ",".join(map(str, picture_size(folder, rows)))


def pictures_of(task: Row, is_resized: bool) -> Wanted:
    """Return the form that a task's pictures must have. Raises NotAllowed if the task takes no pictures."""
    (first, *others) = task["specification"]["inputs"]
    if others or not _is_picture(first):
        raise NotAllowed(
            f"task {task['task_name']!r} takes no pictures: {task['program']}",
            hint="Feed a file with a line of JSON for each example, or use SQL: easeml.feed or INSERT.",
        )
    classes = None if task["classes"] is None else frozenset(task["classes"])
    return Wanted(_shape(first), classes, is_resized)


def feed_pictures(
    connection: Connection, task: Row, pictures: Path, labels: Path, resize: bool, skipped: Skipped
) -> int:
    """Feed a folder of pictures, or an array of them, in one COPY; return how many examples that were."""
    form = pictures_of(task, resize)
    output = task["specification"]["output"]
    if output is not None:
        form = replace(form, output=_output_of(task, output, resize))
    parts = copied_pictures(pictures, labels, form, skipped)
    return _copy(connection, str(task["examples"]), parts or _parts_of(pictures, labels, form, skipped))


def feed_lines(connection: Connection, task: str, path: Path, skipped: Skipped) -> int:
    """Feed examples, a line of JSON each, all of them or none; return how many that were. Path - is standard input."""
    n_fed, on_error = 0, "refuse" if skipped.refuses else "skip"
    is_stream = path == STANDARD_INPUT
    name = "standard input" if is_stream else path.name
    with connection.transaction():
        for part in parts_of(_standard_input(), name) if is_stream else lines_of_json(path):
            try:
                fed = call_rows(connection, "feed", task, part.examples, on_error=on_error)[0]
            except psycopg.Error as error:
                refusal = server_error(error)
                message = _at_its_line(refusal.message, part.lines)
                raise type(refusal)(f"{name}, {message}", detail=refusal.detail, hint=refusal.hint) from error
            n_fed += fed["n_fed"]
            skipped.n_examples += fed["n_skipped"]
            skipped.problems += [_at_its_line(problem, part.lines) for problem in fed["problems"] or ()]
    skipped.problems = skipped.problems[:20]
    return n_fed


def _at_its_line(message: str, lines: Sequence[int]) -> str:
    """Name the line of an example instead of its place in the statement that fed it."""
    example = EXAMPLE.match(message)
    if example is None:
        return f"from line {lines[0]}: {message}"
    return f"line {lines[int(example[1]) - 1]}: {message[example.end() :]}"


def given_inputs(given: str) -> list[tuple[str, Jsonb]]:
    """Return the inputs of a text of JSON, of @FILE or, for -, of standard input; each with a name for it.

    Raises InvalidData with line and column for invalid JSON, InvalidArgument for a file that cannot be read.
    """
    text, name = given, "--input"
    try:
        if given == "-":
            text, name = _standard_input().read(), "standard input"
        elif given.startswith("@"):
            text, name = Path(given[1:]).read_text(encoding="utf-8"), given[1:]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read {given} as JSON in UTF-8: {error}") from error
    inputs = inputs_of(text, name)
    return [("input" if len(inputs) == 1 else f"line {line}", Jsonb(value)) for line, value in inputs]


def _standard_input() -> TextIO:
    """Return standard input as UTF-8, whatever the locale says."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    return sys.stdin


def _is_picture(entry: dict[str, Any]) -> bool:
    return entry["type"] == "bytea" and len(entry["shape"]) in (2, 3)


def _shape(entry: dict[str, Any]) -> tuple[int, int, int]:
    height, width, channels = [*entry["shape"], 1][:3]
    return height, width, channels


def _output_of(task: Row, entry: dict[str, Any], resize: bool) -> Wanted:
    if not _is_picture(entry):
        raise NotAllowed(
            f"task {task['task_name']!r} gives no pictures: {task['program']}",
            hint="Feed a file with a line of JSON for each example, or use SQL: easeml.feed or INSERT.",
        )
    return Wanted(_shape(entry), None, resize)


def _parts_of(pictures: Path, labels: Path, form: Wanted, skipped: Skipped) -> Iterator[tuple[int, bytes]]:
    """Yield the tuples of a COPY by parts, as `copied_pictures` does, but by way of numpy, which is slow to import."""
    from easeml_loaders.binary_copy import encode_rows
    from easeml_loaders.picture_folders import picture_source

    if pictures.is_file():
        source = _array(pictures, labels, form, skipped)
    else:
        rows = read_labels(labels, "label" if form.output is None else "output")
        source = picture_source(pictures, rows, form, skipped)
    for chunk in source.chunks():
        n_rows = len(chunk[0].data)
        for tuples in encode_rows(source.columns, chunk):
            yield n_rows, tuples
            n_rows = 0


def _array(images: Path, labels: Path, form: Wanted, skipped: Skipped) -> Source:
    import numpy as np

    from easeml_loaders.pictures import array_source

    try:
        array = np.load(images, mmap_mode="r", allow_pickle=False)
        given = np.load(labels, allow_pickle=False) if labels.suffix == ".npy" else None
    except (OSError, ValueError, EOFError) as error:
        if images.suffix != ".npy":
            raise InvalidArgument(
                f"{images}: expected a folder of pictures, or a .npy file of them",
                hint="Put pictures into a folder, and name each with its label in the CSV.",
            ) from error
        raise InvalidArgument(f"cannot read {images} and {labels} as .npy: {error}") from error
    if form.output is not None:
        if given is None:
            raise InvalidArgument(f"{labels}: expected a .npy file of the pictures that come out")
        return array_source(array, given, form, skipped)
    texts: Sequence[str] = [label for _, label in read_labels(labels)] if given is None else list(map(str, given))
    return array_source(array, texts, form, skipped)


def _copy(connection: Connection, examples: str, parts: Iterator[tuple[int, bytes]]) -> int:
    table = sql.Identifier(*examples.split("."))
    statement = sql.SQL("COPY {} (input, output) FROM STDIN (FORMAT BINARY)").format(table)
    n_rows = 0
    with connection.transaction(), connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(FILE_HEADER)
        for n_here, tuples in parts:
            copy.write(tuples)
            n_rows += n_here
        copy.write(FILE_TRAILER)
    return n_rows
