"""What a Greenplum cluster is told: which query does a unit on a segment, and which plans say that it stays there.

The plans are those of Greenplum 6.24.3.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from easeml_db.errors import NotAllowed, NotFound, NotReady
from easeml_db.postgres.nodes.greenplum.dialects import server_of
from easeml_db.postgres.nodes.greenplum.facts import check_holder, facts_of, installation, segment_query
from easeml_db.postgres.nodes.greenplum.statements import (
    GreenplumSegment,
    moves_nothing,
    runs_on_one_segment,
    unit_statement,
)

SAID = (
    "PostgreSQL 9.4.26 (Greenplum Database 6.24.3 build commit:25d3498a) on x86_64-unknown-linux-gnu, compiled by gcc"
)
SELECTED = """
Gather Motion 1:1  (slice1; segments: 1)  (cost=600.66..646.54 rows=3000 width=36)
  ->  Subquery Scan on z  (cost=600.66..646.54 rows=1000 width=36)
        ->  GroupAggregate  (cost=600.66..616.54 rows=1000 width=36)
              Group Key: datasets.segment_key
              ->  Append  (cost=0.17..600.59 rows=2 width=116)
                    ->  Index Scan using datasets_pkey on datasets  (cost=0.17..200.18 rows=1 width=44)
Optimizer: Postgres query optimizer
"""
INSERTED = """
Insert on easeml_new_state  (cost=600.66..646.54 rows=1000 width=36)
  ->  Subquery Scan on z  (cost=600.66..646.54 rows=1000 width=36)
        ->  GroupAggregate  (cost=600.66..616.54 rows=1000 width=36)
Optimizer: Postgres query optimizer
"""
REDISTRIBUTED = """
Gather Motion 3:1  (slice2; segments: 3)
  ->  GroupAggregate
        ->  Redistribute Motion 1:3  (slice1; segments: 1)
