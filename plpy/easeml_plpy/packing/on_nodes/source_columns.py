"""On the control server: what all nodes found, put together as one server would have found it."""

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


def begin(session: Session, told: Told) -> dict[str, Any]:
    """Prepare the transaction; a new session imports what it needs while the nodes read."""
    session.execute(packing.SETTINGS)
    return {}


def settle_source(session: Session, told: Told) -> dict[str, Any]:
    """Return target, inputs and shapes; which partitions each node gets; and make the table for the narrow rows."""
    settled = settled_source(session, told)
    if told["shuffle"] == "across":
        _make_narrow_table(session, pack_request(told), _types(pack_request(told), told))
    return settled


def settled_source(session: Session, told: Told) -> dict[str, Any]:
    """Return target, inputs and shapes, and which partitions each node gets. Raises InvalidArgument, InvalidData."""
    wanted, found = pack_request(told), told["found"]
    types = _types(wanted, told)
    where = "the root table" if told.get("columns") else _named(found[0])
    check_same(types, [(_named(each), each["columns"]) for each in found], where)  # so they are types of a server
    n_rows = [each["n_known"] for each in found]
    n_skipped = source_rows.n_without_target(session, wanted, sum(each["n"] for each in found), sum(n_rows))
    columns = columns_told(told)
    target = _target(session, wanted, columns[wanted.target], found)
    shapes = {k: _merged_shapes([each["shapes"][k] for each in found]) for k in found[0]["shapes"]}
    inputs: list[Field] = [columns_of.input_field(columns[name]) for name in wanted.inputs]
    fields = source_shapes.shaped_fields(wanted, inputs, {int(k): facts for k, facts in shapes.items()})
    names = [each["segment"] for each in found]
    parts = parts_of(told["shuffle"], wanted.n_partitions, dict(zip(names, n_rows, strict=True)), told["holders"])
    settled = {"n_skipped": n_skipped, "shapes": shapes, "parts_by_segment": parts}
    return settled | {"target_json": target.to_json(), "fields": fields_json(fields)}


def columns_told(told: Told) -> dict[str, Column]:
    """Return the columns that are read, by name."""
    kinds = told["found"][0]["kinds"]
    types = _types(pack_request(told), told)
    return {name: Column(name, kind, kinds[name], "", kind.startswith("_")) for name, kind in types.items()}


def _types(wanted: PackRequest, told: Told) -> dict[str, str]:
    """Return the types of the columns that are read: those of the root table, else of the first node."""
    known: Mapping[str, str] = told.get("columns") or told["found"][0]["columns"]
    needed = needed_columns(wanted)
    unknown = [name for name in needed if name not in known]
    if unknown:
        raise InvalidArgument(f"{wanted.source} has no column {unknown[0]!r} that role {told['role']} may read")
    return {name: known[name] for name in needed}


def _named(found: Mapping[str, Any]) -> str:
    return f"segment {found['segment']}"


def type_sql(sql_type: str) -> str:
    """Return a type of the server, or an enum of a user, as SQL writes it."""
    return sql_type if "." in sql_type else f'pg_catalog."{sql_type}"'


def _make_narrow_table(session: Session, wanted: PackRequest, types: Mapping[str, str]) -> None:
    """Make the table by which rows are dealt: the place of each row, its target, its hash, its splitting value."""
    y, by = type_sql(types[wanted.target]), wanted.split_by
    s = "integer" if by is None else 'text COLLATE "C"'
    if by is not None and by.argument == "time_column":
        s = type_sql(types[by.column])
    session.execute(
        f"CREATE TEMPORARY TABLE easeml_rows (node integer, id tid, y {y}, h bigint, s {s}, key text) ON COMMIT DROP"
    )


def _target(session: Session, wanted: PackRequest, column: Column, found: Sequence[Told]) -> Target:
    if source_rows.task_of(wanted, column) == "classification":
        labels = _ordered_labels(session, column, found)
        n_rows = sum(each["n_known"] for each in found)
        is_open = source_rows.is_left_open(wanted, column)
        if not (is_open and source_rows.are_measured(session, wanted, n_rows, len(labels))):
            return source_rows.label_target(wanted, column, labels)
    lows = [float(each["low"]) for each in found if each["low"] is not None]
    highs = [float(each["high"]) for each in found if each["high"] is not None]
    n_bad = sum(each["n_bad"] for each in found)
    return source_rows.number_target(wanted, column, TargetNumbers(n_bad, min(lows) == max(highs)))


def _ordered_labels(session: Session, column: Column, found: Sequence[Told]) -> list[str]:
    """Return the labels of all nodes in the order of their type. Raises InvalidData."""
    labels = list(dict.fromkeys(label for each in found for label in each["labels"]))[: MAX_LABELS + 1]
    if "." in column.type:
        known = _enum_labels(session, column, labels)
        return [label for label in known if label in set(labels)]
    collate = ' COLLATE "C"' if column.type in C_ORDERED else ""
    sql = f"SELECT l AS label FROM unnest($1) l ORDER BY l::{type_sql(column.type)}{collate}"
    ordered: Statement[str] = Statement(sql, ("text[]",), only_column, is_kept=False)
    return session.rows(ordered, labels)


