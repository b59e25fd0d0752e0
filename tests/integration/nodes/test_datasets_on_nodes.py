"""Datasets whose rows lie on nodes: packed there, to the same bytes as on one server, and trained there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from tests.nodes import NODE_ROLE, let_read, two_nodes

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

N_SLOTS = 1
COLUMNS = """
id int, petal float8, "Leaf" real, seen timestamptz, soil text, note text, tags jsonb, picture real[], kind text,
place int
"""
# Of each kind of input one, with NULL, and rows that are the same twice.
ROWS = """
SELECT i AS id, (i % 3) * 2 + sin(i * 12.9898) AS petal, CASE WHEN i % 7 > 0 THEN cos(i) END::real AS "Leaf",
    timestamptz '2026-01-01' + i * interval '7 hours' AS seen, (ARRAY['clay', 'sand', 'peat', NULL])[1 + i % 4] AS soil,
    format('seen %s by the %s near a %s pond', chr(97 + i % 26), chr(97 + i / 26 % 26), i) AS note,
    jsonb_build_object('n', i % 5, 'word', chr(97 + i % 3)) AS tags,
    ARRAY[i % 4, CASE WHEN i % 11 > 0 THEN i END, 1]::real[] AS picture,
    CASE WHEN i % 50 > 0 THEN (ARRAY['rose', 'tulip', 'lily'])[1 + i % 3] END AS kind, i * i % 3 AS place
FROM (SELECT generate_series(1, 600) UNION ALL SELECT generate_series(1, 40)) g(i)
"""
INPUTS = "{petal,Leaf,seen,soil,note,tags,picture}"
CREATE = "SELECT easeml.create_dataset(%s, %s, %s, %s, n_partitions => 5, block_rows => 40, seed => 3, shuffle => %s)"
HERE = """
SELECT easeml.create_dataset('here', 'flowers', %s, %s, n_partitions => 5, block_rows => 40, seed => 3,
    placement => 'bound')
"""
BLOCKS = """
SELECT split, partition_number, block_number, n_rows, md5(inputs) AS inputs, md5(targets) AS targets
FROM {}.version_blocks WHERE dataset_id = %s ORDER BY 1, 2, 3
"""
DATA = """
SELECT task, input_shape, n_outputs, block_rows, n_skipped_rows, encoder, explanations FROM easeml.datasets
WHERE dataset_id = %s
"""
SELECT_MODELS = """
SELECT easeml.select_models(%s, '{mlp}', procedure => 'grid', max_epochs => 2,
    search_space => '{"learning_rate": [0.1, 0.03], "batch_size": 16, "hidden_units": [[8]]}')
