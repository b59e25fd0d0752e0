"""What each input became and why, for easeml.dataset_info, and notices about inputs without information."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.encoder import Field, NumericField, TensorField
from easeml_plpy.packing.source_texts import TextFacts

MOST_NAMED = 20
NOTHING_KNOWN = "NULL in all training rows"
CONSTANT = "the same in all training rows"
IDENTIFIER = "left out: another text in each row, and they look like identifiers"


def explanations(fields: Sequence[Field], facts: Mapping[str, TextFacts]) -> dict[str, str]:
    """Return by column what it became and why; `facts` also has the columns that were left out."""
    left_out = {name: f"{IDENTIFIER} ({texts.explain()})" for name, texts in facts.items() if texts.is_identifier}
    return {field.column: _explain(field, facts.get(field.column)) for field in fields} | left_out


def _explain(field: Field, facts: TextFacts | None) -> str:
    if facts is not None:
        return facts.explain()
    if isinstance(field, CategoricalField):
        return f"categories: {len(field.categories)} values of an enum"
    if isinstance(field, TensorField | TextField):
        return f"array of shape {list(field.shape)}"
    lack = _lack(field)
    if field.is_time:
        parts = ", ".join(("seconds", *field.calendar))
        return f"time: {lack or parts}"
    return f"number: {lack}" if lack else "number"


def _lack(field: Field) -> str | None:
    """Return why an input carries no information, None if it does."""
    if isinstance(field, CategoricalField):
        n_values = len(field.categories) + len(field.missing)
        return NOTHING_KNOWN if not field.categories else CONSTANT if n_values == 1 else None
    if not isinstance(field, NumericField) or not field.knots:
        return None
    n_knots = len(field.knots[0])
    return NOTHING_KNOWN if n_knots == 0 else CONSTANT if n_knots == 1 and not field.missing else None


def notices(fields: Sequence[Field], distinct: Sequence[str]) -> Iterator[str]:
    """Yield a line for each kind of inputs that seem to carry no information; `distinct`: whole numbers that never
    repeat.
    """
    for lack in (NOTHING_KNOWN, CONSTANT):
        columns = [field.column for field in fields if _lack(field) == lack]
        if columns:
            yield f"{_named(columns, 'is', 'are')} {lack}: nothing can be learnt from that"
    if distinct:
        inputs = _named(distinct, "has", "have")
        yield f"{inputs} another whole number in each row: leave out what only names rows, new rows have others"


def _named(columns: Sequence[str], one: str, several: str) -> str:
    """Name inputs at the beginning of a sentence, with its verb."""
    if len(columns) == 1:
        return f"input {columns[0]!r} {one}"
    more = f" and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else ""
    return f"inputs {', '.join(map(repr, columns[:MOST_NAMED]))}{more} {several}"
