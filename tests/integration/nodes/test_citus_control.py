"""A control server that is itself the coordinator of a Citus cluster: its workers are segments.

A distributed table is named as in SQL. As in test_citus.py each test runs on what looks like a cluster, and on a real
one, whose workers are reached directly or through the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

from tests.citus import FORMS, Cluster, add_segments, control_on_coordinator
from tests.integration.nodes.test_citus import BLOCKS, CREATE, HERE, ROWS, SELECT_MODELS, STATES, blocks_on
from tests.nodes import NODE_ROLE

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]
    Place = tuple[Session, Cluster]

OWN = HERE.replace("'tulips'", "'own_tulips'")
SELECT_TREES = """
SELECT easeml.select_models(%s, '{lightgbm}', procedure => 'grid', max_epochs => 2,
    search_space => '{"trees_per_epoch": 2, "num_leaves": [3]}')
"""
TRIALS = """
SELECT max(t.trial_id) FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
WHERE d.dataset_name = 'there' GROUP BY r.run_id
"""
A_ROW = '{"petal": 1.25, "soil": "clay"}'


@pytest.fixture(scope="module", params=FORMS, ids="-".join)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, coordinator: Coordinator
) -> Iterator[Place]:
    """The control server, with the same rows in a table of its own and in a distributed one; a coordinator runs."""
    folder = tmp_path_factory.mktemp("services")
    with control_on_coordinator(request.param, folder) as (control, cluster):
        control.execute("SELECT easeml.set_slots(1)")
        control.execute(f"CREATE TABLE own_tulips AS {ROWS}")
        cluster.distribute("tulips", ROWS)
        for worker in cluster.workers.values():
            worker.execute(f"GRANT CREATE ON SCHEMA public TO {NODE_ROLE}")
        add_segments(control, cluster)
        with coordinator(control):
            yield control, cluster


@pytest.fixture(scope="module")
def trained(place: Place) -> Place:
    """`place` with datasets of both tables, and networks and trees that were trained on each."""
    control, _ = place
    control.value(OWN)
    control.execute("CALL easeml.wait_dataset(%s, 120)", [control.value(CREATE, "there", "tulips", None)])
    for name in ("here", "there"):
        for ask in (SELECT_TREES, SELECT_MODELS):
            control.execute("CALL easeml.wait(%s)", [control.value(ask, name)])
    return place


def compared(control: Session, query: str) -> None:
    """The same query says the same of rows here and on the workers."""
    here, there = (control.rows(query.replace("NAME", name)) for name in ("here", "there"))
    assert here
    assert here == there


def test_a_distributed_table_named_as_in_sql_is_packed_and_trained_to_the_bytes_of_a_table_here(trained: Place) -> None:
    control, cluster = trained
    told = control.rows("SELECT shuffle, source FROM easeml.datasets WHERE dataset_name = 'there'")
    assert told == [{"shuffle": "across", "source": "public.tulips"}]
    here, there = control.values("SELECT dataset_id FROM easeml.datasets WHERE dataset_name IN ('here', 'there')")
    packed = blocks_on(cluster, max(here, there))  # those that trees needed on the other worker are there, too
    own = control.rows(BLOCKS.format("easeml"), min(here, there))
    assert own == [block for number, block in enumerate(packed) if block not in packed[:number]]
    runs = control.values("SELECT run_id FROM easeml.runs ORDER BY run_id")
    states = [control.rows(STATES, run_id) for run_id in runs]
    assert all(states)
    assert states[:2] == states[2:]


def test_trials_are_evaluated_and_explained_where_their_rows_are(trained: Place) -> None:
    control, _ = trained
    assert control.value("CALL easeml.evaluate_on_nodes('there')") > 100
    compared(control, "SELECT metric, validation, test FROM easeml.evaluate('NAME')")
    assert control.value("CALL easeml.explain_on_nodes('there', n_rows => 50)") == 2
    compared(control, "SELECT * FROM easeml.explain('NAME', n_rows => 50)")
    assert control.value(f"CALL easeml.explain_row_on_nodes('there', '{A_ROW}')") == 2
    compared(control, f"SELECT * FROM easeml.explain_row('NAME', '{A_ROW}')")


def test_rows_are_compared_with_those_that_were_trained_on_where_both_are(trained: Place) -> None:
    control, _ = trained
    assert control.value("CALL easeml.drift_on_nodes('there', 'tulips')") >= 2
    there = control.rows("SELECT * FROM easeml.drift('there', 'tulips')")
    assert there == control.rows("SELECT * FROM easeml.drift('here', 'own_tulips')")
    assert {row["drift"] for row in there} == {"none"}


def test_tables_are_predicted_and_trials_replayed_where_their_rows_are(trained: Place) -> None:
    control, cluster = trained
    predict = "CALL easeml.predict_on_nodes('there', 'tulips', 'public.told', key => '{id}')"
    assert control.value(predict) == 400
    assert sum(worker.value("SELECT count(*) FROM told") for worker in cluster.workers.values()) == 400
    for trial_id in control.values(TRIALS):
        replayed = control.value("CALL easeml.replay(%s)", trial_id)
        assert replayed["is_identical"], replayed


def test_the_extension_of_the_control_server_is_on_no_worker(place: Place) -> None:
    control, cluster = place
    extensions = "SELECT extname::text FROM pg_extension WHERE extname LIKE 'easeml%' ORDER BY 1"
    assert "easeml" in control.values(extensions)
    for worker in cluster.workers.values():
        assert worker.values(extensions) == ["easeml_segment"]


def test_a_view_of_a_distributed_table_is_read_here_as_any_view_is(place: Place) -> None:
    control, _ = place
    control.execute("CREATE VIEW seen_tulips AS SELECT * FROM tulips WHERE kind IS NOT NULL")
    seen = control.value("SELECT easeml.create_dataset('seen', 'seen_tulips', '{petal,soil}', 'kind')")
    assert control.value("SELECT shuffle IS NULL FROM easeml.datasets WHERE dataset_id = %s", seen)
