"""The pictures that a task expects, and the tables with their labels. Nothing here imports numpy.

Importing it takes as long as sending twenty thousand small pictures.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from easeml_loaders.files import lines_of, reading
from easeml_plpy.server.errors import InvalidData

MOST_LABELS = 100_000_000
MOST_LINE_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class Wanted:
    """The form that each picture must have: (height, width, channels), and the labels that a task knows (None:
    numbers). `output` is the form of the output picture, if there is one.
    """

    shape: tuple[int, int, int]
    classes: frozenset[str] | None
    is_resized: bool = False
    output: Wanted | None = None


@dataclass
class Skipped:
    """How many examples could not be read, and the first few problems; with `refuses` the first one is an error."""

    refuses: bool
    n_examples: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, error: InvalidData) -> None:
        """Count an example that could not be read. Raises InvalidData."""
        if self.refuses:
            raise InvalidData(
                str(error), hint="Nothing was fed. With --on-error skip such examples are left out."
            ) from error
        self.n_examples += 1
        if len(self.problems) < 20:
            self.problems.append(str(error))


def read_labels(path: Path, column: str = "label") -> list[tuple[str, str]]:
    """Return (file, label) of each line of a CSV file whose header names both columns. Raises InvalidData.

    If the outputs are pictures, `column` is output: the file of the output picture.
    """
    with reading(path), path.open(encoding="utf-8-sig", newline="") as lines:
        try:
            lines_of_labels = csv.reader(lines_of(lines, path, MOST_LINE_CHARACTERS))
            names = next(lines_of_labels, [])
            if not {"file", column} <= set(names):
                raise InvalidData(
                    f"{path}: expected a header with the columns file and {column}, got {', '.join(names) or 'nothing'}"
                )
            file, other = names.index("file"), names.index(column)
            fill = [""] * (1 + max(file, other))
            rows = [((row + fill)[file], (row + fill)[other]) for row in islice(lines_of_labels, MOST_LABELS) if row]
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidData(f"{path}: expected CSV in UTF-8: {error}") from error
    if not rows:
        raise InvalidData(f"{path}: no labels below the header")
    return rows


def is_known(name: str, label: str, form: Wanted, skipped: Skipped) -> bool:
    """Return whether a label is one that the task knows; else count it as skipped."""
    if form.classes is None:
        try:
            if math.isfinite(float(label)):
                return True
        except ValueError:
            pass
        skipped.add(InvalidData(f"{name}: expected a finite number as label, got {label[:40]!r}"))
        return False
    if label in form.classes:
        return True
    skipped.add(InvalidData(f"{name}: label {label[:40]!r} is no class of the task"))
    return False


def classes_of(labels: Sequence[tuple[str, str]]) -> list[str]:
    """Return the labels that occur, in order."""
    return sorted({label for _, label in labels if label})
