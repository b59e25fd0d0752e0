"""Classes with few rows: each split gets a row of every class that has three, and a notice names the others.

Rows at even distances miss a class that has fewer rows than the distance, and then metrics measure all classes but that
one. Such a class gives its first row to training, the second to the test, the third to validation. In return the
commonest classes of a split that became too large give as many rows back to training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from easeml_plpy.columns.columns import text_sql
from easeml_plpy.columns.encoder import LabelTarget
from easeml_plpy.packing.dealing import Wanted
from easeml_plpy.server.session import Command, Session, Statement

N_NAMED = 10
ROWS_FOR_EACH_SPLIT = 3


def _in_splits(splits: Sequence[str]) -> str:
    return ", ".join(f"count(*) FILTER (WHERE split = '{split}')" for split in splits)


def _repair(splits: Sequence[str]) -> Command:
    places = ["train", "test", "validation" if "validation" in splits else "train"]
    return Command(
        f"""
WITH lacking AS (
    SELECT label FROM pg_temp.easeml_dealt GROUP BY label
    HAVING count(*) >= {ROWS_FOR_EACH_SPLIT} AND least({_in_splits(splits)}) = 0
), firsts AS (
    SELECT d.row, row_number() OVER (PARTITION BY d.label ORDER BY d.k) AS n
    FROM pg_temp.easeml_dealt d JOIN lacking l ON l.label = d.label
)
UPDATE pg_temp.easeml_dealt d SET split = (ARRAY{places})[f.n]
FROM firsts f WHERE f.row = d.row AND f.n <= {ROWS_FOR_EACH_SPLIT}
""",
        (),
        is_kept=False,
    )


# A class keeps its first row in the split, so those with the most rows there give first.
GIVE_BACK = Command(
    """
WITH numbered AS (
    SELECT row, k, row_number() OVER (PARTITION BY label ORDER BY k) AS n FROM pg_temp.easeml_dealt WHERE split = $1
), given AS (
    SELECT row FROM numbered WHERE n > 1 ORDER BY n DESC, k
    LIMIT greatest((SELECT count(*) FROM numbered) - $2, 0)
)
UPDATE pg_temp.easeml_dealt d SET split = 'train' FROM given g WHERE g.row = d.row
""",
    ("text", "int8"),
    is_kept=False,
)


class _Missing(NamedTuple):
    """A class that some split has no row of: its rows, and those in each split."""

    name: str
    n_rows: int
    in_splits: list[int]

    def shown(self, splits: Sequence[str]) -> str:
        """Return the class in words."""
        places = ", ".join(split for split, n in zip(splits, self.in_splits, strict=True) if not n)
        return f"{self.name[:40]!r} ({self.n_rows} row{'s' * (self.n_rows > 1)}, none in {places})"


class _Short(NamedTuple):
    """A class with fewer training rows than there are folds."""

    name: str
    n_rows: int


def put_into_each_split(session: Session, sizes: Wanted) -> None:
    """Give every split of easeml_dealt a row of each class that has three, and keep the sizes of the splits."""
    if not session.run(_repair(sizes.splits)):
        return
    for split in sizes.splits[1:]:
        session.run(GIVE_BACK, split, sizes.of(split))


def notify_missing(session: Session, target: LabelTarget, sizes: Wanted) -> None:
    """Send notices that name the classes that some split or fold has no row of, those with the fewest rows first."""
    sql = (
        f"SELECT {text_sql(target.type, 'label')} AS name, count(*) AS n_rows,"
        f" ARRAY[{_in_splits(sizes.splits)}] AS in_splits"
        f" FROM pg_temp.easeml_dealt GROUP BY label HAVING least({_in_splits(sizes.splits)}) = 0 ORDER BY 2, 1"
    )
    missing = session.rows(Statement(sql, (), _Missing, is_kept=False))
    if missing:
        session.notice(
            f"the metrics of a split know nothing of classes without rows there: {len(missing)} of the"
            f" {len(target.labels)} classes of {target.column!r} have no row in some split:"
            f" {_named([rare.shown(sizes.splits) for rare in missing])}"
        )
    if sizes.n_folds:
        _notify_short(session, target, sizes.n_folds)


def _notify_short(session: Session, target: LabelTarget, n_folds: int) -> None:
    sql = (
        f"SELECT {text_sql(target.type, 'label')} AS name, count(*) AS n_rows FROM pg_temp.easeml_dealt"
        f" WHERE split = 'train' GROUP BY label HAVING count(*) < {int(n_folds)} ORDER BY 2, 1"
    )
    short = session.rows(Statement(sql, (), _Short, is_kept=False))
    if short:
        classes = [f"{rare.name[:40]!r} ({rare.n_rows})" for rare in short]
        session.notice(
            f"{len(short)} of the {len(target.labels)} classes of {target.column!r} have fewer training rows than the"
            f" {n_folds} folds, so some folds measure without them: {_named(classes)}"
        )


def _named(classes: Sequence[str]) -> str:
    more = f"; and {len(classes) - N_NAMED} more" if len(classes) > N_NAMED else ""
    return "; ".join(classes[:N_NAMED]) + more
