"""A trial in memory: the same encoder and network, trees or estimator as on the server, for use in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from easeml_plpy.columns.encoder import Encoder, LabelTarget
from easeml_plpy.files.model_checks import restored
from easeml_plpy.files.model_file import MOST_BYTES, ModelDocument, ModelFile
from easeml_plpy.prediction.client_row import fields_from_rows
from easeml_plpy.prediction.prediction import outputs_of
from easeml_plpy.server.chunks import ANSWER_ROWS
from easeml_plpy.server.errors import InvalidArgument, ShapeMismatch
from easeml_plpy.server.value_types import Array

Row: TypeAlias = Mapping[str, Any]
"""Values by column as JSON has them: texts, numbers, booleans, lists, None; times as text in ISO 8601."""


class Model:
    """A trial that was exported."""

    def __init__(self, file: ModelFile) -> None:
        self._served = restored(file)
        self.document: ModelDocument = file.document

    @property
    def inputs(self) -> list[str]:
        """The columns that a row must have."""
        return list(dict.fromkeys(field.source for field in self._served.data.encoder.inputs))

    @property
    def labels(self) -> list[str] | None:
        """The classes, in the order of the probabilities; None for numbers."""
        target = self._served.data.encoder.target
        return list(target.labels) if isinstance(target, LabelTarget) else None

    def outputs(self, rows: Sequence[Row]) -> npt.NDArray[np.floating[Any]]:
        """Return the answers of the trial to rows: probabilities (n, classes), or values (n, 1).

        Raises InvalidArgument for what are no rows, ShapeMismatch for values that do not fit.
        """
        check_rows(rows)
        pages = [rows[start : start + ANSWER_ROWS] for start in range(0, len(rows), ANSWER_ROWS)]
        encoder = self._served.data.encoder
        parts = [outputs_of(self._served, _fields(encoder, page)) for page in pages]
        return np.concatenate(parts) if parts else np.empty((0, len(self.labels or [0])))

    def predict(self, rows: Sequence[Row]) -> list[str] | list[float]:
        """Return the label of each row, or its value."""
        outputs = self.outputs(rows)
        if self.labels is None:
            return [float(value) for value in outputs[:, 0]]
        return [self.labels[code] for code in outputs.argmax(axis=1).tolist()]

    def predict_probabilities(self, rows: Sequence[Row]) -> list[dict[str, float]]:
        """Return the probability of each class for each row; no class, no entry."""
        names = self.labels or []
        return [dict(zip(names, map(float, row), strict=False)) for row in self.outputs(rows)]


def check_rows(rows: object) -> None:
    """Refuse what is no list of rows, a pandas table for example. Raises InvalidArgument."""
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        got = type(rows).__name__
    else:
        got = next((f"a list of {type(row).__name__}" for row in rows if not isinstance(row, Mapping)), "")
    if got:
        raise InvalidArgument(
            f"rows: expected a list of rows, each a dict by column, got {got}",
            hint="For one row [row], for a pandas table table.to_dict('records').",
        )


def _fields(encoder: Encoder, rows: Sequence[Row]) -> list[Array]:
    """Make fields of rows, which Python's users may give values that JSON does not have. Raises ShapeMismatch."""
    try:
        return fields_from_rows(encoder, rows)
    except (OverflowError, TypeError, ValueError) as error:
        raise ShapeMismatch(
            f"rows: expected values as JSON has them: {error}",
            hint="Give texts, numbers, booleans, lists and None; times as text in ISO 8601.",
        ) from error


def load(path: str | PathLike[str]) -> Model:
    """Read a file that `easeml export` has written. Raises InvalidData, VersionMismatch, CorruptCheckpoint."""
    with Path(path).open("rb") as file:
        contents = file.read(MOST_BYTES + 1)
    return Model(ModelFile.from_bytes(contents))
