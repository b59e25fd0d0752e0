"""Which row the product puts into which split.

The split follows from the rows and the seed alone. Packing forgets it when it drops its temporary tables, so a first
packing runs under an event trigger that writes it down before. What is measured packs again, without the trigger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
# Packing copies the rows in their order in the table, so places in its copy are places in the table. They need not be
# in the order in which rows came: a short row may have found room in an earlier page.
KEEPER = """
CREATE TABLE public.kept_split (place bigint, split text);
GRANT INSERT ON public.kept_split TO PUBLIC;
CREATE FUNCTION public.keep_split() RETURNS event_trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF to_regclass('pg_temp.easeml_rows') IS NOT NULL AND to_regclass('pg_temp.easeml_order') IS NOT NULL THEN
        INSERT INTO public.kept_split SELECT row_number() OVER (ORDER BY r.ctid) - 1, o.split
        FROM pg_temp.easeml_rows r JOIN pg_temp.easeml_order o ON o.row = r.ctid;
    END IF;
END
$$;
CREATE EVENT TRIGGER keep_split ON ddl_command_start WHEN TAG IN ('DROP TABLE') EXECUTE FUNCTION public.keep_split()
"""
FORGETTING = """
DROP EVENT TRIGGER keep_split;
DROP FUNCTION public.keep_split;
DROP TABLE public.kept_split
"""


def split_of(superuser: Session, session: Session, table: Table, inputs: list[str], seed: int) -> NDArray[np.str_]:
    """Return the split of every row of a loaded table, by number of row. Raises InvalidData if a row has none."""
    with _keeping(superuser):
        # A parallel or a synchronised scan would copy the rows in another order.
        session.execute("SET max_parallel_workers_per_gather = 0")
        session.execute("SET synchronize_seqscans = off")
        pack(session, table, inputs, seed)
        session.execute("SELECT easeml.drop_dataset(%s)", [table.name])
        session.execute("RESET max_parallel_workers_per_gather")
        session.execute("RESET synchronize_seqscans")
        kept = superuser.execute("SELECT place, split FROM public.kept_split ORDER BY place").fetchall()
    keys = session.execute(
        sql.SQL("SELECT {} AS key FROM {} ORDER BY ctid").format(sql.Identifier(KEY), sql.Identifier(table.name))
    ).fetchall()
    if [row["place"] for row in kept] != list(range(len(keys))):
        raise InvalidData(f"{table.name}: packing split {len(kept)} of {len(keys)} rows")
    splits = np.empty(len(keys), dtype=f"U{max(map(len, SPLITS))}")
    splits[[row["key"] for row in keys]] = [row["split"] for row in kept]
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


@contextmanager
def _keeping(superuser: Session) -> Iterator[None]:
    superuser.execute(KEEPER)
    try:
        yield
    finally:
        superuser.execute(FORGETTING)