"""
UNIT = json.dumps({"kind": "train", "partition_number": 2, "trial_id": 5})
OPENED: dict[str, Any] = {"dataset_id": 7, "composition": None, "state": {"checkpoint_id": 31}}
TRAINED = """
INSERT INTO pg_temp.easeml_new_state
SELECT z.segment_key, (z.worked).* FROM (
    SELECT p.segment_key, easeml_segment.work_on_segment('train_unit', '{unit}', '{opened}', array_agg(p.kind),
        array_agg(p.owner), array_agg(p.number), array_agg(p.n_rows), array_agg(p.first), array_agg(p.second)) AS worked
    FROM (
SELECT segment_key, 'encoder'::text AS kind, dataset_id AS owner, 0 AS number, NULL::integer AS n_rows,
    encoder AS first, NULL::bytea AS second FROM easeml_segment.datasets WHERE segment_key = 5 AND dataset_id = 7
UNION ALL
SELECT segment_key, 'block ' || split, partition_number::bigint, block_number, n_rows, inputs, targets
FROM easeml_segment.version_blocks WHERE segment_key = 5 AND dataset_id = 7 AND split = 'train'
    AND partition_number = 2
UNION ALL
SELECT segment_key, 'state'::text, checkpoint_id, chunk_number, NULL::integer, bytes, NULL::bytea
FROM easeml_segment.checkpoint_chunks WHERE segment_key = 5 AND checkpoint_id = 31
) p GROUP BY p.segment_key OFFSET 0) z
"""


def said(statement: Any) -> str:
    return " ".join(statement.as_string().split())


def test_a_unit_is_one_query_whose_plan_reads_for_it() -> None:
    wanted = TRAINED.replace("{unit}", UNIT).replace("{opened}", json.dumps(OPENED))
    assert said(unit_statement(GreenplumSegment(1, 5), "train_unit", UNIT, OPENED)) == " ".join(wanted.split())


def test_what_stores_nothing_inserts_nothing_and_a_fresh_trial_reads_no_state() -> None:
    opened = {**OPENED, "state": None}
    unit = json.dumps({"kind": "validate", "partition_number": 0})
    statement = said(unit_statement(GreenplumSegment(1, 5, is_by_key=False), "evaluate_unit", unit, opened))
    assert statement.startswith("SELECT z.segment_key, (z.worked).* FROM")
    assert "checkpoint_chunks" not in statement
    assert statement.count("WHERE gp_segment_id = 1 AND") == 2
    assert "split = 'validation'" in statement


def test_what_an_order_says_is_quoted() -> None:
    unit = json.dumps({"kind": "train", "partition_number": 0, "note": "it's"})
    assert "it''s" in said(unit_statement(GreenplumSegment(0, 1), "train_unit", unit, OPENED))


@pytest.mark.parametrize(
    ("plan", "is_one", "stays"),
    [(SELECTED, True, True), (INSERTED, False, True), (REDISTRIBUTED, False, False), ("Result", False, True)],
)
def test_a_plan_says_whether_one_segment_does_it(plan: str, is_one: bool, stays: bool) -> None:
    lines = plan.strip().splitlines()
    assert (runs_on_one_segment(lines), moves_nothing(lines)) == (is_one, stays)


SAID_BY_OTHERS = "PostgreSQL 12.12 (Greenplum Database 7.0.0-beta.0 build dev) on x86_64-pc-linux-gnu"


@pytest.mark.parametrize(
    ("text", "version", "since"),
    [
        (SAID, "6.24.3", (9, 4)),
        ("PostgreSQL 9.4.26 (Greengage Database 6.27.0 build commit:0123) on x86_64", "6.27.0", (9, 4)),
        (SAID_BY_OTHERS, "7.0.0-beta.0", (12, 0)),
        ("PostgreSQL 14.4 (Cloudberry Database 1.6.0 build dev) on x86_64", "1.6.0", (12, 0)),
        ("PostgreSQL 14.4 (Apache Cloudberry 2.0.0) on x86_64", "2.0.0", (12, 0)),
    ],
)
def test_what_a_server_understands_is_told_by_its_postgresql(text: str, version: str, since: tuple[int, int]) -> None:
    server = server_of(text)
    assert (server.version, server.dialect.since) == (version, since)


@pytest.mark.parametrize(
    "text",
    [
        "PostgreSQL 8.3.23 (Greenplum Database 5.29.0 build commit:0123) on x86_64",
        "PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu",
    ],
)
def test_an_older_server_and_one_of_another_line_are_refused(text: str) -> None:
    with pytest.raises(NotReady, match="expected Greenplum 6 or newer"):
        installation(text)


def test_what_is_installed_is_of_the_dialect_of_the_server() -> None:
    old, new = installation(SAID), installation(SAID_BY_OTHERS)
    assert "{" not in re.sub(r"'\{\w*\}'", "", old + new)
    assert [word in old for word in ("pg_partition_rule", "pg_partition_tree")] == [True, False]
    assert [word in new for word in ("pg_partition_rule", "pg_partition_tree")] == [False, True]


def test_facts_are_those_of_cluster_and_segment() -> None:
    found = {
        "identity": "a1", "holder": None, "extension": "0.2.0", "server": SAID, "database": "shop", "port": "5432",
        "n_segments": 3, "key": 5,
    }  # fmt: skip
    facts = facts_of(1, found, '{"package": "0.2.0", "packages": {}, "devices": ["cpu"]}')
    assert facts["identity"] == "a1/1"
    assert facts["greenplum"] == {"version": "6.24.3", "content": 1, "n_segments": 3}
    assert facts["devices"] == ["cpu"]
    with pytest.raises(NotReady, match="expected Greenplum 6 or newer"):
        facts_of(1, {**found, "server": SAID.replace("9.4.26", "8.3.23")}, "{}")
    with pytest.raises(NotFound, match="no segment 7, it has 3"):
        segment_query(7, {**found, "key": None})


def test_a_segment_serves_one_holder() -> None:
    assert check_holder(None, "mine")
    assert not check_holder("mine", "mine")
    with pytest.raises(NotAllowed, match="serves another segment already"):
        check_holder("theirs", "mine")
