"""What a column of texts becomes: categories, a text of words or of characters, or nothing if it only identifies rows.

The rule reads training rows only, and `explain` states its result in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.columns import TEXTS, TRAINING_ROWS, Source
from easeml_plpy.columns.encoder import Field
from easeml_plpy.columns.target_statistics import MANY
from easeml_plpy.columns.tokens import MOST_CHARACTERS, token_counts, width_for
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Session

MOST_CATEGORIES = 4_096
ALL_CATEGORIES = 1 << 16
"""Limit for the entries of all dictionaries together: the encoder has to stay small."""
MOST_CATEGORY_CHARACTERS = 200
SEVERAL_WORDS = 2.5
COLUMNS_AT_ONCE = 100
"""Columns per query: one row of the server cannot hold the facts of all columns."""
N_SAMPLED = 2_000
LEAST_IDENTIFIED_ROWS = 50
IDENTIFIER = "^([[:xdigit:]]{8}(-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}|[[:xdigit:]]{16,}|[[:alpha:]]{0,6}[-_#]?[0-9]+)$"
"""Texts that name rows and carry no information about them: UUIDs, numbers with a common beginning, hashes."""


T = TypeVar("T")


@dataclass(frozen=True)
class TextFacts:
    """Statistics of the texts of a column in the training rows: rows with a text, distinct texts, mean length, mean
    number of words, and the share of texts that look like identifiers.
    """

    n_known: int
    n_distinct: int
    mean_length: float
    mean_words: float
    identifier_share: float

    @property
    def is_long(self) -> bool:
        """Whether the texts are too long for a dictionary."""
        return self.mean_length > MOST_CATEGORY_CHARACTERS

    @property
    def is_identifier(self) -> bool:
        """Whether each row has a different text that looks like a number or a hash."""
        return self.n_distinct == self.n_known >= LEAST_IDENTIFIED_ROWS and self.identifier_share > 0.95

    @property
    def analyzer(self) -> str | None:
        """How the texts are cut into tokens; None: they are categories."""
        if self.is_long:
            return "words"
        if self.n_distinct <= MANY:
            return None
        if self.mean_words >= SEVERAL_WORDS and self.n_distinct > self.n_known / 20:
            return "words"
        return "characters" if self.n_distinct > self.n_known / 2 else None

    def explain(self) -> str:
        """Return why the texts become what they become."""
        counts = f"{self.n_distinct} different texts in {self.n_known} training rows"
        if self.analyzer == "words":
            return f"words: {counts}, of {self.mean_words:.1f} words and {self.mean_length:.0f} characters on average"
        if self.analyzer == "characters":
            return f"pieces of 2 to 4 characters: {counts}, more than half as many as rows, and short"
        return f"categories: {counts}"


_FACTS = {
    "known": "count({v})",
    "distinct": "count(DISTINCT hashtextextended({v}, 0))",
    "length": "coalesce(avg(length({v})), 0)::float8",
    "words": "coalesce(avg(1 + length({s}) - length(translate({s}, E' \\t\\n', ''))), 0)::float8",
    "identifiers": "coalesce(avg(({s} ~ '{pattern}')::int), 0)::float8",
}


def read_facts(session: Session, inputs: Sequence[Source]) -> dict[str, TextFacts]:
    """Return the facts of each column of texts, by its name; enums are categories by nature."""
    values = text_values(inputs)
    facts: dict[str, TextFacts] = {}
    for some in batched(values.items(), COLUMNS_AT_ONCE):
        facts |= _read_some(session, dict(some))
    return facts


def text_values(inputs: Sequence[Source]) -> dict[str, str]:
    """Return SQL of the value of each column of texts, by its name."""
    return {
        source.field.column: source.value
        for source in inputs
        if isinstance(source.field, CategoricalField) and (source.field.type in TEXTS or source.field.within)
    }


def _read_some(session: Session, values: Mapping[str, str]) -> dict[str, TextFacts]:
    expressions = (
        f"{sql.format(v=value, s=f'left({value}, {MOST_CHARACTERS})', pattern=IDENTIFIER)} AS {name}{k}"
        for k, value in enumerate(values.values())
        for name, sql in _FACTS.items()
    )
    row = session.execute(f"SELECT {', '.join(expressions)} FROM {TRAINING_ROWS}")[0]
    return {column: TextFacts(*(row[f"{name}{k}"] for name in _FACTS)) for k, column in enumerate(values)}


_SUMS = {name: sql.replace("coalesce(avg(", "coalesce(sum(") for name, sql in _FACTS.items() if name != "distinct"}


def text_sums(session: Session, value: str) -> list[int]:
    """Return of a column of training rows: rows with a text, and sums of length, words, and likeness to identifiers."""
    short = f"left({value}, {MOST_CHARACTERS})"
    expressions = [f"{sql.format(v=value, s=short, pattern=IDENTIFIER)} AS {name}" for name, sql in _SUMS.items()]
    row = session.execute(f"SELECT {', '.join(expressions)} FROM {TRAINING_ROWS}")[0]
    return [int(row[name]) for name in _SUMS]


def facts_from(sums: Sequence[int], n_distinct: int) -> TextFacts:
    """Return the facts of texts from sums over all training rows, on one server or several."""
    n_known, *totals = sums
    return TextFacts(n_known, n_distinct, *(total / max(n_known, 1) for total in totals))


def batched(items: Iterable[T], n: int) -> Iterator[tuple[T, ...]]:
    """Yield the items, n at a time."""
    left = iter(items)
    while some := tuple(islice(left, n)):
        yield some


def without_identifiers(session: Session, inputs: Sequence[Source], facts: Mapping[str, TextFacts]) -> list[Source]:
    """Return the inputs that carry information about rows, and send a notice about the others. Raises InvalidData."""
    left_out = [column for column, column_facts in facts.items() if column_facts.is_identifier]
    kept = [source for source in inputs if source.field.column not in left_out]
    if not kept:
        raise InvalidData(
            f"inputs: {', '.join(map(repr, left_out))} only names rows: each row has another identifier",
            hint="Name inputs that rows have in common.",
        )
    for column in left_out:
        session.notice(f"input {column!r} is left out: each row has another text, and they look like identifiers")
    return kept


def with_dictionaries(
    session: Session, inputs: Sequence[Source], facts: Mapping[str, TextFacts], n_partitions: int
) -> list[Source]:
    """Return the inputs with the commonest values of each column of categories, and with texts as such."""
    most = most_categories(inputs)
    return [_with_dictionary(session, source, facts.get(source.field.column), most, n_partitions) for source in inputs]


def most_categories(inputs: Sequence[Source]) -> int:
    """Return how many categories a column may have."""
    n_dictionaries = sum(isinstance(source.field, CategoricalField) for source in inputs)
    return max(MANY, min(MOST_CATEGORIES, ALL_CATEGORIES // max(n_dictionaries, 1)))


def _with_dictionary(session: Session, source: Source, facts: TextFacts | None, most: int, n_partitions: int) -> Source:
    text = text_field(source.field, facts)
    if text is not None:
        counts = token_counts(text.analyzer, sampled_texts(session, source.value, n_partitions))
        return Source(replace(text, width=width_for(counts)), source.value)
    if not isinstance(source.field, CategoricalField):
        return source
    rows = session.execute(
        f"SELECT {source.value} AS value, count(*) AS n FROM {TRAINING_ROWS} "
        f'GROUP BY 1 ORDER BY n DESC, {source.value} COLLATE "C" LIMIT {most + 1}'
    )
    return Source(with_categories(source.field, [(row["value"], row["n"]) for row in rows], most), source.value)


def text_field(field: Field, facts: TextFacts | None) -> TextField | None:
    """Return the free text that a column of texts becomes; None if it becomes something else."""
    if not isinstance(field, CategoricalField) or facts is None or facts.analyzer is None:
        return None
    return TextField(column=field.column, type=field.type, within=field.within, analyzer=facts.analyzer)


def with_categories(
    field: CategoricalField, commonest: Sequence[tuple[str | None, int]], most: int
) -> CategoricalField:
    """Return the field with the commonest texts: the first 64, and of the others those that occur more than once,
    because a unique text tells nothing about other rows. `commonest`: (text, rows), one more than `most` if there are.
    """
    values = [value for value, _ in commonest if value is not None]
    n_often = sum(n > 1 for value, n in commonest if value is not None)
    missing = (0,) if len(values) < len(commonest) else ()
    return replace(field, missing=missing, categories=tuple(values[: max(MANY, min(most, n_often))]))


def sampled_texts(session: Session, value: str, n_partitions: int) -> list[str]:
    """Return the beginnings of some training texts of each partition."""
    rows = session.execute(
        f"SELECT left({value}, {MOST_CHARACTERS}) AS text FROM {TRAINING_ROWS} AND {value} IS NOT NULL"
        f" AND o.position < {math.ceil(N_SAMPLED / n_partitions)}"
    )
    return [row["text"] for row in rows]
