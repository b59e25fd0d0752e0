"""Labelled images on nodes: held in the memory of their sessions, and dealt to the bytes of one server."""

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

WORD = "CREATE TYPE word AS ENUM ('c', 'b', 'a')"
# The first thirty rows come again, some of them on the other node.
PICTURES = """
SELECT i AS id, decode(md5((i % {n_images})::text), 'hex') AS image, nullif(i % 7, 3)::float8 / 3 AS x, ({label}) AS y
FROM (SELECT generate_series(1, 300) UNION ALL SELECT generate_series(1, 30)) g(i)
"""
CREATE = """
SELECT easeml.create_dataset(%(name)s, %(source)s, %(inputs)s, 'y', n_partitions => 5, block_rows => 17,
    input_shape => '{4,4}', seed => 3, task => %(task)s, placement => 'bound') AS id
"""
PLACES = '{"east": "public.pictures", "west": "public.pictures"}'
BLOCKS = """
SELECT split, partition_number, block_number, n_rows, md5(inputs) AS inputs, md5(targets) AS targets
FROM {}.version_blocks WHERE dataset_id = %s ORDER BY 1, 2, 3
"""
DATA = """
SELECT task, input_shape, n_outputs, block_rows, n_skipped_rows, encoder, explanations,
    (SELECT jsonb_agg(jsonb_build_array(n_train_rows, n_validation_rows, n_test_rows, checksum)
        ORDER BY partition_number) FROM easeml.partitions p WHERE p.dataset_id = d.dataset_id) AS sizes
FROM easeml.datasets d WHERE dataset_id = %s
"""
# Only the service makes temporary tables on a node.
WATCH = """
CREATE TABLE made (name text);
CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO public.made SELECT object_identity FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table';
END
$$;
CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION watch()
"""