def _enum_labels(session: Session, column: Column, labels: Sequence[str]) -> list[str]:
    """Return the labels of an enum of this server, which has to know all that the nodes have. Raises InvalidData."""
    known = session.rows(ENUM_LABELS, column.type)
    unknown = [label for label in labels if not known or label not in known[0]]
    if unknown:
        raise InvalidData(
            f"the target {column.name!r} has type {column.type}, an enum that is not here or lacks {unknown[0]!r}",
            hint="Create the same enum on the control server, or make the target a text.",
        )
    return known[0]


def _merged_shapes(facts: Sequence[Sequence[Any]]) -> ShapeFacts:
    counts: Counter[Any] = Counter()
    for found, _ in facts:
        counts.update(dict(found))
    return ShapeFacts(counts.most_common(3), sum(n_missing for _, n_missing in facts))


def settle_places(session: Session, told: Told) -> dict[str, Any]:
    """Return how many rows each split has in each partition; rows that move are dealt here, by their hashes."""
    if told["shuffle"] == "within":
        return {"rows": sorted(entry for each in told["found"] for entry in each["rows"])}
    wanted = pack_request(told)
    splitting.order_rows(session, wanted, target_of(told))
    splitting.check_splits(session, wanted)
    return {"rows": counted(session)}


def settle_keys(session: Session, told: Told) -> dict[str, Any]:
    """Return the inputs with one for each key of JSON."""
    keys: dict[str, dict[str, list[int]]] = {}
    for each in told["found"]:
        for column, entries in each["keys"].items():
            merged = keys.setdefault(column, {})
            for key, *counts in entries:
                merged[key] = [a + b for a, b in zip(merged.get(key, [0] * len(counts)), counts, strict=True)]
    ordered = {
        column: sorted((Key(key, *counts) for key, counts in merged.items()), key=lambda k: (-k.n_rows, k.key))
        for column, merged in keys.items()
    }
    session.execute("CREATE TEMPORARY TABLE easeml_hashes (k integer, h bigint) ON COMMIT DROP")
    return {
        "fields": fields_json([each.field for each in source_documents.expanded(session, sources_of(told), ordered)])
    }


def settle_texts(session: Session, told: Told) -> dict[str, Any]:
    """Return what columns of texts become, and why."""
    distinct = session.execute("SELECT k, count(DISTINCT h) AS n FROM pg_temp.easeml_hashes GROUP BY k")
    n_distinct = {int(row["k"]): int(row["n"]) for row in distinct}
    sources = sources_of(told)
    facts = {}
    for k, column in enumerate(source_texts.text_values(sources)):
        sums = [sum(numbers) for numbers in zip(*(each["sums"][column] for each in told["found"]), strict=True)]
        facts[column] = source_texts.facts_from(sums, n_distinct.get(k, 0))
    kept = source_texts.without_identifiers(session, sources, facts)
    fields = [source_texts.text_field(each.field, facts.get(each.field.column)) or each.field for each in kept]
    session.execute('CREATE TEMPORARY TABLE easeml_values (k integer, value text COLLATE "C", n bigint) ON COMMIT DROP')
    told_facts = {column: asdict(found) for column, found in facts.items()}
    n_dictionaries = source_texts.most_categories(kept)
    return {"fields": fields_json(fields), "facts": told_facts, "most_categories": n_dictionaries}


def settle_dictionaries(session: Session, told: Told) -> dict[str, Any]:
    """Return the inputs with their dictionaries and widths, and how many rows a block has."""
    fields = [_with_dictionary(session, told, k, field) for k, field in enumerate(fields_of(told))]
    session.execute("CREATE TEMPORARY TABLE easeml_facts (part integer, block integer, facts bytea) ON COMMIT DROP")
    block_rows = packing.block_rows_of(pack_request(told).block_rows, fields)
    return {"fields": fields_json(fields), "rows_of_block": block_rows}


def _with_dictionary(session: Session, told: Told, k: int, field: Field) -> Field:
    if isinstance(field, TextField):
        return replace(field, width=width_for([n for each in told["found"] for n in each["token_counts"][str(k)]]))
    if not isinstance(field, CategoricalField):
        return field
    most = told["most_categories"]
    rows = session.execute(
        f"SELECT value, sum(n)::bigint AS n FROM pg_temp.easeml_values WHERE k = {k} GROUP BY 1"
        f" ORDER BY 2 DESC, 1 LIMIT {int(most) + 1}"
    )
    return source_texts.with_categories(field, [(row["value"], row["n"]) for row in rows], most)


def facts_of(told: Told) -> dict[str, TextFacts]:
    """Return what was found of columns of texts."""
    return {column: TextFacts(**entry) for column, entry in told["facts"].items()}
