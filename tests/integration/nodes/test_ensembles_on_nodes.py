"""Races where rows lie on nodes end with an ensemble that is made, tested and repeated there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from easeml_db.postgres.nodes.segment_store import REGISTER
from tests.integration.runs.test_registered_architectures import MIXER
from tests.integration.tasks.test_tasks import IMAGES
from tests.nodes import NODE_ROLE, let_read, two_nodes

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

N_SLOTS = 1
# Small networks that have not seen enough err in different places: the mean of some is better than each of them.
ROWS = """
SELECT i AS id, x, z, sin(4 * x) + cos(5 * z) + x * z AS y
FROM generate_series(1, 600) i CROSS JOIN LATERAL (SELECT sin(i * i) * 3 AS x, cos(i * 7) * 3 AS z) p
"""
LISTED = '{"east": "public.noisy", "west": "public.noisy"}'
THERE = "SELECT easeml.create_dataset(%s, %s, '{x,z}', 'y', n_partitions => %s, shuffle => %s)"
RACE = """
SELECT easeml.select_models(%s, '{mlp}', procedure => 'race', n_configs => %s, max_epochs => 1, search_space =>
    '{"hidden_units": [[16], [32], [64], [32, 32]], "learning_rate": [0.01, 0.005], "batch_size": 8}')
"""
BOARD = "SELECT * FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank, trial_id"
SEGMENTS = """
SELECT DISTINCT g.service IS NOT NULL FROM easeml.{} u JOIN easeml.slots USING (slot_id)
JOIN easeml.segments g USING (segment_id) WHERE u.trial_id = %s
"""


@pytest.fixture(scope="module")
def nodes(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """Two nodes, each with a part of the rows; east has more."""
    with two_nodes(private_server, tmp_path_factory.mktemp("services")) as nodes:
        for name, node in nodes.items():
            there = "id % 3 > 0" if name == "east" else "id % 3 = 0"
            node.execute(f"CREATE TABLE noisy AS SELECT * FROM ({ROWS}) r WHERE {there}")
            let_read(node, "noisy")
            node.execute(f"GRANT CREATE ON SCHEMA public TO {NODE_ROLE}")
        yield nodes


@pytest.fixture(scope="module")
def spread(module_database: Session, nodes: dict[str, Session], coordinator: Coordinator) -> Iterator[Session]:
    """A control server with a slot, and one on each node; a coordinator runs."""
    for name in nodes:
        module_database.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
        module_database.execute("SELECT easeml.add_slots(1, %s)", [name])
    with coordinator(module_database):
        yield module_database


def raced(
    spread: Session,
    name: str,
    shuffle: str,
    source: str = LISTED,
    *,
    n_partitions: int = 3,
    n_configs: int,
) -> list[dict[str, Any]]:
    """Have rows packed and do a race of one epoch, in which no trial goes on because it was faster than others.

    It must end well. Return its leaderboard.
    """
    dataset_id = spread.value(THERE, name, source, n_partitions, shuffle)
    spread.execute("CALL easeml.wait_dataset(%s, 60)", [dataset_id])
    run_id = spread.value(RACE, name, n_configs)
    spread.execute("CALL easeml.wait(%s, 300)", [run_id])
    told = spread.rows("SELECT kind, message FROM easeml.events WHERE run_id = %s ORDER BY event_id", run_id)
    assert spread.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished", told
    return spread.rows(BOARD, run_id)


def test_an_ensemble_of_trials_on_nodes_is_made_tested_examined_and_replayed_there(
    spread: Session, nodes: dict[str, Session]
) -> None:
    best, *others = raced(spread, "noisy", "across", n_configs=6)
    assert best["architecture"] == "ensemble"
    assert best["validation_metric"] <= others[0]["validation_metric"]
    members = best["config"]["members"]
    assert len(members) > 1
    assert {member["trial"] for member in members} <= {row["trial_number"] for row in others}
    assert sum(member["weight"] for member in members) == pytest.approx(1.0)
    assert all(member["refit_epochs"] > 0 for member in members), "there was no time limit"
    for units in ("training_units", "evaluations"):
        assert spread.values(SEGMENTS.format(units), best["trial_id"]) == [True]
    assert spread.value("CALL easeml.evaluate_on_nodes('noisy')") > 100
    asked = "SELECT validation, test FROM easeml.evaluate('noisy', %s) WHERE metric = 'rmse'"
    (measured,) = spread.rows(asked, best["trial_id"])
    assert measured["validation"] == pytest.approx(best["validation_metric"], rel=1e-5)
    assert measured["test"] == pytest.approx(best["test_metric"], rel=1e-5)
    for trial in (best, others[0]):
        replayed = spread.value("CALL easeml.replay(%s)", trial["trial_id"])
        assert replayed["is_identical"], (trial, replayed)
    assert spread.value("CALL easeml.predict_on_nodes('noisy', %s, 'public.told', key => '{id}')", LISTED) == 600
    found = {row["id"]: row for node in nodes.values() for row in node.rows("SELECT id, predicted_value FROM told")}
    for row in spread.rows(f"SELECT id, easeml.predict_value('noisy', to_jsonb(r)) AS value FROM ({ROWS} LIMIT 9) r"):
        assert found[row["id"]]["predicted_value"] == pytest.approx(row["value"], rel=1e-5)
    _what_members_are_registered_as_goes_along(spread, nodes["east"], best, others[-1])
    spread.execute("SELECT easeml.drop_dataset('noisy', cascade => true)")


def _what_members_are_registered_as_goes_along(
    spread: Session, node: Session, ensemble: dict[str, Any], member: dict[str, Any]
) -> None:
    needed = "SELECT easeml.registered_for(%s)"
    assert spread.value(needed, ensemble["trial_id"]) == []
    with spread.transaction(force_rollback=True):
        spread.execute(MIXER, [[IMAGES]])
        spread.execute("UPDATE easeml.trials SET architecture = 'mixer' WHERE trial_id = %s", [member["trial_id"]])
        told = spread.value(needed, ensemble["trial_id"])
        assert told == spread.value(needed, member["trial_id"])
    with node.transaction(force_rollback=True):
        node.execute(REGISTER, [Jsonb(told)])
        node.execute(REGISTER, [Jsonb(told)])
        assert node.values("SELECT architecture FROM easeml_segment.registered_architectures") == ["mixer"]


def test_a_node_that_has_all_rows_makes_one_of_them_in_one_unit(spread: Session) -> None:
    alone = '{"west": "public.noisy"}'
    best, *_ = raced(spread, "alone", "within", alone, n_partitions=1, n_configs=3)
    assert best["architecture"] == "ensemble"
    assert best["test_metric"] is not None
    assert spread.values(SEGMENTS.format("training_units"), best["trial_id"]) == [True]
    replayed = spread.value("CALL easeml.replay(%s)", best["trial_id"])
    assert (replayed["n_units"], replayed["is_identical"]) == (1, True)
    spread.execute("SELECT easeml.drop_dataset('alone', cascade => true)")


def test_rows_that_stay_within_several_nodes_have_none(spread: Session) -> None:
    board = raced(spread, "stays", "within", n_partitions=2, n_configs=2)
    assert {row["architecture"] for row in board} == {"mlp"}
    assert board[0]["test_metric"] is not None
    spread.execute("SELECT easeml.drop_dataset('stays', cascade => true)")