@pytest.fixture(scope="module")
def nodes(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """Two nodes, which tell what tables are made there."""
    with two_nodes(private_server, tmp_path_factory.mktemp("services")) as nodes:
        for node in nodes.values():
            node.execute(WORD)
            node.execute(WATCH)
        yield nodes


@pytest.fixture(scope="module")
def control(module_database: Session, nodes: dict[str, Session], coordinator: Coordinator) -> Iterator[Session]:
    """A control server with a slot on each node, and a coordinator that runs."""
    module_database.execute(WORD)
    for name in nodes:
        module_database.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
        module_database.execute("SELECT easeml.add_slots(1, %s)", [name])
    with coordinator(module_database):
        yield module_database


@pytest.fixture
def pictures(control: Session, nodes: dict[str, Session]) -> Iterator[Callable[..., None]]:
    """`pictures(label, n_images)` makes a table of all rows here and of its parts on the nodes, of some other size."""

    def make(label: str, n_images: int = 1000) -> None:
        rows = PICTURES.format(label=label, n_images=n_images)
        control.execute(f"CREATE TABLE pictures AS {rows}")
        for number, node in enumerate(nodes.values()):
            node.execute(f"CREATE TABLE pictures AS SELECT * FROM ({rows}) r WHERE (id % 3 > 0)::int = {number}")
            node.execute("ALTER TABLE pictures ADD n serial PRIMARY KEY")  # rows on nodes are not named by it
            let_read(node, "pictures")
            node.execute("TRUNCATE made")

    yield make
    for session in (control, *nodes.values()):
        session.execute("DROP TABLE IF EXISTS pictures")


def packed(control: Session, source: str, inputs: list[str], task: str | None) -> int:
    name = "here" if source == "pictures" else "there"
    dataset_id = control.rows(CREATE, name=name, source=source, inputs=inputs, task=task)[0]["id"]
    if source != "pictures":
        control.execute("CALL easeml.wait_dataset(%s, 60)", [dataset_id])
    return int(dataset_id)


def are_alike(control: Session, nodes: dict[str, Session], inputs: list[str], task: str | None) -> bool:
    """Whether a dataset is the same of rows here and of rows on nodes; both are dropped."""
    here, there = (packed(control, source, inputs, task) for source in ("pictures", PLACES))
    blocks = [row for node in nodes.values() for row in node.rows(BLOCKS.format("easeml_segment"), there)]
    blocks.sort(key=lambda row: (row["split"], row["partition_number"], row["block_number"]))
    both = [control.rows(DATA, dataset_id) for dataset_id in (here, there)]
    expected = control.rows(BLOCKS.format("easeml"), here)
    control.execute("SELECT easeml.drop_dataset('here'), easeml.drop_dataset('there')")
    return (blocks, both[1]) == (expected, both[0])


def were_held(nodes: dict[str, Session]) -> bool:
    """Whether no node has made a table of its rows."""
    made = [set(node.values("SELECT name FROM made")) for node in nodes.values()]
    assert all("pg_temp.easeml_pieces" in names for names in made), made
    return not any("pg_temp.easeml_rows" in names for names in made)


@pytest.mark.parametrize(
    ("label", "inputs", "task"),
    [
        ("'class ' || i % 4", ["image"], None),
        ("i % 3", ["image"], None),
        ("i % 3 = 0", ["x", "image", "id"], None),
        ("(i % 3)::numeric / 2", ["image"], "classification"),
        ("CASE WHEN i % 3 = 0 THEN 'Ä' WHEN i % 2 = 0 THEN 'b' ELSE 'Z' END", ["image"], None),
    ],
)
def test_images_of_two_nodes_are_packed_to_the_bytes_of_one_server(
    control: Session, nodes: dict[str, Session], pictures: Callable[..., None], label: str, inputs: list[str],
    task: str | None,
) -> None:  # fmt: skip
    pictures(label)
    assert are_alike(control, nodes, inputs, task)
    assert were_held(nodes)


def test_labels_of_an_enum_keep_its_order(
    control: Session, nodes: dict[str, Session], pictures: Callable[..., None]
) -> None:
    """Servers number an enum's values each in its own way, so hashes of rows differ, and the order with them."""
    pictures("(ARRAY['b', 'a', 'c'])[1 + i % 3]::word")
    there = packed(control, PLACES, ["image"], None)
    assert were_held(nodes)
    found = "SELECT encoder #> '{target,labels}' FROM easeml.datasets WHERE dataset_id = %s"
    assert control.value(found, there) == ["c", "b", "a"]
    n_rows = "SELECT sum(n_train_rows + n_validation_rows + n_test_rows) FROM easeml.partitions WHERE dataset_id = %s"
    assert control.value(n_rows, there) == 330
    control.execute("SELECT easeml.drop_dataset('there')")


def test_images_that_come_again_on_another_node_are_spread_alike(
    control: Session, nodes: dict[str, Session], pictures: Callable[..., None]
) -> None:
    pictures("i % 2", n_images=20)
    assert are_alike(control, nodes, ["image"], None)
    assert were_held(nodes)


@pytest.mark.parametrize(
    ("label", "task"),
    [
        ("CASE WHEN i % 9 > 0 THEN i % 2 END", None),  # rows without a label
        ("CASE WHEN i = 1 THEN 'rare' ELSE 'common' END", None),  # too few rows for each split
        ("i", None),  # so many whole numbers that they are no labels
        ("i / 7::float8", None),
    ],
)
def test_rows_that_cannot_be_held_are_packed_from_tables(
    control: Session, nodes: dict[str, Session], pictures: Callable[..., None], label: str, task: str | None
) -> None:
    pictures(label)
    assert are_alike(control, nodes, ["image"], task)
    assert not were_held(nodes)


def test_nodes_without_rows_or_with_one_class_alone_are_packed_alike(
    control: Session, nodes: dict[str, Session], pictures: Callable[..., None]
) -> None:
    pictures("CASE WHEN i % 3 = 0 THEN 'all of east' ELSE 'all of west' END")
    assert are_alike(control, nodes, ["image"], None)
    assert were_held(nodes)
    for session in (control, *nodes.values()):
        session.execute("DELETE FROM pictures WHERE id % 3 = 0; UPDATE pictures SET y = id % 2")
    assert are_alike(control, nodes, ["image"], None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE pictures SET image = image || '\\x00' WHERE id = 7", "holds values of different lengths"),
        ("UPDATE pictures SET image = NULL WHERE id = 7", "is NULL in some rows"),
        ("UPDATE pictures SET x = 'Infinity' WHERE id = 7", "has infinite values"),
        ("UPDATE pictures SET y = 'only'", "has one class only"),
    ],
)
def test_bad_images_on_a_node_are_told_in_words(
    control: Session, nodes: dict[str, Session], pictures: Callable[..., None], change: str, words: str
) -> None:
    pictures("'class ' || i % 4")
    for session in (control, *nodes.values()):
        session.execute(change)
    for source in ("pictures", PLACES):
        with pytest.raises(psycopg.Error) as refused:
            packed(control, source, ["image", "x"], None)
        assert words in str(refused.value)
    assert control.value("SELECT count(*) FROM easeml.datasets") == 0


def test_a_session_that_dies_with_the_images_it_holds_is_made_up_for(
    control: Session, nodes: dict[str, Session], pictures: Callable[..., None]
) -> None:
    pictures("i % 2")
    east, west = nodes.values()
    with type(control).open(control.dsn) as other, type(east).open(east.dsn) as watching:
        with west.transaction():
            west.execute("LOCK TABLE pictures IN ACCESS EXCLUSIVE MODE")
            (row,) = control.rows(CREATE, name="there", source=PLACES, inputs=["image"], task=None)
            # East has read its images, and its session waits in its transaction for what comes next.
            killed = (
                "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE 'easeml packing%%' AND state = 'idle in transaction'"
            )
            watching.wait_until(killed)
        other.execute("CALL easeml.wait_dataset(%s, 60)", [row["id"]])
    control.execute("SELECT easeml.drop_dataset('there')")
    assert are_alike(control, nodes, ["image"], None)
    assert were_held(nodes)


def test_sessions_that_wait_for_the_next_packing_are_one_a_server_and_may_die(
    control: Session, nodes: dict[str, Session], pictures: Callable[..., None]
) -> None:
    pictures("i % 2")
    waiting = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name SIMILAR TO 'easeml (packing|coordinator .packing).*' AND state = 'idle'"
    )
    for _ in range(2):
        assert are_alike(control, nodes, ["image"], None)
        assert all(session.value(waiting) <= 1 for session in (control, *nodes.values()))
