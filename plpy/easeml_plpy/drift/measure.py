"""The entry point of easeml.drift: it compares new rows with the training rows of a version of a dataset."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.coded_fields import CategoricalField
from easeml_plpy.columns.columns import TIMES, Columns
from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.drift.bins import UNKNOWN, Bins, CategoryBins
from easeml_plpy.drift.columns import Compared, compared_columns, kind_of, target_field
from easeml_plpy.drift.index import chance_index, level, stability_index
from easeml_plpy.drift.new_rows import MOST_ROWS, Chunk, Periods, Source
from easeml_plpy.drift.training_rows import trained_bins
from easeml_plpy.packing.foreign_code import reading
from easeml_plpy.prediction.table_prediction import SOURCE_NAME, check_types
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidArgument, NotAllowed, NotFound
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import Array

N_SHOWN = 10
SHOWN_CHARACTERS = 100
MOST_UNSEEN = 1_000
"""New categories of a column that are remembered at once."""
GONE_SHARE = 0.01
"""Share of the training rows: rarer categories may be missing by chance."""

ENCODER: Statement[str] = Statement("SELECT encoder FROM easeml.datasets WHERE dataset_id = $1", ("int8",), only_column)


@dataclass
class Seen:
    """The values of one column in the rows of one period."""

    counts: Array
    n_unseen: int = 0
    unseen: Counter[str] = field(default_factory=Counter)

    def add(self, bins: Bins, values: Array, texts: Sequence[str | None] | None) -> None:
        """Count further rows."""
        self.counts = self.counts + bins.counts(values)
        self.n_unseen += bins.n_unseen(values)
        if isinstance(bins, CategoryBins) and texts is not None:
            self.unseen.update(text for text, code in zip(texts, values, strict=True) if text and code == UNKNOWN)
            self._forget_rare()

    def merge(self, other: Seen) -> None:
        """Add counts over the same bins."""
        self.counts = self.counts + other.counts
        self.n_unseen += other.n_unseen
        self.unseen.update(other.unseen)
        self._forget_rare()

    def _forget_rare(self) -> None:
        if len(self.unseen) > MOST_UNSEEN:  # each row may have one of its own
            self.unseen = Counter(dict(self.unseen.most_common(MOST_UNSEEN // 2)))


@entry_point(returns_failure=True)
def measure_drift(session: Session, dataset_id: int, relation: int, options: str) -> str:
    """Return a row for each period and column as a JSON array."""
    settings = json.loads(options)
    encoder = _encoder(session, dataset_id)
    name = session.row(SOURCE_NAME, relation)
    columns = columns_of.read_columns(session, relation)
    if encoder.objects is not None:
        raise NotAllowed(
            "series and trees go in, whose columns cannot be compared", hint="easeml.evaluate measures it."
        )
    columns_of.require(columns, [input_field.source for input_field in encoder.inputs], "source", name)
    check_types(name, columns, encoder.inputs, "name that")
    has_target = target_field(encoder) is not None and encoder.target.column in columns
    compared = compared_columns(encoder, has_target=has_target)
    periods = periods_of(name, columns, settings)
    source = Source(name, columns, compared, encoder.target.column, periods, rows_at_most(settings))
    bins = trained_bins(session, dataset_id, encoder, has_target=has_target)
    with reading(session, relation):
        seen = count_rows(source.chunks(session), bins, [np.zeros_like(column_bins.trained) for column_bins in bins])
    return json.dumps([
        {"since": None if period is None or periods is None else period * periods.seconds, **row}
        for period, of_period in seen.items()
        for row in rows_of(compared, bins, of_period)
    ])  # fmt: skip


def _encoder(session: Session, dataset_id: int) -> Encoder:
    """Return the encoder of a version of a dataset of the caller. Raises NotFound."""
    encoders = session.rows(ENCODER, dataset_id)
    if not encoders:
        raise NotFound(f"there is no dataset {dataset_id} of yours", hint="Call easeml.drift.")
    return Encoder.from_text(encoders[0])


def periods_of(name: str, columns: Columns, options: Mapping[str, Any]) -> Periods | None:
    """Return how rows are assigned to periods. Raises InvalidArgument."""
    if not options["every_seconds"] > 0:
        raise InvalidArgument(
            f"every: expected a positive interval, got {options['every']}", hint="For example '1 day'."
        )
    if options["time_column"] is None:
        return None
    columns_of.require(columns, [options["time_column"]], "time_column", name)
    column = columns[options["time_column"]]
    if column.type not in TIMES:
        raise InvalidArgument(
            f"time_column: expected a date or timestamp, and {column.name!r} has type"
            f" {columns_of.shown_type(column.type)}",
            hint="Cast it in a view.",
        )
    return Periods(column.quoted, float(options["every_seconds"]))


def rows_at_most(options: Mapping[str, Any]) -> int:
    n_rows = options["n_rows"]
    if n_rows is None or not 1 <= n_rows <= MOST_ROWS:
        raise InvalidArgument(f"n_rows: expected 1 to {MOST_ROWS}, got {'NULL' if n_rows is None else n_rows}")
    return int(n_rows)


def count_rows(chunks: Iterator[Chunk], bins: Sequence[Bins], zeros: Sequence[Array]) -> dict[float | None, list[Seen]]:
    """Return what the rows of each period have, by column. `zeros` are counts before there is a row."""
    seen: defaultdict[float | None, list[Seen]] = defaultdict(lambda: [Seen(zero.copy()) for zero in zeros])
    for chunk in chunks:
        for total, column_bins, values, texts in zip(seen[chunk.period], bins, chunk.columns, chunk.texts, strict=True):
            total.add(column_bins, values, texts)
    return seen


def rows_of(compared: Sequence[Compared], bins: Sequence[Bins], seen: Sequence[Seen]) -> Iterator[dict[str, Any]]:
    for column, column_bins, counted in zip(compared, bins, seen, strict=True):
        n_rows, trained = int(counted.counts.sum()), column_bins.trained
        index, chance = stability_index(trained, counted.counts), chance_index(trained, counted.counts)
        yield {
            "input": column.column,
            "kind": kind_of(column),
            "n_rows": n_rows,
            "psi": index,
            "chance_psi": chance,
            "drift": level(index - chance),
            "trained_missing": float(trained[-1] / trained.sum()),
            "missing": float(counted.counts[-1] / n_rows),
            "unseen": counted.n_unseen / n_rows,
            "unseen_values": [text[:SHOWN_CHARACTERS] for text in _commonest(counted.unseen)],
            "gone_values": _gone(column, column_bins, counted),
        }


def _commonest(unseen: Counter[str]) -> list[str]:
    """Return the commonest texts; ties go to the first in the alphabet."""
    return sorted(unseen, key=lambda text: (-unseen[text], text))[:N_SHOWN]


def _gone(column: Compared, bins: Bins, column_seen: Seen) -> list[str]:
    """Return the categories that training had and these rows have not."""
    if not isinstance(column, CategoricalField) or not isinstance(bins, CategoryBins):
        return []
    common = np.flatnonzero(bins.seen >= GONE_SHARE * max(bins.seen.sum(), 1))
    gone = [code for code in common if not column_seen.counts[bins.place[code]]]
    return [column.categories[code][:SHOWN_CHARACTERS] for code in gone[:N_SHOWN]]
