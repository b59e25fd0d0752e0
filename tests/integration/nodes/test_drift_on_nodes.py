"""Rows on nodes compared with those that were trained on, on nodes, too: the numbers of one server; no row moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.nodes import let_read, two_nodes

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

N_SLOTS = 1
# Numbers, some missing and some infinite; few that are different; categories; texts; arrays; times.
ROWS = """
SELECT i AS id, CASE WHEN i % 13 > 0 THEN exp(sin(i * {scale})) - 1.5 END AS size, i % 4 AS rooms,
    (array['clay', 'sand', 'peat', NULL])[1 + i % 4] AS soil,
    format('seen %s by %s', i % 7, repeat('x ', i % 5)) AS note,
    ARRAY[i % 5, sin(i)]::real[] AS picture, timestamptz '2026-01-01' + i * interval '7 hours' AS seen,
    (array['rose', 'tulip', 'lily'])[1 + i % 3] AS kind
FROM generate_series(1, {n}) i
"""
TRAINED = ROWS.format(scale=1.0, n=700)
LATER = f"""
SELECT id, size + 0.4 AS size, rooms + id % 2 AS rooms,
    CASE id % 9 WHEN 0 THEN 'loam' WHEN 1 THEN 'gravel' ELSE soil END AS soil, note, picture,
    seen + interval '90 days' AS seen, kind FROM ({ROWS.format(scale=2.0, n=400)}) r
"""
INPUTS = "{size,rooms,soil,note,picture,seen}"
OWN, NEW = (f'{{"east": "public.{name}", "west": "public.{name}"}}' for name in ("own", "later"))
OPTIONS = ("", ", time_column => 'seen', every => '30 days'", ", n_rows => 1000")


@pytest.fixture(scope="module")
def nodes(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """Two nodes, each with a part of the rows of then and of now; west has few."""
    with two_nodes(private_server, tmp_path_factory.mktemp("services")) as nodes:
        for name, node in nodes.items():
            there = "id % 5 > 0" if name == "east" else "id % 5 = 0"
            node.execute(f"CREATE TABLE own AS SELECT * FROM ({TRAINED}) r WHERE {there}")
            node.execute(f"CREATE TABLE later AS SELECT * FROM ({LATER}) r WHERE {there}")
            let_read(node, "own, later")
        yield nodes


@pytest.fixture(scope="module")
def spread(module_database: Session, nodes: dict[str, Session], coordinator: Coordinator) -> Iterator[Session]:
    """A control server with the same rows, and datasets of them here and there; a coordinator runs."""
    control = module_database
    control.execute(f"CREATE TABLE own AS {TRAINED}")
    control.execute(f"CREATE TABLE later AS {LATER}")
    control.execute("SELECT easeml.create_dataset('here', 'own', %s, 'kind', block_rows => 50)", [INPUTS])
    for name in nodes:
        control.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
        control.execute("SELECT easeml.add_slots(1, %s)", [name])
    with coordinator(control):
        for name, shuffle in (("there", "across"), ("stays", "within")):
            create = "SELECT easeml.create_dataset(%s, %s, %s, 'kind', block_rows => 50, shuffle => %s)"
            dataset_id = control.value(create, name, OWN, INPUTS, shuffle)
            control.execute("CALL easeml.wait_dataset(%s, 60)", [dataset_id])
        yield control


@pytest.mark.parametrize("options", OPTIONS)
def test_counts_of_nodes_come_to_the_numbers_of_one_server(spread: Session, options: str) -> None:
    with pytest.raises(psycopg.Error, match="they have not been asked for this"):
        spread.execute(f"SELECT * FROM easeml.drift('there', %s{options})", [NEW])
    n_rows = spread.value(f"CALL easeml.drift_on_nodes('there', %s{options})", NEW)
    there = spread.rows(f"SELECT * FROM easeml.drift('there', %s{options})", NEW)
    here = spread.rows(f"SELECT * FROM easeml.drift('here', 'later'{options})")
    assert len(there) == n_rows >= 7
    assert there == here
    assert {"moderate", "large"} & {row["drift"] for row in there}
    assert any("loam" in row["unseen_values"] for row in there)


def test_rows_that_were_trained_on_have_not_drifted_and_nothing_moves(
    spread: Session, nodes: dict[str, Session]
) -> None:
    blocks = "SELECT count(*) FROM easeml_segment.version_blocks"
    before = [node.value(blocks) for node in nodes.values()]
    for name in ("there", "stays"):
        spread.execute("CALL easeml.drift_on_nodes(%s)", [name])
        found = spread.rows("SELECT * FROM easeml.drift(%s)", name)
        assert {row["drift"] for row in found} == {"none"}, name
        assert {row["n_compared"] for row in found} == {700}
    assert [node.value(blocks) for node in nodes.values()] == before
    told = spread.rows("SELECT kind, status, trial_id FROM easeml.node_job_status ORDER BY job_id DESC LIMIT 1")
    assert told == [{"kind": "drift", "status": "done", "trial_id": None}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("'here'", "the rows of dataset 'here' are on this server"),
        ("'there', 'later'", "expected a table of foreign partitions"),
        ("'there', '{\"east\": \"public.nothing\"}'", "segment east: there is no table public.nothing"),
        ("'there', n_rows => 0", "n_rows: expected 1 to 1000000, got 0"),
        ("'there', time_column => 'size'", "time_column: expected a date or timestamp"),
        ("'there', time_column => 'nothing'", "has no column 'nothing'"),
        ("'there', every => '0 days', time_column => 'seen'", "every: expected a positive interval"),
        ("'there', version => 9", "dataset 'there' has no version 9"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(spread: Session, arguments: str, words: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        spread.execute(f"CALL easeml.drift_on_nodes({arguments})")
    assert words in str(refused.value)
