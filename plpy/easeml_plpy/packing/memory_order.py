"""Placing of rows that are split at random, by numpy: the server would sort all of easeml_rows three more times.

The session reads shuffle keys and label ranks as two arrays, and writes the places back as one. A temporary table keeps
the arrays meanwhile, because their order assigns each place to its row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from easeml_plpy.columns.sent_columns import int8s
from easeml_plpy.packing.dealing import KEYED, SPLITS, Wanted
from easeml_plpy.packing.random_places import are_filled, places_in_split, splits_at_random
from easeml_plpy.server.session import Command, Session, Statement

MOST_ROWS = 4 << 20
"""Each row takes 64 bytes of the session's memory for a moment, 256 MB in all."""
NEW_ORDER = "CREATE TEMPORARY TABLE easeml_order (row tid, split text, part integer, position integer) ON COMMIT DROP"
NEW_ARRAYS = """
CREATE TEMPORARY TABLE easeml_arrays (rows tid[], k bigint[], ranks bigint[]) ON COMMIT DROP;
ALTER TABLE pg_temp.easeml_arrays
    ALTER rows SET STORAGE EXTERNAL, ALTER k SET STORAGE EXTERNAL, ALTER ranks SET STORAGE EXTERNAL
"""
FILL = """
WITH {keyed}
INSERT INTO pg_temp.easeml_arrays SELECT array_agg(row), array_agg(k), array_agg(rank) FROM {ranked}
"""
RANKED = """(
    SELECT row, k, rank FROM keyed
    JOIN (SELECT y, row_number() OVER (ORDER BY y) - 1 AS rank FROM pg_temp.easeml_rows GROUP BY y) l ON l.y = label
) ranked"""
UNRANKED = "(SELECT row, k, 0::bigint AS rank FROM keyed) unranked"


class _Arrays(NamedTuple):
    """Of all rows in one order: their keys of the shuffle, and the ranks of their labels."""

    k: bytes | None
    ranks: bytes | None


READ = Statement(
    "SELECT {schema}.array_bytes(k) AS k, {schema}.array_bytes(ranks) AS ranks FROM pg_temp.easeml_arrays",
    (),
    _Arrays,
    is_kept=False,
)
# A place is split, partition and position in one number of 50 bits, which a double precision holds exactly.
PLACE = Command(
    """
WITH placed AS (
    SELECT row, place::bigint AS place
    FROM pg_temp.easeml_arrays, ROWS FROM (unnest(rows), unnest({schema}.numbers_of($1))) u(row, place)
)
INSERT INTO pg_temp.easeml_order
SELECT row, ($2)[1 + (place >> 48)], (place >> 32 & 65535)::integer, (place & 4294967295)::integer FROM placed
""",
    ("bytea", "text[]"),
    is_kept=False,
)


def order_held_rows(session: Session, sizes: Wanted, seed: int, n_partitions: int) -> bool:
    """Fill easeml_order; return False, and leave it to the server, where some split lacks rows of a class.

    Rows are at most MOST_ROWS, and partitions fewer than 65,536.
    """
    session.execute(NEW_ARRAYS)
    keyed = KEYED.format(label="y" if sizes.has_labels else "true", seed=int(seed))
    session.execute(FILL.format(keyed=keyed, ranked=RANKED if sizes.has_labels else UNRANKED))
    arrays = session.row(READ)
    k, ranks = int8s(arrays.k), int8s(arrays.ranks)
    splits = splits_at_random(ranks, k, sizes)
    is_placed = not sizes.has_labels or are_filled(splits, ranks, int(ranks.max()) + 1)
    if is_placed:
        session.execute(NEW_ORDER)
        place = places_in_split(splits, k)
        numbers = (splits.astype(np.int64) << 48) + (place % n_partitions << 32) + place // n_partitions
        session.run(PLACE, numbers.astype(np.float64).tobytes(), list(SPLITS))
    session.execute("DROP TABLE pg_temp.easeml_arrays")
    return is_placed
