"""Runs on other servers: the same bytes as on one, units recorded here, states that hop, and states that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.nodes import two_nodes

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

FLOWERS = """
CREATE TABLE flowers AS
SELECT i AS id, (i % 3) * 2 + sin(i * 12.9898) AS petal, (ARRAY['rose', 'tulip', 'lily'])[1 + i % 3] AS kind
FROM generate_series(1, 300) i
"""
BOUND = """
SELECT easeml.create_dataset(%s, 'flowers', '{petal}', 'kind', n_partitions => 4, placement => 'bound')
"""
SELECT_MODELS = """
SELECT easeml.select_models(%s, '{mlp}', procedure => 'grid', max_epochs => 2,
    search_space => '{"learning_rate": [0.1, 0.03], "batch_size": 16, "hidden_units": [[8]]}')
"""
STATES = """
SELECT t.trial_number, u.epoch, u.position, u.state_sha256 FROM easeml.training_units u JOIN easeml.trials t
USING (trial_id) WHERE t.run_id = %s ORDER BY 1, 2, 3
"""
SCORES = """
SELECT trial_number, epoch, split, value AS log_loss FROM easeml.metric_history
WHERE run_id = %s AND metric = 'log_loss' ORDER BY 1, 2, 3
"""


@pytest.fixture(scope="module")
def nodes(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """Two nodes."""
    with two_nodes(private_server, tmp_path_factory.mktemp("services")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def here(module_database: Session, nodes: dict[str, Session], coordinator: Coordinator) -> int:
    """A run on two segments of this server."""
    module_database.execute(FLOWERS)
    module_database.execute("SELECT easeml.add_segment('other'), easeml.add_slots(1, 'other')")
    module_database.execute(BOUND, ["here"])
    with coordinator(module_database):
        run_id = module_database.value(SELECT_MODELS, "here")
        module_database.execute("CALL easeml.wait(%s)", [run_id])
    return int(run_id)


@pytest.fixture(scope="module")
def there(module_database: Session, nodes: dict[str, Session], here: int) -> Session:
    """The control server with a dataset that is placed on the nodes alone: it has no slots of its own any more."""
    module_database.execute("SELECT easeml.remove_slot(slot_id, force => true) FROM easeml.slots ORDER BY slot_id")
    for name in nodes:
        module_database.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
        module_database.execute("SELECT easeml.add_slots(1, %s)", [name])
    module_database.execute(BOUND, ["there"])
    return module_database


def test_a_run_that_no_slot_could_train_is_told_to_wait(there: Session) -> None:
    there.execute("SELECT easeml.create_dataset('shared', 'flowers', '{petal}', 'kind', n_partitions => 4)")
    told: list[str] = []
    with there.transaction(force_rollback=True):
        there.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        there.execute(SELECT_MODELS, ["shared"])
    assert [line for line in told if "all slots are on other servers" in line]


def test_gangs_are_refused_by_name_where_rows_lie_on_nodes(there: Session) -> None:
    with pytest.raises(psycopg.Error, match="dataset 'there' lies on other servers, got data_parallel") as refused:
        there.execute("SELECT easeml.select_models('there', allocation => 'data_parallel')")
    assert refused.value.sqlstate == "ML004"
    assert there.value("SELECT count(*) FROM easeml.runs WHERE allocation = 'data_parallel'") == 0


def test_a_run_whose_node_is_refused_is_told_which_one_it_waits_for(there: Session) -> None:
    told: list[str] = []
    with there.transaction(force_rollback=True):
        there.execute("UPDATE easeml.segments SET refusal = 'service pg_west: no' WHERE segment_name = 'west'")
        there.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        there.execute(SELECT_MODELS, ["there"])
    assert [line for line in told if "waits for segment 'west', which has partition" in line and "pg_west: no" in line]


def test_a_run_on_two_nodes_ends_in_the_bytes_of_the_run_on_one_server(
    there: Session, nodes: dict[str, Session], here: int, coordinator: Coordinator
) -> None:
    holders = there.values("SELECT DISTINCT holders FROM easeml.partition_status WHERE dataset_name = 'there'")
    assert sorted(holders) == [["east"], ["west"]]
    with coordinator(there):
        run_id = there.value(SELECT_MODELS, "there")
        there.execute("CALL easeml.wait(%s)", [run_id])
    assert there.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
    assert there.values(STATES, run_id)
    assert there.rows(STATES, run_id) == there.rows(STATES, here)
    assert there.rows(SCORES, run_id) == there.rows(SCORES, here)
    there.assert_slot_time_is_counted(run_id)
    # What answers is here, and nothing points to a state that is elsewhere.
    answered = there.value("SELECT count(easeml.predict('there', jsonb_build_object('petal', petal))) FROM flowers")
    assert answered == 300
    assert there.values("SELECT checkpoint_id FROM easeml.checkpoints WHERE is_elsewhere") == []
    units = there.rows(
        "SELECT DISTINCT u.partition_number, g.segment_name FROM easeml.training_units u JOIN easeml.slots USING"
        " (slot_id) JOIN easeml.segments g USING (segment_id) WHERE u.run_id = %s",
        run_id,
    )
    placed = there.rows(
        "SELECT partition_number, holders[1] AS segment_name FROM easeml.partition_status WHERE dataset_name = 'there'"
    )
    assert sorted(map(str, units)) == sorted(map(str, placed))
    for name, node in nodes.items():
        held = node.values("SELECT DISTINCT partition_number FROM easeml_segment.partitions")
        assert set(held) == {row["partition_number"] for row in placed if row["segment_name"] == name}
