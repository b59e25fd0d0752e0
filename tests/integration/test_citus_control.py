"""A control server that is itself the coordinator of a Citus cluster: its workers are segments.

A distributed table is named as in SQL. As in test_citus.py each test runs on what looks like a cluster, and on a real
one, whose workers are reached directly or through the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.citus import FORMS, Cluster, add_segments, control_on_coordinator
from tests.integration.test_citus import BLOCKS, CREATE, HERE, ROWS, SELECT_MODELS, STATES, blocks_on
from tests.nodes import NODE_ROLE

if TYPE_CHECKING:
    from tests.conftest import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]
    Place = tuple[Session, Cluster]

OWN = HERE.replace("'tulips'", "'own_tulips'")


@pytest.fixture(scope="module", params=FORMS, ids="-".join)
def place(
    request: pytest.FixtureRequest, snapshot: Path, tmp_path_factory: pytest.TempPathFactory, coordinator: Coordinator
) -> Iterator[Place]:
    """The control server, with the same rows in a table of its own and in a distributed one; a coordinator runs."""
    folder = tmp_path_factory.mktemp("services")
    with control_on_coordinator(request.param, snapshot, folder) as (control, cluster):
        control.execute("SELECT easeml.set_slots(1)")
        control.execute(f"CREATE TABLE own_tulips AS {ROWS}")
        cluster.distribute("tulips", ROWS)
        for worker in cluster.workers.values():
            worker.execute(f"GRANT CREATE ON SCHEMA public TO {NODE_ROLE}")
        add_segments(control, cluster)
        with coordinator(control):
            yield control, cluster


def test_a_distributed_table_named_as_in_sql_is_packed_and_trained_to_the_bytes_of_a_table_here(place: Place) -> None:
    control, cluster = place
    here = control.value(OWN)
    there = control.value(CREATE, "there", "tulips", None)
    control.execute("CALL easeml.wait_dataset(%s, 120)", [there])
    told = control.rows("SELECT shuffle, source FROM easeml.datasets WHERE dataset_id = %s", there)
    assert told == [{"shuffle": "across", "source": "public.tulips"}]
    assert blocks_on(cluster, there) == control.rows(BLOCKS.format("easeml"), here)
    states = []
    for name in ("here", "there"):
        run_id = control.value(SELECT_MODELS, name)
        control.execute("CALL easeml.wait(%s)", [run_id])
        states.append(control.rows(STATES, run_id))
    assert states[0]
    assert states[0] == states[1]
    assert control.value("CALL easeml.evaluate_on_nodes('there')") > 100
    compared = [control.rows(f"SELECT metric, test FROM easeml.evaluate('{name}')") for name in ("here", "there")]
    assert compared[0] == compared[1]
    predict = "CALL easeml.predict_on_nodes('there', 'tulips', 'public.told', key => '{id}')"
    assert control.value(predict) == 400
    assert sum(worker.value("SELECT count(*) FROM told") for worker in cluster.workers.values()) == 400
    trial_id = control.value("SELECT max(trial_id) FROM easeml.trials")
    assert control.value("CALL easeml.replay(%s)", trial_id)["is_identical"]


def test_the_extension_of_the_control_server_is_on_no_worker(place: Place) -> None:
    control, cluster = place
    extensions = "SELECT extname::text FROM pg_extension WHERE extname LIKE 'easeml%' ORDER BY 1"
    assert "easeml" in control.values(extensions)
    for worker in cluster.workers.values():
        assert worker.values(extensions) == ["easeml_segment"]
    # A view of the table is read here, as any view is.
    control.execute("CREATE VIEW seen_tulips AS SELECT * FROM tulips WHERE kind IS NOT NULL")
    seen = control.value("SELECT easeml.create_dataset('seen', 'seen_tulips', '{petal,soil}', 'kind')")
    assert control.value("SELECT shuffle IS NULL FROM easeml.datasets WHERE dataset_id = %s", seen)
