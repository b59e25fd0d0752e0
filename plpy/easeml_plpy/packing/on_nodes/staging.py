"""On a node: copies its rows to a temporary table, reads facts about them, and places the rows that stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.columns import TRAINING_ROWS, Column
from easeml_plpy.columns.tokens import token_counts
from easeml_plpy.packing import source_documents, source_rows, source_shapes, source_texts, splitting
from easeml_plpy.packing.memory_order import NEW_ORDER
from easeml_plpy.packing.on_nodes.images_in_memory import let_go
from easeml_plpy.packing.on_nodes.request import fields_of, pack_request, sources_of, target_of
from easeml_plpy.packing.on_nodes.tables import open_tables
from easeml_plpy.packing.pack_request import PackRequest
from easeml_plpy.packing.source_shapes import ShapeFacts
from easeml_plpy.server.session import Session
from easeml_plpy.server.value_types import Told


def stage(session: Session, message: Told) -> dict[str, Any]:
    """Copy the rows; return their number, the types of the columns, labels and shapes."""
    let_go(session)
    opened = open_tables(session, message)
    request, columns, inputs = opened.wanted, opened.columns, opened.inputs
    with opened.copied(session) as source:
        local = replace(request, source=source)
        source_rows.copy_rows(session, local, columns, source_rows.rows_sql(session, local, columns, inputs))
    counts = session.execute("SELECT count(*) AS n, count(y) AS n_known FROM pg_temp.easeml_rows")[0]
    session.execute("DELETE FROM pg_temp.easeml_rows WHERE y IS NULL")
    shapes = source_shapes.read_shapes(session, inputs)
    facts = {"n": int(counts["n"]), "n_known": int(counts["n_known"]), **opened.facts()}
    return facts | _target_facts(session, request, columns[request.target]) | {"shapes": shapes}


def _target_facts(session: Session, request: PackRequest, column: Column) -> dict[str, Any]:
    task = source_rows.task_of(request, column)
    labels = source_rows.labels_in(session, column) if task == "classification" else None
    if column.type not in columns_of.NUMBERS:
        return {"labels": labels}
    n_bad = source_rows.numbers_in(session).n_bad
    ends = session.execute("SELECT min(y)::float8::text AS low, max(y)::float8::text AS high FROM pg_temp.easeml_rows")
    return {"labels": labels, "n_bad": n_bad, "low": ends[0]["low"], "high": ends[0]["high"]}


def prepare(session: Session, message: Told) -> dict[str, Any]:
    """Fill in what is NULL in vectors. Rows that stay here are dealt here; all others get their places next."""
    facts = {int(k): ShapeFacts(*entry) for k, entry in message["shapes"].items()}
    source_shapes.fill_nulls(session, fields_of(message), facts)
    if message["shuffle"] == "across":
        session.execute(NEW_ORDER)
        return {}
    request = replace(pack_request(message), n_partitions=len(message["parts"]))
    splitting.order_rows(session, request, target_of(message))
    splitting.check_splits(session, request)
    session.execute(f"UPDATE pg_temp.easeml_order SET part = part + {int(message['parts'][0])}")
    return {"rows": counted(session)}


def counted(session: Session) -> list[list[Any]]:
    """Return how many rows each split has in each partition, as [split, partition, rows]."""
    rows = session.execute("SELECT split, part, count(*) AS n FROM pg_temp.easeml_order GROUP BY 1, 2 ORDER BY 1, 2")
    return [[row["split"], int(row["part"]), int(row["n"])] for row in rows]


def read_keys(session: Session, message: Told) -> dict[str, Any]:
    """Return the keys of columns of JSON."""
    return {"keys": source_documents.read_keys(session, sources_of(message))}


def read_texts(session: Session, message: Told) -> dict[str, Any]:
    """Return sums over the texts of each column; their hashes, each once, go into a temporary table."""
    session.execute("CREATE TEMPORARY TABLE easeml_hashes (k integer, h bigint) ON COMMIT DROP")
    values = source_texts.text_values(sources_of(message))
    for k, value in enumerate(values.values()):
        session.execute(
            f"INSERT INTO pg_temp.easeml_hashes SELECT DISTINCT {k}, hashtextextended({value}, 0) FROM {TRAINING_ROWS}"
            f" AND {value} IS NOT NULL"
        )
    return {"sums": {column: source_texts.text_sums(session, value) for column, value in values.items()}}


def read_dictionaries(session: Session, message: Told) -> dict[str, Any]:
    """Return how many tokens sampled texts have; categories with their counts go into a temporary table."""
    session.execute("CREATE TEMPORARY TABLE easeml_values (k integer, value text, n bigint) ON COMMIT DROP")
    counts = {}
    for k, (field, value) in enumerate(sources_of(message)):
        if isinstance(field, TextField):
            texts = source_texts.sampled_texts(session, value, message["n_partitions"])
            counts[str(k)] = token_counts(field.analyzer, texts)
        elif isinstance(field, CategoricalField):
            session.execute(
                f"INSERT INTO pg_temp.easeml_values SELECT {k}, {value}, count(*) FROM {TRAINING_ROWS} GROUP BY 2"
            )
    return {"token_counts": counts}