"""
STATES = """
SELECT t.trial_number, u.epoch, u.position, u.state_sha256 FROM easeml.training_units u JOIN easeml.trials t
USING (trial_id) JOIN easeml.runs r ON r.run_id = t.run_id WHERE r.dataset_id = %s ORDER BY 1, 2, 3
"""
EVALUATIONS = (
    "evaluate", "confusion_matrix", "class_metrics", "roc_curve", "calibration", "held_out_answers",
)  # fmt: skip
# A sequence that nobody has used says 1, too.
NEWEST = "SELECT last_value - (NOT is_called)::int FROM easeml.datasets_dataset_id_seq"
LATE = {
    "source": "spread", "inputs": ["petal"], "target": "kind", "n_partitions": 1, "validation_fraction": 0.15,
    "test_fraction": 0.15, "seed": 0, "placement": "bound",
}  # fmt: skip
SIZES = """
SELECT partition_number, n_train_rows, n_validation_rows, n_test_rows, checksum FROM easeml.partitions
WHERE dataset_id = %s ORDER BY 1
"""


@pytest.fixture(scope="module")
def nodes(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """Two nodes."""
    with two_nodes(private_server, tmp_path_factory.mktemp("services")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def spread(module_database: Session, nodes: dict[str, Session], coordinator: Coordinator) -> Iterator[Session]:
    """A control server, all rows on two nodes under a root table, and all of them here as well; a coordinator runs."""
    control = module_database
    role = control.value("SELECT current_user")
    control.execute(f"CREATE TABLE flowers AS {ROWS}")
    control.execute("CREATE EXTENSION postgres_fdw")
    control.execute(f"CREATE TABLE spread ({COLUMNS}) PARTITION BY LIST (place)")
    for number, (name, node) in enumerate(nodes.items()):
        there = "place = 0" if number == 0 else "place <> 0"
        node.execute(f"CREATE TABLE own AS SELECT * FROM ({ROWS}) r WHERE {there}")
        let_read(node, "own")
        facts = conninfo_to_dict(node.dsn)
        control.execute(
            f"CREATE SERVER {name} FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{facts['host']}',"
            f" port '{facts['port']}', dbname '{facts['dbname']}')"
        )
        control.execute(f"CREATE USER MAPPING FOR {role} SERVER {name} OPTIONS (user '{role}')")
        values = "0" if number == 0 else "1, 2"
        control.execute(
            f"CREATE FOREIGN TABLE spread_{name} PARTITION OF spread FOR VALUES IN ({values}) SERVER {name}"
            " OPTIONS (schema_name 'public', table_name 'own')"
        )
        control.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
        control.execute("SELECT easeml.add_slots(1, %s)", [name])
    with coordinator(control):
        yield control


def packed(control: Session, name: str, source: str, target: str, shuffle: str | None) -> int:
    """Create a dataset and wait until the nodes have packed it."""
    dataset_id = control.value(CREATE, name, source, INPUTS, target, shuffle)
    control.execute("CALL easeml.wait_dataset(%s, 60)", [dataset_id])
    return int(dataset_id)


def blocks_on(nodes: dict[str, Session], dataset_id: int) -> list[dict[str, Any]]:
    """The blocks of all nodes in one order."""
    found = [row for node in nodes.values() for row in node.rows(BLOCKS.format("easeml_segment"), dataset_id)]
    return sorted(found, key=lambda row: (row["split"], row["partition_number"], row["block_number"]))


@pytest.mark.parametrize("target", ["kind", "petal"])
def test_rows_of_two_nodes_are_packed_to_the_bytes_of_one_server(
    spread: Session, nodes: dict[str, Session], target: str
) -> None:
    inputs = INPUTS.replace("petal,", "") if target == "petal" else INPUTS
    here = spread.value(HERE, inputs, target)
    there = spread.value(CREATE, "there", "spread", inputs, target, "across")
    spread.execute("CALL easeml.wait_dataset(%s, 60)", [there])
    assert blocks_on(nodes, there) == spread.rows(BLOCKS.format("easeml"), here)
    assert spread.rows(DATA, there) == spread.rows(DATA, here)
    assert spread.rows(SIZES, there) == spread.rows(SIZES, here)
    assert spread.value("SELECT shuffle FROM easeml.dataset_info WHERE dataset_id = %s", there) == "across"
    assert spread.value("SELECT count(*) FROM easeml.blocks WHERE dataset_id = %s", there) == 0
    spread.execute("SELECT easeml.drop_dataset('here'), easeml.drop_dataset('there')")


def test_no_role_of_a_node_keeps_others_from_being_packed_there(spread: Session, nodes: dict[str, Session]) -> None:
    newest = spread.value(NEWEST)
    mallory = nodes["east"].as_role("mallory")
    for number in range(newest, newest + 20):
        mallory.execute("SELECT pg_advisory_lock(5713041, %s)", [number])
    mallory.execute("SELECT set_config('application_name', %s, false)", [f"easeml packing {newest + 1}"])
    assert packed(spread, "unhindered", "spread", "kind", "across") == newest + 1
    mallory.close()
    spread.execute("SELECT easeml.drop_dataset('unhindered')")


def test_a_packing_waits_while_a_session_of_the_service_still_packs_the_same(
    spread: Session, nodes: dict[str, Session]
) -> None:
    newest = spread.value(NEWEST)
    left = nodes["east"].as_role(NODE_ROLE)
    left.execute("SELECT set_config('application_name', %s, false)", [f"easeml packing {newest + 1}"])
    dataset_id = spread.value(CREATE, "late", "spread", INPUTS, "kind", "across")
    assert dataset_id == newest + 1
    spread.wait_until(
        "SELECT problem ->> 'message' LIKE '%%another session packs%%' FROM easeml.packings WHERE dataset_id = %s",
        dataset_id,
    )
    left.close()
    spread.execute("CALL easeml.wait_dataset(%s, 60)", [dataset_id])
    spread.execute("SELECT easeml.drop_dataset('late')")


def test_rows_that_stay_are_packed_where_they_are(spread: Session, nodes: dict[str, Session]) -> None:
    listed = '{"east": "public.own", "west": ["public.own"]}'
    dataset_id = packed(spread, "stays", listed, "kind", "within")
    told = spread.rows("SELECT shuffle, n_moved_bytes FROM easeml.dataset_info WHERE dataset_id = %s", dataset_id)
    assert told == [{"shuffle": "within", "n_moved_bytes": 0}]
    for node in nodes.values():
        there = node.value(
            "SELECT sum(n_rows)::int FROM easeml_segment.version_blocks WHERE dataset_id = %s", dataset_id
        )
        assert there == node.value("SELECT count(*)::int FROM own WHERE kind IS NOT NULL")
    holders = "SELECT DISTINCT holders FROM easeml.partition_status WHERE dataset_id = %s"
    assert sorted(spread.values(holders, dataset_id)) == [["east"], ["west"]]
    again = spread.value("SELECT easeml.refresh_dataset('stays')")
    spread.execute("CALL easeml.wait_dataset(%s, 60)", [again])
    same = [{key: row[key] for key in row if key != "block_number"} for row in blocks_on(nodes, again)]
    assert same == [{key: row[key] for key in row if key != "block_number"} for row in blocks_on(nodes, dataset_id)]
    _explained_where_they_are(spread, nodes, again)
    with pytest.raises(psycopg.Error, match="stay on the nodes"):
        spread.execute("SELECT easeml.replicate_dataset('stays', 2)")
    with pytest.raises(psycopg.Error, match="are on its nodes"):
        spread.execute("SELECT easeml.dataset_rows('stays')")
    spread.execute("SELECT easeml.drop_dataset('stays', cascade => true)")


def _explained_where_they_are(spread: Session, nodes: dict[str, Session], dataset_id: int) -> None:
    """Each node permutes its own rows, or mixes a row with them, and none moves."""
    spread.execute("CALL easeml.wait(%s)", [spread.value(SELECT_MODELS, "stays")])
    held = [node.rows(BLOCKS.format("easeml_segment"), dataset_id) for node in nodes.values()]
    n_inputs = spread.value("CALL easeml.explain_on_nodes('stays', n_rows => 60)")
    found = spread.rows("SELECT * FROM easeml.explain('stays', n_rows => 60)")
    assert len(found) == n_inputs > 7
    assert found == sorted(found, key=lambda row: -row["importance"])
    assert any(row["importance"] > 0 for row in found)
    a_row = Jsonb(spread.value("SELECT to_jsonb(f) - 'kind' FROM flowers f WHERE id = 600"))
    assert spread.value("CALL easeml.explain_row_on_nodes('stays', %s, n_orders => 50)", a_row) == n_inputs
    base, *parts = spread.rows("SELECT * FROM easeml.explain_row('stays', %s, n_orders => 50)", a_row)
    assert base["input"] is None
    assert {row["input"] for row in parts} == {row["input"] for row in found}
    said = spread.value("SELECT easeml.predict_probabilities('stays', %s)", a_row)
    assert base["explained_label"] == max(said, key=said.get)
    assert sum(row["contribution"] for row in (base, *parts)) == pytest.approx(max(said.values()), abs=1e-5)
    assert any(row["standard_error"] > 0 for row in parts)
    assert [node.rows(BLOCKS.format("easeml_segment"), dataset_id) for node in nodes.values()] == held
    assert spread.value("SELECT n_copied_bytes FROM easeml.dataset_info WHERE dataset_id = %s", dataset_id) == 0


def test_a_run_on_rows_of_nodes_ends_in_the_bytes_of_the_run_on_one_server(
    spread: Session, nodes: dict[str, Session]
) -> None:
    """The rows of `here` are sent to the nodes, those of `there` were packed on them."""
    ids = [spread.value(HERE, "{petal,soil}", "kind")]
    ids.append(spread.value(CREATE, "there", "spread", "{petal,soil}", "kind", "across"))
    spread.execute("CALL easeml.wait_dataset(%s, 60)", [ids[1]])
    for name in ("here", "there"):
        run_id = spread.value(SELECT_MODELS, name)
        spread.execute("CALL easeml.wait(%s)", [run_id])
        told = spread.rows("SELECT kind, message FROM easeml.events WHERE run_id = %s ORDER BY event_id", run_id)
        assert spread.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished", told
    here, there = (spread.rows(STATES, dataset_id) for dataset_id in ids)
    assert here
    assert here == there
    answered = spread.value(
        "SELECT count(easeml.predict('there', jsonb_build_object('petal', petal, 'soil', soil))) FROM flowers"
    )
    assert answered == 640
    trial_id = spread.value("SELECT max(trial_id) FROM easeml.trials")
    replayed = spread.value("CALL easeml.replay(%s)", trial_id)
    assert replayed["is_identical"], replayed
    assert replayed["n_units"] == 10
    assert [
        node.value("SELECT count(*) FROM easeml_segment.checkpoints WHERE lease_number = 0") for node in nodes.values()
    ] == [0, 0]
    _evaluations_are_those_of_one_server(spread)
    _predictions_are_those_of_one_server(spread, nodes)
    spread.execute("SELECT easeml.drop_dataset(d, cascade => true) FROM unnest('{here,there}'::text[]) d")


def _evaluations_are_those_of_one_server(spread: Session) -> None:
    with pytest.raises(psycopg.Error, match="has not answered them yet"):
        spread.execute("SELECT * FROM easeml.evaluate('there')")
    assert spread.value("CALL easeml.evaluate_on_nodes('there')") > 100
    for subject in EVALUATIONS:
        there = spread.rows(f"SELECT * FROM easeml.{subject}('there')")
        here = spread.rows(f"SELECT * FROM easeml.{subject}('here')")
        assert there
        for row in there + here:
            row.pop("row_key", None), row.pop("evaluated_trial_id", None)
        assert there == here, subject
    with pytest.raises(psycopg.Error, match="they have not been asked for this"):
        spread.execute("SELECT * FROM easeml.explain('there')")
    for told in ("", ", split => 'validation', metric => 'log_loss', n_rows => 50, n_repeats => 3, seed => 4"):
        assert spread.value(f"CALL easeml.explain_on_nodes('there'{told})") == 2
        here = spread.rows(f"SELECT * FROM easeml.explain('here'{told})")
        assert spread.rows(f"SELECT * FROM easeml.explain('there'{told})") == here
        assert {row["input"] for row in here} == {"petal", "soil"}
    _rows_are_explained_as_on_one_server(spread)
    with pytest.raises(psycopg.Error, match="metric: expected one that ranks"):
        spread.execute("CALL easeml.explain_on_nodes('there', metric => 'beauty')")
    with pytest.raises(psycopg.Error, match="split: expected validation or test, got 'train'"):
        spread.execute("CALL easeml.explain_on_nodes('there', split => 'train')")


def _rows_are_explained_as_on_one_server(spread: Session) -> None:
    told = """'{}', '{{"petal": 1.25, "soil": "clay"}}'{}"""
    with pytest.raises(psycopg.Error, match="they have not been asked for this") as refused:
        spread.execute(f"SELECT * FROM easeml.explain_row({told.format('there', '')})")
    assert "CALL easeml.explain_row_on_nodes('there', ...)" in str(refused.value.diag.message_hint)
    for more in ("", ", label => 'lily', n_orders => 20, seed => 4"):
        assert spread.value(f"CALL easeml.explain_row_on_nodes({told.format('there', more)})") == 2
        here, there = (
            spread.rows(f"SELECT * FROM easeml.explain_row({told.format(name, more)})") for name in ("here", "there")
        )
        assert there == here
        assert [row["standard_error"] is None for row in there] == [True, False, False]
    for wrong, words in (("label => 'z'", "has no class 'z'"), ("seed => -1", "seed: expected a number from 0")):
        with pytest.raises(psycopg.Error, match=words):
            spread.execute(f"CALL easeml.explain_row_on_nodes({told.format('there', ', ' + wrong)})")


def _predictions_are_those_of_one_server(spread: Session, nodes: dict[str, Session]) -> None:
    spread.value("SELECT easeml.predict_table('here', 'flowers', 'public.told', key => '{id,place}')")
    wanted = "SELECT id, place, predicted_label, probability FROM told ORDER BY 1, 2, 3, 4"
    for node in nodes.values():
        node.execute(f"GRANT CREATE ON SCHEMA public TO {NODE_ROLE}")
    call = "CALL easeml.predict_on_nodes('there', %s, 'public.told', key => '{id,place}')"
    assert spread.value(call, "spread") == 640
    found = [row for node in nodes.values() for row in node.rows(wanted)]
    assert sorted(map(str, found)) == sorted(map(str, spread.rows(wanted)))
    assert all(found)
    assert "of easeml: " in nodes["east"].value("SELECT obj_description('told'::regclass)")
    with pytest.raises(psycopg.Error, match=r"segment east: output: public\.told exists already"):
        spread.execute(call, ["spread"])
    for name, node in nodes.items():
        assert node.value("SELECT count(*) > 0 FROM told"), name
        node.execute("DROP TABLE told")
    both = "CALL easeml.predict_on_nodes('there', '{\"east\": [\"public.own\", \"public.twin\"]}', 'public.told')"
    nodes["east"].execute("CREATE TABLE twin AS SELECT * FROM own")
    with pytest.raises(psycopg.Error, match=r"segment east: role easeml_reads_\w+ may not read public\.twin"):
        spread.execute(both)
    assert nodes["east"].value("SELECT to_regclass('told')") is None
    let_read(nodes["east"], "twin")
    keyed = both.replace("'public.told')", "'public.told', key => '{id}', probabilities => true)")
    assert spread.value(keyed) == 2 * nodes["east"].value("SELECT count(*) FROM own")
    assert nodes["east"].value("SELECT count(*) FROM told WHERE probabilities ? 'rose'") == spread.value(
        "SELECT (result ->> 'n_rows')::bigint FROM easeml.node_job_status ORDER BY job_id DESC LIMIT 1"
    )
    nodes["east"].execute("DROP TABLE told")
    with pytest.raises(psycopg.Error, match="expected"):
        spread.execute("CALL easeml.predict_on_nodes('there', 'flowers', 'public.told')")
    nodes["east"].execute("DROP TABLE twin")
    spread.execute("DROP TABLE told")


# Bad input


def wait_for(control: Session, statement: str, *values: object) -> None:
    """Ask for a packing, and wait until it is done."""
    control.execute("CALL easeml.wait_dataset(%s, 60)", [control.value(statement, *values)])


def refused(control: Session, statement: str, *values: object) -> str:
    """What a statement, or the packing that it asks for, is refused with."""
    with pytest.raises(psycopg.Error) as error:
        wait_for(control, statement, *values)
    assert error.value.sqlstate is not None
    assert error.value.sqlstate.startswith("ML"), error.value
    control.execute("DELETE FROM easeml.packings")
    return str(error.value)


def listed(control: Session, places: str, inputs: str = "{petal}", **named: object) -> str:
    """What a source of tables by segment is refused with."""
    more = "".join(f", {name} => %s" for name in named)
    return refused(
        control, f"SELECT easeml.create_dataset('bad', %s, %s, 'kind'{more})", places, inputs, *named.values()
    )


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ("{east}", "expected a table, or a json object of tables by segment"),
        ("{}", "expected a table, or a json object"),
        ('{"east": 3}', "expected a table, or a json object"),
        ('{"north": "public.own"}', "there is no segment 'north'"),
        ('{"local": "public.own"}', "is a part of this server"),
        ('{"east": "own"}', "expected schema and name of each table"),
        ('{"east": "a b; c"}', "expected schema and name of each table"),
        ('{"east": "public.nothing"}', "segment east: there is no table public.nothing"),
        ('{"east": "public.seen"}', "segment east: public.seen is no plain table"),
        (
            '{"east": "public.own", "west": "public.other"}',
            "column 'petal' is double precision on segment east and text",
        ),
        ('{"east": "public.closed"}', "may not read public.closed: it is the role through which rows of role"),
        ('{"east": "public.hidden"}', "segment east: public.hidden has row-level security"),
        ('{"east": "public.parent"}', "segment east: public.parent is no plain table"),
        ('{"west": "public.own", "east": "public.none"}', "segment east has no rows with a target"),
    ],
)
def test_a_source_on_nodes_is_refused_in_words(spread: Session, bad_tables: None, places: str, words: str) -> None:
    shuffle = "within" if "none" in places else "across"
    assert words in listed(spread, places, shuffle=shuffle)


@pytest.mark.usefixtures("bad_tables")
def test_arguments_that_rows_on_nodes_cannot_have_are_refused(spread: Session) -> None:
    own = '{"east": "public.own", "west": "public.own"}'
    assert "expected across or within" in listed(spread, own, shuffle="sideways")
    assert "its rows are on this server" in refused(
        spread, "SELECT easeml.create_dataset('bad', 'flowers', '{petal}', 'kind', shuffle => 'across')"
    )
    assert "shuffle excludes key_columns" in listed(spread, own, shuffle="within", key_columns="{id}")
    assert "expected columns" in refused(spread, "SELECT easeml.create_dataset('bad', %s, target => 'kind')", own)
    assert "no column 'nectar'" in listed(spread, own, "{nectar}")
    assert "has a partition each, got 1" in listed(spread, own, shuffle="within", n_partitions=1).replace("have", "has")
    assert "too few for 300 partitions" in listed(spread, own, n_partitions=300)
    assert "holds ragged arrays" in listed(spread, '{"east": "public.own", "west": "public.ragged"}', "{picture}")


@pytest.fixture(scope="module")
def bad_tables(spread: Session, nodes: dict[str, Session]) -> None:
    """Tables on the nodes that cannot be packed, beside those that can."""
    for node in nodes.values():
        node.execute("CREATE VIEW seen AS SELECT * FROM own")
        node.execute("CREATE TABLE other AS SELECT petal::text, kind FROM own")
        node.execute("CREATE TABLE closed AS SELECT petal, kind FROM own")
        node.execute("CREATE TABLE hidden AS SELECT petal, kind FROM own")
        node.execute("ALTER TABLE hidden ENABLE ROW LEVEL SECURITY")
        node.execute("CREATE TABLE parent (petal float8, kind text)")
        node.execute("CREATE TABLE child () INHERITS (parent)")
        node.execute("CREATE TABLE none AS SELECT petal, kind FROM own LIMIT 0")
        node.execute("CREATE TABLE ragged AS SELECT ARRAY[1, 2]::real[] AS picture, kind FROM own")
        let_read(node, "own, seen, other, hidden, parent, none, ragged")


def test_foreign_partitions_must_be_tables_of_segments_under_the_same_names(
    spread: Session, nodes: dict[str, Session]
) -> None:
    create = "SELECT easeml.create_dataset('bad', %s, '{petal}', 'kind', shuffle => 'across')"
    with spread.transaction(force_rollback=True):
        spread.execute("CREATE TABLE spread_here PARTITION OF spread FOR VALUES IN (3)")
        with (
            pytest.raises(psycopg.Error, match="spread_here is no foreign table of postgres_fdw"),
            spread.transaction(),
        ):
            spread.execute(create, ["spread"])
    with spread.transaction(force_rollback=True):
        spread.execute("ALTER FOREIGN TABLE spread_west ALTER petal OPTIONS (column_name 'leaf')")
        with (
            pytest.raises(psycopg.Error, match="'petal' of partition public\\.spread_west is called"),
            spread.transaction(),
        ):
            spread.execute(create, ["spread"])
    with spread.transaction(force_rollback=True):
        spread.execute("ALTER SERVER west RENAME TO north")
        with (
            pytest.raises(psycopg.Error, match="lies on foreign server north, which is no segment"),
            spread.transaction(),
        ):
            spread.execute(create, ["spread"])
        spread.execute("ALTER SERVER north OPTIONS (service 'pg_west')")
        spread.execute(create, ["spread"])
    with spread.transaction(force_rollback=True):
        facts = {"database": conninfo_to_dict(nodes["west"].dsn)["dbname"], "port": "1"}
        spread.execute("UPDATE easeml.segments SET facts = %s WHERE segment_name = 'west'", [Jsonb(facts)])
        with pytest.raises(psycopg.Error, match="foreign server west is another server than segment 'west'"):
            spread.execute(create, ["spread"])
    with spread.transaction(force_rollback=True):
        spread.execute("ALTER TABLE spread ALTER petal TYPE real")
        asked = spread.value("SELECT easeml.create_dataset('bad', 'spread', '{petal}', 'kind', shuffle => 'across')")
        assert asked
    spread.execute("ALTER TABLE spread ALTER petal TYPE real")
    words = refused(spread, create, "spread")
    assert "column 'petal' is real on the root table and double precision on segment east" in words
    spread.execute("ALTER TABLE spread ALTER petal TYPE float8")


def test_who_asks_must_be_able_to_read_on_each_node(spread: Session, nodes: dict[str, Session]) -> None:
    """Roles of the tests are on all nodes: one that is not there is told to a node itself."""
    asker = spread.as_role("gardener", "easeml_tenant")
    own = '{"east": "public.own", "west": "public.own"}'
    dataset_id = asker.value("SELECT easeml.create_dataset('mine', %s, '{petal}', 'kind')", own)
    with pytest.raises(psycopg.Error, match="segment east: role gardener may not read column petal"):
        asker.execute("CALL easeml.wait_dataset(%s, 60)", [dataset_id])
    assert asker.value("SELECT status FROM easeml.packing_status") == "failed"
    with pytest.raises(psycopg.Error, match="could not be packed: segment east: role gardener"):
        asker.execute("SELECT easeml.select_models('mine')")
    for node in nodes.values():
        node.execute("GRANT SELECT (petal, kind) ON own TO gardener")
        let_read(node, "own", "gardener")
    dataset_id = asker.value("SELECT easeml.create_dataset('mine', %s, '{petal}', 'kind')", own)
    asker.execute("CALL easeml.wait_dataset(%s, 60)", [dataset_id])
    assert asker.values("SELECT tenant FROM easeml.dataset_info") == ["gardener"]
    told = {"inputs": ["petal"], "target": "kind", "tables": ["public.own"], "role": "nobody_here", "seed": 0}
    with pytest.raises(psycopg.Error, match="there is no role nobody_here"):
        nodes["west"].execute("SELECT easeml_segment.pack_on_node('source', %s)", [Jsonb(told)])
    with pytest.raises(psycopg.Error, match=r"segment east has the rows of partition \d of dataset 'mine' of gardener"):
        without_slots(spread, "SELECT easeml.remove_segment('east', true)")
    asker.execute("SELECT easeml.drop_dataset('mine')")


def without_slots(control: Session, statement: str) -> None:
    """Try something as if there were no slots."""
    with control.transaction(force_rollback=True):
        control.execute("DELETE FROM easeml.slots")
        control.execute("DELETE FROM easeml.replicas")
        control.execute(statement)


def test_a_segment_without_slots_holds_no_rows(spread: Session) -> None:
    own = '{"east": "public.own", "west": "public.own"}'
    with spread.transaction(force_rollback=True):
        spread.execute(
            "DELETE FROM easeml.slots s USING easeml.segments g WHERE g.segment_name = 'west'"
            " AND g.segment_id = s.segment_id"
        )
        spread.execute("SELECT easeml.create_dataset('bad', %s, '{petal}', 'kind')", [own])
        with pytest.raises(psycopg.Error, match="segment 'west' has rows and no slots"):
            spread.execute("SELECT easeml.create_dataset('bad', %s, '{petal}', 'kind', shuffle => 'within')", [own])


def test_a_packing_that_waits_or_is_given_up_leaves_nothing(spread: Session, nodes: dict[str, Session]) -> None:
    own = '{"east": "public.own", "west": "public.own"}'
    create = "SELECT easeml.create_dataset('slow', %s, '{petal}', 'kind')"
    with nodes["west"].transaction(), type(spread).open(spread.dsn) as other:
        nodes["west"].execute("LOCK TABLE own IN ACCESS EXCLUSIVE MODE")
        dataset_id = other.value(create, own)
        with pytest.raises(psycopg.Error, match="'slow' is still being packed on its nodes"):
            other.execute("SELECT easeml.select_models('slow')")
        with pytest.raises(psycopg.Error, match="'slow' is being packed already"):
            other.execute(create, [own])
        other.wait_until("SELECT status = 'waiting' FROM easeml.packing_status")
        assert "segment west" in other.value("SELECT problem FROM easeml.packing_status")
        other.execute("SELECT easeml.drop_dataset('slow')")
    nodes["west"].wait_until("SELECT count(*) = 0 FROM easeml_segment.datasets WHERE dataset_id = %s", dataset_id)
    with pytest.raises(psycopg.Error, match="there is no dataset"):
        spread.execute("CALL easeml.wait_dataset(%s)", [dataset_id])


# Faults


def test_a_session_that_dies_while_it_packs_is_made_up_for(spread: Session, nodes: dict[str, Session]) -> None:
    here = spread.value(HERE, "{petal}", "kind")
    with type(spread).open(spread.dsn) as other:
        with nodes["west"].transaction():
            nodes["west"].execute("LOCK TABLE own IN ACCESS EXCLUSIVE MODE")
            there = other.value(CREATE, "there", "spread", "{petal}", "kind", "across")
            # Asked by another session: within a transaction the server shows the same activity again and again.
            killed = (
                "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity WHERE application_name"
                " LIKE 'easeml packing%%' AND datname = %s AND wait_event_type = 'Lock'"
            )
            other.wait_until(killed, conninfo_to_dict(nodes["west"].dsn)["dbname"])
            other.wait_until("SELECT status = 'waiting' FROM easeml.packing_status")
        other.execute("CALL easeml.wait_dataset(%s, 60)", [there])
    assert blocks_on(nodes, there) == spread.rows(BLOCKS.format("easeml"), here)
    spread.execute("SELECT easeml.drop_dataset('here'), easeml.drop_dataset('there')")


def test_a_coordinator_that_was_replaced_records_no_packing(spread: Session) -> None:
    lease_number = spread.value("SELECT lease_number FROM easeml.coordinator_lease")
    with pytest.raises(psycopg.Error) as refused:
        spread.execute("SELECT easeml.note_packing(1, '{}', true, %s)", [lease_number - 1])
    assert refused.value.sqlstate == "ML006"
    with spread.transaction(force_rollback=True):
        spread.execute(
            "INSERT INTO easeml.packings (dataset_id, tenant, dataset_name, version, caller, shuffle, arguments,"
            " places, started_at) VALUES (1000, 'postgres', 'late', 1, current_user, 'across', %s, '{}', now())",
            [Jsonb(LATE)],
        )
        told = {
            "dataset_id": 1000, "task": "classification", "n_outputs": 3, "rows_of_block": 40, "n_skipped": 0,
            "input_shape": [1], "encoder": {}, "explanations": {}, "n_moved_bytes": 0, "n_bytes": {"0": 1},
            "checksums": {"0": 1}, "parts_by_segment": {"east": [0]}, "rows": [["train", 0, 9]],
        }  # fmt: skip
        with pytest.raises(psycopg.Error) as refused:
            spread.execute("SELECT easeml.finish_packing(%s, %s)", [Jsonb(told), lease_number - 1])
    assert refused.value.sqlstate == "ML006"
