"""On the control server: combines the answers of all nodes into what one server would have found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.columns import Column
from easeml_plpy.columns.encoder import Field, Target
from easeml_plpy.columns.tokens import width_for
from easeml_plpy.packing import packing, source_documents, source_rows, source_shapes, source_texts, splitting
from easeml_plpy.packing.on_nodes.places import parts_of
from easeml_plpy.packing.on_nodes.request import (
    fields_json,
    fields_of,
    needed_columns,
    pack_request,
    sources_of,
    target_of,
)
from easeml_plpy.packing.on_nodes.staging import counted
from easeml_plpy.packing.on_nodes.tables import check_same
from easeml_plpy.packing.pack_request import PackRequest
from easeml_plpy.packing.source_documents import Key
from easeml_plpy.packing.source_rows import C_ORDERED, MAX_LABELS, TargetNumbers
from easeml_plpy.packing.source_shapes import ShapeFacts
from easeml_plpy.packing.source_texts import TextFacts
from easeml_plpy.server.errors import InvalidArgument, InvalidData
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import Told

# A user's domain or cast would run with the rights of the service: enums have neither.
ENUM_LABELS: Statement[list[str]] = Statement(
    "SELECT ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder) AS labels"
    " FROM pg_type t WHERE t.oid = to_regtype($1) AND t.typtype = 'e'",
    ("text",),
    only_column,
)


def begin(session: Session, message: Told) -> dict[str, Any]:
    """Prepare the transaction; a new session imports what it needs while the nodes read."""
    session.execute(packing.SETTINGS)
    return {}


def settle_source(session: Session, message: Told) -> dict[str, Any]:
    """Create the table for the narrow rows, and return what `settled_source` returns."""
    settled = settled_source(session, message)
    if message["shuffle"] == "across":
        _make_narrow_table(session, pack_request(message), _types(pack_request(message), message))
    return settled


def settled_source(session: Session, message: Told) -> dict[str, Any]:
    """Return target, inputs and shapes, and which partitions each node gets. Raises InvalidArgument, InvalidData."""
    request, answers = pack_request(message), message["found"]
    types = _types(request, message)
    where = "the root table" if message.get("columns") else _named(answers[0])
    # SQL is written with the types: after this check they are those of a server.
    check_same(types, [(_named(answer), answer["columns"]) for answer in answers], where)
    n_rows, n_known = (sum(answer[name] for answer in answers) for name in ("n", "n_known"))
    n_skipped = source_rows.n_without_target(session, request, n_rows, n_known)
    columns = columns_in(message)
    target = _target(session, request, columns[request.target], answers)
    shapes = {k: _merged_shapes([answer["shapes"][k] for answer in answers]) for k in answers[0]["shapes"]}
    inputs: list[Field] = [columns_of.input_field(columns[name]) for name in request.inputs]
    fields = source_shapes.shaped_fields(request, inputs, {int(k): facts for k, facts in shapes.items()})
    rows_by_segment = {answer["segment"]: answer["n_known"] for answer in answers}
    parts = parts_of(message["shuffle"], request.n_partitions, rows_by_segment, message["holders"])
    settled = {"n_skipped": n_skipped, "shapes": shapes, "parts_by_segment": parts}
    return settled | {"target_json": target.to_json(), "fields": fields_json(fields)}


def columns_in(message: Told) -> dict[str, Column]:
    """Return the columns that are read, by name."""
    kinds = message["found"][0]["kinds"]
    types = _types(pack_request(message), message)
    return {name: Column(name, kind, kinds[name], "", kind.startswith("_")) for name, kind in types.items()}


def _types(request: PackRequest, message: Told) -> dict[str, str]:
    """Return the types of the columns that are read: those of the root table, else of the first node."""
    types: Mapping[str, str] = message.get("columns") or message["found"][0]["columns"]
    needed = needed_columns(request)
    unknown = [name for name in needed if name not in types]
    if unknown:
        raise InvalidArgument(f"{request.source} has no column {unknown[0]!r} that role {message['role']} may read")
    return {name: types[name] for name in needed}


def _named(answer: Mapping[str, Any]) -> str:
    return f"segment {answer['segment']}"


def type_sql(sql_type: str) -> str:
    """Return a type of the server, or an enum of a user, as SQL writes it."""
    return sql_type if "." in sql_type else f'pg_catalog."{sql_type}"'


def _make_narrow_table(session: Session, request: PackRequest, types: Mapping[str, str]) -> None:
    """Make the table by which rows are dealt: the place of each row, its target, its hash, its splitting value."""
    y, by = type_sql(types[request.target]), request.split_by
    s = "integer" if by is None else 'text COLLATE "C"'
    if by is not None and by.argument == "time_column":
        s = type_sql(types[by.column])
    session.execute(
        f"CREATE TEMPORARY TABLE easeml_rows (node integer, id tid, y {y}, h bigint, s {s}, key text) ON COMMIT DROP"
    )


def _target(session: Session, request: PackRequest, column: Column, answers: Sequence[Told]) -> Target:
    if source_rows.task_of(request, column) == "classification":
        labels = _ordered_labels(session, column, answers)
        n_rows = sum(answer["n_known"] for answer in answers)
        is_open = source_rows.is_left_open(request, column)
        if not (is_open and source_rows.are_measured(session, request, n_rows, len(labels))):
            return source_rows.label_target(request, column, labels)
    lows = [float(answer["low"]) for answer in answers if answer["low"] is not None]
    highs = [float(answer["high"]) for answer in answers if answer["high"] is not None]
    n_bad = sum(answer["n_bad"] for answer in answers)
    return source_rows.number_target(request, column, TargetNumbers(n_bad, min(lows) == max(highs)))


def _ordered_labels(session: Session, column: Column, answers: Sequence[Told]) -> list[str]:
    """Return the labels of all nodes in the order of their type. Raises InvalidData."""
    labels = list(dict.fromkeys(label for answer in answers for label in answer["labels"]))[: MAX_LABELS + 1]
    if "." in column.type:
        return [label for label in _enum_labels(session, column, labels) if label in set(labels)]
    collate = ' COLLATE "C"' if column.type in C_ORDERED else ""
    sql = f"SELECT l AS label FROM unnest($1) l ORDER BY l::{type_sql(column.type)}{collate}"
    ordered: Statement[str] = Statement(sql, ("text[]",), only_column, is_kept=False)
    return session.rows(ordered, labels)


def _enum_labels(session: Session, column: Column, labels: Sequence[str]) -> list[str]:
    """Return the labels of an enum of this server, which has to know all that the nodes have. Raises InvalidData."""
    enums = session.rows(ENUM_LABELS, column.type)
    unknown = [label for label in labels if not enums or label not in enums[0]]
    if unknown:
        raise InvalidData(
            f"the target {column.name!r} has type {column.type}, an enum that is not here or lacks {unknown[0]!r}",
            hint="Create the same enum on the control server, or make the target a text.",
        )
    return enums[0]


def _merged_shapes(facts: Sequence[Sequence[Any]]) -> ShapeFacts:
    counts: Counter[Any] = Counter()
    for sizes, _ in facts:
        counts.update(dict(sizes))
    return ShapeFacts(counts.most_common(3), sum(n_missing for _, n_missing in facts))


def settle_places(session: Session, message: Told) -> dict[str, Any]:
    """Return how many rows each split has in each partition; rows that move are dealt here, by their hashes."""
    if message["shuffle"] == "within":
        return {"rows": sorted(entry for answer in message["found"] for entry in answer["rows"])}
    request = pack_request(message)
    splitting.order_rows(session, request, target_of(message))
    splitting.check_splits(session, request)
    return {"rows": counted(session)}


def settle_keys(session: Session, message: Told) -> dict[str, Any]:
    """Return the inputs with one for each key of JSON."""
    keys: dict[str, dict[str, list[int]]] = {}
    for answer in message["found"]:
        for column, entries in answer["keys"].items():
            merged = keys.setdefault(column, {})
            for key, *counts in entries:
                merged[key] = [a + b for a, b in zip(merged.get(key, [0] * len(counts)), counts, strict=True)]
    ordered = {
        column: sorted((Key(key, *counts) for key, counts in merged.items()), key=lambda k: (-k.n_rows, k.key))
        for column, merged in keys.items()
    }
    session.execute("CREATE TEMPORARY TABLE easeml_hashes (k integer, h bigint) ON COMMIT DROP")
    sources = source_documents.expanded(session, sources_of(message), ordered)
    return {"fields": fields_json([source.field for source in sources])}


def settle_texts(session: Session, message: Told) -> dict[str, Any]:
    """Return what columns of texts become, and why."""
    distinct = session.execute("SELECT k, count(DISTINCT h) AS n FROM pg_temp.easeml_hashes GROUP BY k")
    n_distinct = {int(row["k"]): int(row["n"]) for row in distinct}
    sources = sources_of(message)
    facts = {}
    for k, column in enumerate(source_texts.text_values(sources)):
        sums = [sum(numbers) for numbers in zip(*(answer["sums"][column] for answer in message["found"]), strict=True)]
        facts[column] = source_texts.facts_from(sums, n_distinct.get(k, 0))
    kept = source_texts.without_identifiers(session, sources, facts)
    fields = [source_texts.text_field(source.field, facts.get(source.field.column)) or source.field for source in kept]
    session.execute('CREATE TEMPORARY TABLE easeml_values (k integer, value text COLLATE "C", n bigint) ON COMMIT DROP')
    fact_entries = {column: asdict(column_facts) for column, column_facts in facts.items()}
    n_dictionaries = source_texts.most_categories(kept)
    return {"fields": fields_json(fields), "facts": fact_entries, "most_categories": n_dictionaries}


def settle_dictionaries(session: Session, message: Told) -> dict[str, Any]:
    """Return the inputs with their dictionaries and widths, and how many rows a block has."""
    fields = [_with_dictionary(session, message, k, field) for k, field in enumerate(fields_of(message))]
    session.execute("CREATE TEMPORARY TABLE easeml_facts (part integer, block integer, facts bytea) ON COMMIT DROP")
    block_rows = packing.block_rows_of(pack_request(message).block_rows, fields)
    return {"fields": fields_json(fields), "rows_of_block": block_rows}


def _with_dictionary(session: Session, message: Told, k: int, field: Field) -> Field:
    if isinstance(field, TextField):
        counts = [n for answer in message["found"] for n in answer["token_counts"][str(k)]]
        return replace(field, width=width_for(counts))
    if not isinstance(field, CategoricalField):
        return field
    most = message["most_categories"]
    rows = session.execute(
        f"SELECT value, sum(n)::bigint AS n FROM pg_temp.easeml_values WHERE k = {k} GROUP BY 1"
        f" ORDER BY 2 DESC, 1 LIMIT {int(most) + 1}"
    )
    return source_texts.with_categories(field, [(row["value"], row["n"]) for row in rows], most)


def facts_of(message: Told) -> dict[str, TextFacts]:
    """Return the facts about each column of texts."""
    return {column: TextFacts(**entry) for column, entry in message["facts"].items()}
