"""Which row the product puts into which split.

The split follows from the rows and the seed alone, so what is measured packs again and has the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from easeml_db.errors import InvalidData
from easeml_experiments.experiment_server import Session
from easeml_experiments.tables.loading import KEY
from easeml_experiments.tables.table import Table


@dataclass(frozen=True)
class Loaded:
    """A table in the database, its dataset's seed, and the split of every row, by number of row."""

    table: Table
    inputs: list[str]
    seed: int
    splits: NDArray[np.str_]


SPLITS = ("train", "validation", "test")


def split_of(session: Session, table: Table, inputs: list[str], seed: int) -> NDArray[np.str_]:
    """Return the split of every row of a loaded table, by number of row. Raises InvalidData if a row has none."""
    pack(session, table, inputs, seed)
    found = session.execute(
        "SELECT row_key::bigint AS row, split FROM easeml.dataset_rows(%s)", [table.name]
    ).fetchall()
    session.execute("SELECT easeml.drop_dataset(%s)", [table.name])
    if sorted(row["row"] for row in found) != list(range(len(found))):
        raise InvalidData(f"{table.name}: packing split other rows than those of the table")
    splits = np.empty(len(found), dtype=f"U{max(map(len, SPLITS))}")
    splits[[row["row"] for row in found]] = [row["split"] for row in found]
    return splits


def pack(session: Session, table: Table, inputs: list[str], seed: int) -> None:
    """Make the table a dataset of its own name, with the product's defaults."""
    session.execute(
        "SELECT easeml.create_dataset(%s, source => %s, inputs => %s, target => %s, seed => %s, task => %s)",
        [table.name, f'"{table.name}"', inputs, table.target, seed, table.task],
    )


def mark_test_rows(session: Session, table: Table, splits: NDArray[np.str_]) -> str:
    """Create a view of the test rows, and return its name."""
    name, chosen = f"{table.name}_test", [int(place) for place in np.flatnonzero(splits == "test")]
    session.execute(sql.SQL("CREATE TABLE {} (place bigint PRIMARY KEY)").format(sql.Identifier(f"{name}_places")))
    with session.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(f"{name}_places"))) as copy:
        for place in chosen:
            copy.write_row((place,))
    session.execute(
        sql.SQL("CREATE VIEW {} AS SELECT t.* FROM {} t JOIN {} p ON p.place = t.{}").format(
            *map(sql.Identifier, (name, table.name, f"{name}_places", KEY))
        )
    )
    return name


def digest_of(splits: NDArray[np.str_]) -> str:
    """Return a short text that is the same for the same split."""
    return sha256("".join(split[1] for split in splits).encode()).hexdigest()[:16]
