"""Dealing of groups of rows, none of which may be in two splits: whole groups in turn, each to the split that lacks
most.

Groups come in the order of their rarest label; those of one label are shuffled by a hash. Each split is owed its share
of all rows so far, and a group goes to the split that is owed most (error diffusion). So shares are exact to within the
size of a group, and the groups of each label are spread over the splits. For each label the first groups go one to each
split, unless a group is larger than the split: a group of half the rows trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Command, Session, Statement

N_NAMED = 5
WRITTEN_AT_ONCE = 10_000


class Bin(NamedTuple):
    """A destination of groups: a split, or a fold of it, and its target number of rows."""

    split: str
    n_rows: int
    fold: int | None = None


class Group(NamedTuple):
    """Rows that stay together: the value of their column, how many, and how rare the rarest of their labels is."""

    value: str
    n_rows: int
    rarity: int


class GroupDealer:
    """Assigns one group after the other to a bin, by number."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._shares = [n / sum(sizes) for n in sizes]
        self._owed = [0.0] * len(sizes)
        self._smallest_bin = min(sizes)
        self._rarity: int | None = None
        self._lacking: list[int] = []

    def deal(self, group: Group) -> int:
        """Return the bin of the next group."""
        if group.rarity != self._rarity:
            self._rarity, self._lacking = group.rarity, list(range(len(self._owed)))
        self._owed = [owed + share * group.n_rows for owed, share in zip(self._owed, self._shares, strict=True)]
        if self._lacking and group.n_rows <= self._smallest_bin:
            chosen = self._lacking[0]
        else:
            chosen = max(range(len(self._owed)), key=self._owed.__getitem__)
        self._owed[chosen] -= group.n_rows
        if chosen in self._lacking:
            self._lacking.remove(chosen)
        return chosen


# The rarest label of all comes first. Without labels all groups are of one kind.
GROUPS = """
WITH labels AS (
    SELECT y, row_number() OVER (ORDER BY count(*), y)::int AS rarity FROM pg_temp.easeml_rows GROUP BY y
)
SELECT r.s AS value, count(*) AS n_rows, min(l.rarity) AS rarity FROM pg_temp.easeml_rows r JOIN labels l USING (y)
GROUP BY r.s ORDER BY 3, hash_record_extended(ROW(r.s), {seed}), r.s
"""
KINDLESS_GROUPS = """
SELECT r.s AS value, count(*) AS n_rows, 1 AS rarity FROM pg_temp.easeml_rows r
GROUP BY r.s ORDER BY hash_record_extended(ROW(r.s), {seed}), r.s
"""
WRITE_GROUPS = Command(
    "INSERT INTO pg_temp.easeml_groups SELECT * FROM unnest($1, $2, $3, $4)",
    ("text[]", "int8[]", "text[]", "int4[]"),
    is_kept=False,
)
# An empty bin takes the smallest group of the bin that has the most.
MOVE_GROUP = Command(
    """
UPDATE pg_temp.easeml_groups SET split = $1, fold = $2 WHERE value = (
    SELECT g.value FROM pg_temp.easeml_groups g JOIN (SELECT split, fold FROM pg_temp.easeml_groups
        GROUP BY split, fold ORDER BY count(*) DESC, split, fold LIMIT 1) most
    ON g.split = most.split AND g.fold IS NOT DISTINCT FROM most.fold ORDER BY g.n_rows, g.value LIMIT 1)
""",
    ("text", "int4"),
    is_kept=False,
)


class _Large(NamedTuple):
    """A group that is larger than a split, and how many such groups there are."""

    value: str
    n_rows: int
    split: str
    n_groups: int


LARGE_GROUPS = Statement(
    "SELECT value, n_rows, split, count(*) OVER () AS n_groups FROM pg_temp.easeml_groups"
    " WHERE n_rows > $1 ORDER BY n_rows DESC, value LIMIT 5",
    ("int8",),
    _Large,
    is_kept=False,
)


def deal_groups(session: Session, column: str, seed: int, bins: Sequence[Bin], *, has_labels: bool) -> None:
    """Fill temporary table easeml_groups (value, n_rows, split, fold) from easeml_rows. Raises InvalidData."""
    session.execute(
        "CREATE TEMPORARY TABLE easeml_groups (value text, n_rows bigint, split text, fold integer) ON COMMIT DROP"
    )
    statement = Statement((GROUPS if has_labels else KINDLESS_GROUPS).format(seed=int(seed)), (), Group, is_kept=False)
    dealer, n_groups, used = GroupDealer([share.n_rows for share in bins]), 0, set[int]()
    left = session.each(statement, at_once=1000)
    while groups := list(islice(left, WRITTEN_AT_ONCE)):
        chosen = [dealer.deal(group) for group in groups]
        n_groups += len(groups)
        used.update(chosen)
        places = [bins[number] for number in chosen]
        session.run(
            WRITE_GROUPS,
            [group.value for group in groups],
            [group.n_rows for group in groups],
            [place.split for place in places],
            [place.fold for place in places],
        )
    if n_groups < len(bins):
        kind = "splits" if all(share.fold is None for share in bins) else "folds and test rows"
        raise InvalidData(
            f"group_column: column {column!r} makes {n_groups} groups, and {len(bins)} {kind} need one each",
            hint="Leave group_column out, or name a column with more values.",
        )
    for number in sorted(set(range(len(bins))) - used):
        session.run(MOVE_GROUP, bins[number].split, bins[number].fold)
    _notify_large(session, column, bins)


def _notify_large(session: Session, column: str, bins: Sequence[Bin]) -> None:
    """Send a notice that names groups larger than a split's target, which explains unexpected shares."""
    smallest = min(bins, key=lambda share: share.n_rows)
    large = session.rows(LARGE_GROUPS, smallest.n_rows)
    if large:
        named = ", ".join(f"{group.value[:40]!r} ({group.n_rows} rows, in {group.split})" for group in large)
        more = f" and {large[0].n_groups - N_NAMED} more" if large[0].n_groups > N_NAMED else ""
        session.notice(
            f"group_column: some groups of {column!r} are larger than the {smallest.n_rows} rows of the"
            f" {smallest.split} {'split' if smallest.fold is None else 'fold'}, so shares differ from those asked for:"
            f" {named}{more}"
        )
