"""Trees where rows lie on nodes: whole rounds there, to the same bytes as on one server; or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.nodes import NODE_ROLE, let_read, two_nodes

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

N_SLOTS, N_PARTITIONS, N_EPOCHS = 1, 3, 2
TREES = ["extra_trees", "lightgbm", "random_forest"]
ROWS = """
SELECT i AS id, CASE WHEN i % 11 = 0 THEN NULL ELSE sin(i) * 3 END AS x, cos(i * 7.0) AS noise,
    (array['red', 'green', 'blue'])[1 + i % 3] AS colour, abs(sin(i)) * 10 + (i % 3 = 1)::integer * 5 AS y
FROM generate_series(1, 900) i
"""
LISTED = '{"east": "public.own", "west": "public.own"}'
INPUTS = "{x,noise,colour}"
HERE = "SELECT easeml.create_dataset('here', 'points', %s, 'y', n_partitions => 3, seed => 3)"
THERE = "SELECT easeml.create_dataset(%s, %s, %s, 'y', n_partitions => 3, seed => 3, shuffle => %s)"
RUN = """
SELECT easeml.select_models(%s, %s::text[], procedure => 'grid', max_epochs => 2, seed => 5,
    search_space => '{"trees_per_epoch": 5}')
"""
STATES = """
SELECT t.architecture, u.epoch, u.position, u.partition_number, u.n_rows, u.loss, u.n_slots, u.state_sha256
FROM easeml.training_units u JOIN easeml.trials t USING (trial_id) WHERE u.run_id = %s ORDER BY 1, 2, 3
"""
SCORES = """
SELECT architecture, epoch, split, n_rows, metric, value FROM easeml.metric_history
WHERE run_id = %s AND metric IN ('rmse', 'mae') ORDER BY 1, 2, 3, 5
"""
PARTS = "SELECT count(DISTINCT partition_number) FROM easeml_segment.version_blocks WHERE dataset_id = %s"
COPIED = "SELECT n_moved_bytes, n_copied_bytes FROM easeml.dataset_info WHERE dataset_id = %s"


@pytest.fixture(scope="module")
def nodes(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """Two nodes, each with a part of the rows; east has more."""
    with two_nodes(private_server, tmp_path_factory.mktemp("services")) as nodes:
        for name, node in nodes.items():
            there = "i % 3 > 0" if name == "east" else "i % 3 = 0"
            node.execute(f"CREATE TABLE own AS {ROWS} WHERE {there}")
            let_read(node, "own")
            node.execute(f"GRANT CREATE ON SCHEMA public TO {NODE_ROLE}")
        yield nodes


@pytest.fixture(scope="module")
def spread(module_database: Session, nodes: dict[str, Session], coordinator: Coordinator) -> Iterator[Session]:
    """A control server that has all rows as well, with a slot, and one on each node; a coordinator runs."""
    control = module_database
    control.execute(f"CREATE TABLE points AS {ROWS}")
    for name in nodes:
        control.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
        control.execute("SELECT easeml.add_slots(1, %s)", [name])
    with coordinator(control):
        yield control


def packed(control: Session, name: str, source: str = LISTED, shuffle: str = "across") -> int:
    """Create a dataset and wait until the nodes have packed it."""
    dataset_id = control.value(THERE, name, source, INPUTS, shuffle)
    control.execute("CALL easeml.wait_dataset(%s, 60)", [dataset_id])
    return int(dataset_id)


def finished(control: Session, dataset: str, architectures: list[str]) -> int:
    """Do a run, which must end well."""
    run_id = control.value(RUN, dataset, architectures)
    control.execute("CALL easeml.wait(%s)", [run_id])
    told = control.rows("SELECT kind, message FROM easeml.events WHERE run_id = %s ORDER BY event_id", run_id)
    assert control.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished", told
    assert control.values("SELECT DISTINCT status FROM easeml.trials WHERE run_id = %s", run_id) == ["finished"], told
    return int(run_id)


def test_trees_on_rows_of_nodes_end_in_the_bytes_of_one_server(spread: Session, nodes: dict[str, Session]) -> None:
    spread.execute(HERE, [INPUTS])
    there = packed(spread, "there")
    here_run, there_run = (finished(spread, name, TREES) for name in ("here", "there"))
    assert len(spread.rows(STATES, here_run)) == len(TREES) * N_EPOCHS * N_PARTITIONS
    assert spread.rows(STATES, there_run) == spread.rows(STATES, here_run)
    assert spread.rows(SCORES, there_run) == spread.rows(SCORES, here_run)
    spread.assert_slot_time_is_counted(there_run)
    segments = "SELECT DISTINCT g.service IS NOT NULL FROM easeml.training_units u JOIN easeml.slots USING (slot_id)"
    assert spread.values(f"{segments} JOIN easeml.segments g USING (segment_id) WHERE run_id = %s", there_run) == [True]
    _rows_were_copied_once_and_are_counted(spread, nodes, there, there_run)
    _all_else_is_as_on_one_server(spread, nodes, there_run)
    spread.execute("SELECT easeml.drop_dataset(d, cascade => true) FROM unnest('{here,there}'::text[]) d")


def _rows_were_copied_once_and_are_counted(
    spread: Session, nodes: dict[str, Session], dataset_id: int, run_id: int
) -> None:
    held = {name: node.value(PARTS, dataset_id) for name, node in nodes.items()}
    assert N_PARTITIONS in held.values()
    (copied,) = spread.rows(COPIED, dataset_id)
    assert copied["n_copied_bytes"] > 0
    assert (
        spread.value("SELECT row_bytes FROM easeml.run_traffic WHERE run_id = %s", run_id) == copied["n_copied_bytes"]
    )
    each = spread.rows(
        "SELECT count(*) AS n FROM easeml.row_copies WHERE dataset_id = %s"
        " GROUP BY split, partition_number, to_segment_id",
        dataset_id,
    )
    assert {row["n"] for row in each} == {1}
    # A copy takes what the partition takes, and counts against the limit of its tenant.
    n_bytes = spread.value("SELECT easeml.copied_bytes(current_user)")
    owned = "SELECT sum(n_bytes)::int8 FROM easeml.partitions WHERE dataset_id = %s"
    assert 0 < n_bytes <= 2 * spread.value(owned, dataset_id)
    assert spread.value("SELECT used_bytes FROM easeml.tenant_status WHERE tenant = current_user") > n_bytes


def _all_else_is_as_on_one_server(spread: Session, nodes: dict[str, Session], run_id: int) -> None:
    for trial in spread.rows("SELECT trial_id, architecture FROM easeml.trials WHERE run_id = %s", run_id):
        replayed = spread.value("CALL easeml.replay(%s)", trial["trial_id"])
        assert replayed["is_identical"], (trial, replayed)
        assert replayed["n_units"] == N_EPOCHS * N_PARTITIONS
        assert spread.value("CALL easeml.evaluate_on_nodes('there', %s)", trial["trial_id"]) > 100
        same = """
            SELECT o.trial_id FROM easeml.trials o JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d
            USING (dataset_id) WHERE d.dataset_name = 'here' AND o.architecture = %s
        """
        other = spread.value(same, trial["architecture"])
        asked = "SELECT metric, validation, test FROM easeml.evaluate(%s, %s::bigint)"
        assert spread.rows(asked, "there", trial["trial_id"]) == spread.rows(asked, "here", other)
    spread.value("SELECT easeml.predict_table('here', 'points', 'public.told', key => '{id}')")
    assert spread.value("CALL easeml.predict_on_nodes('there', %s, 'public.told', key => '{id}')", LISTED) == 900
    told = "SELECT id, predicted_value FROM told ORDER BY 1"
    found = [row for node in nodes.values() for row in node.rows(told)]
    assert sorted(found, key=lambda row: int(row["id"])) == spread.rows(told)
    row = "jsonb_build_object('x', x, 'noise', noise, 'colour', colour)"
    assert spread.value(f"SELECT count(easeml.predict_value('there', {row})) FROM points") == 900


def test_what_is_chosen_unasked_has_trees_in_it(spread: Session) -> None:
    packed(spread, "open")
    with spread.transaction(force_rollback=True):
        run_id = spread.value("SELECT easeml.select_models('open', max_seconds => 100)")
        assert {*TREES[:2]} <= {*spread.values("SELECT architecture FROM easeml.arms WHERE run_id = %s", run_id)}
    spread.execute("SELECT easeml.drop_dataset('open')")


def test_rows_that_stay_within_their_nodes_have_no_trees_and_it_says_so(spread: Session) -> None:
    packed(spread, "stays", shuffle="within")
    words = "take.? all partitions at once, and the rows of dataset 'stays' stay on their nodes"
    with pytest.raises(psycopg.Error, match=f"lightgbm {words}"):
        spread.execute(RUN, ["stays", ["lightgbm"]])
    told: list[str] = []
    spread.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    with spread.transaction(force_rollback=True):
        run_id = spread.value("SELECT easeml.select_models('stays', max_seconds => 100)")
        chosen = spread.values("SELECT architecture FROM easeml.arms WHERE run_id = %s", run_id)
        assert chosen
        assert not {*TREES} & {*chosen}
    (line,) = [line for line in told if line.startswith("left out: ")]
    assert "lightgbm" in line
    assert "the rows of dataset 'stays' stay on their nodes (shuffle => 'within')" in line
    spread.execute("SELECT easeml.drop_dataset('stays')")


def test_rows_that_stay_on_one_node_have_trees_there_and_go_nowhere(spread: Session, nodes: dict[str, Session]) -> None:
    dataset_id = packed(spread, "alone", '{"east": "public.own"}', "within")
    run_id = finished(spread, "alone", ["lightgbm"])
    assert spread.rows(COPIED, dataset_id) == [{"n_moved_bytes": 0, "n_copied_bytes": 0}]
    assert nodes["west"].value(PARTS, dataset_id) == 0
    trial_id = spread.value("SELECT trial_id FROM easeml.trials WHERE run_id = %s", run_id)
    assert spread.value("CALL easeml.replay(%s)", trial_id)["is_identical"]
    assert nodes["west"].value(PARTS, dataset_id) == 0
    spread.execute("SELECT easeml.drop_dataset('alone', cascade => true)")


def test_who_may_keep_no_copy_is_told_so_and_one_that_has_begun_goes_on(spread: Session) -> None:
    packed(spread, "much")
    used = spread.value("SELECT easeml.used_bytes(current_user)")
    gathering = "SELECT easeml.gathering_segments(d, %s) FROM easeml.datasets d WHERE d.dataset_name = 'much'"
    assert len(spread.value(gathering, False)) == 2
    with spread.transaction(force_rollback=True):
        limit = "INSERT INTO easeml.tenants (tenant, max_bytes) VALUES (current_user, %s)"  # as that of a tenant has it
        spread.execute(limit, [used + 1])
        assert spread.value(gathering, False) == []
        assert len(spread.value(gathering, True)) == 1
        with pytest.raises(
            psycopg.Error, match=r"lightgbm takes all partitions at once, and max_bytes: .* may not keep"
        ):
            spread.execute(RUN, ["much", ["lightgbm"]])
    spread.execute("SELECT easeml.drop_dataset('much')")
