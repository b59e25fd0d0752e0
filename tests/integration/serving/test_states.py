"""Large states lie in chunks, small ones in their row; whoever reads one gets the recorded bytes or an error."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_loaders import bundled_source, load_table

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

MEGABYTE = 1 << 20
# Of about 13 MB with Adam's moments.
LARGE = """
SELECT easeml.select_models('digits', '{mlp,linear}', procedure => 'grid', max_epochs => %s,
    search_space => '{"learning_rate": 0.001, "mlp": {"hidden_units": [[1024, 1024]], "optimizer": "adam"}}')
"""


def prepare(database: Session) -> None:
    load_table(database.dsn, bundled_source("digits"), "digits")
    database.execute("SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label', n_partitions => 2)")


def finish(database: Session, run_id: int) -> None:
    database.wait_until("SELECT status IN ('finished', 'failed') FROM easeml.runs WHERE run_id = %s", run_id)
    assert database.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"


@pytest.fixture(scope="module")
def digits(module_coordinated: Session) -> Session:
    """A database with a finished run of a large and a small trial."""
    prepare(module_coordinated)
    finish(module_coordinated, module_coordinated.value(LARGE, 2))
    return module_coordinated


@pytest.fixture(scope="module")
def large(digits: Session) -> dict[str, Any]:
    """The trial with the large state."""
    (trial,) = digits.rows("SELECT * FROM easeml.trials WHERE architecture = 'mlp'")
    return trial


def test_a_large_state_is_cut_into_chunks_and_a_small_one_is_not(digits: Session, large: dict[str, Any]) -> None:
    states = digits.rows("SELECT * FROM easeml.checkpoints")
    assert {state["trial_id"] == large["trial_id"] for state in states} == {True, False}
    for state in states:
        chunks = digits.rows(
            "SELECT * FROM easeml.checkpoint_chunks WHERE checkpoint_id = %s ORDER BY chunk_number",
            state["checkpoint_id"],
        )
        if state["trial_id"] != large["trial_id"]:
            assert (chunks, len(state["state"])) == ([], state["n_bytes"])
            continue
        assert (state["state"], state["n_bytes"] > 12 * MEGABYTE) == (None, True)
        assert [chunk["chunk_number"] for chunk in chunks] == list(range(len(chunks)))
        assert {len(chunk["bytes"]) for chunk in chunks[:-1]} == {MEGABYTE}
        whole = b"".join(bytes(chunk["bytes"]) for chunk in chunks)
        assert len(whole) == state["n_bytes"]
        recorded = digits.value(
            "SELECT state_sha256 FROM easeml.training_units WHERE checkpoint_id = %s", state["checkpoint_id"]
        )
        assert hashlib.sha256(whole).hexdigest() == state["sha256"] == recorded


def test_a_large_state_answers_predictions_as_it_was_measured(digits: Session, large: dict[str, Any]) -> None:
    trial_id = large["trial_id"]
    label = digits.value("SELECT easeml.predict('digits', pixels, %s) FROM digits WHERE id = 1", trial_id)
    digits.execute("SELECT easeml.predict_table('digits', 'digits', 'answers', %s)", [trial_id])
    assert digits.value("SELECT predicted_label FROM answers WHERE id = 1") == label
    right = digits.value("SELECT avg((predicted_label = label::text)::int) FROM answers JOIN digits USING (id)")
    assert right > 0.8
    digits.execute("DROP TABLE answers")


def test_a_role_with_a_grant_is_answered_from_a_large_state(digits: Session, large: dict[str, Any]) -> None:
    gail = digits.as_role("gail", "easeml_tenant")
    digits.execute("SELECT easeml.grant_use('digits', 'gail')")
    numbers = digits.value("SELECT pixels::float8[] FROM digits WHERE id = 1")
    asked = "SELECT easeml.predict('digits', %s::float8[], %s)"
    assert gail.value(asked, numbers, large["trial_id"]) == digits.value(asked, numbers, large["trial_id"])
    assert gail.value("SELECT count(*) FROM easeml.checkpoint_chunks") == 0


@pytest.fixture(scope="module")
def fresh_session(digits: Session) -> Session:
    """A session that never restores the large trial."""
    return digits.again()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM easeml.checkpoint_chunks WHERE chunk_number = 3", "of its .* bytes"),
        ("DELETE FROM easeml.checkpoint_chunks", "has 0 of its"),
        ("UPDATE easeml.checkpoint_chunks SET bytes = set_byte(bytes, 7, 255 - get_byte(bytes, 7))", "its digest"),
        ("UPDATE easeml.checkpoint_chunks SET chunk_number = 99 WHERE chunk_number = 3", "its digest"),
    ],
)
def test_a_damaged_chunk_is_noticed(fresh_session: Session, large: dict[str, Any], damage: str, message: str) -> None:
    asked = "SELECT easeml.predict('digits', pixels, %s) FROM digits LIMIT 1"
    with fresh_session.transaction(force_rollback=True):
        fresh_session.execute(damage)  # type: ignore[arg-type]
        with pytest.raises(psycopg.Error, match=message) as refused:
            fresh_session.execute(asked, [large["trial_id"]])
    assert refused.value.sqlstate == "ML005"


def test_traffic_is_what_the_units_wrote_and_read(digits: Session, large: dict[str, Any]) -> None:
    (traffic,) = digits.rows("SELECT * FROM easeml.run_traffic WHERE run_id = %s", large["run_id"])
    written = digits.values("SELECT state_bytes FROM easeml.training_units")
    read = digits.values(
        "SELECT read_bytes FROM easeml.training_units UNION ALL SELECT read_bytes FROM easeml.evaluations"
    )
    assert traffic["n_units"] == len(read) == 2 * 2 * 5
    assert (traffic["bytes_stored"], traffic["largest_state_bytes"]) == (sum(written), max(written))
    assert (traffic["bytes_hopped"], traffic["n_hops"]) == (sum(read), len([n for n in read if n]))
    (kept,) = digits.rows("SELECT count(*) AS n, sum(n_bytes) AS bytes FROM easeml.checkpoints")
    assert (traffic["n_live_states"], traffic["live_state_bytes"]) == (kept["n"], kept["bytes"])


def test_a_fresh_run_has_no_traffic(scratch: Session, digits: Session) -> None:
    run_id = scratch.value(LARGE, 1)
    (traffic,) = scratch.rows("SELECT * FROM easeml.run_traffic WHERE run_id = %s", run_id)
    numbers = {name: value for name, value in traffic.items() if name not in ("run_id", "tenant")}
    assert numbers.pop("largest_state_bytes") is None
    assert set(numbers.values()) == {0}


def test_a_large_trial_goes_on_under_another_coordinator_and_its_states_go_with_the_run(
    digits: Session, another_coordinator: Callable[[], None]
) -> None:
    n_chunks_before = digits.value("SELECT count(*) FROM easeml.checkpoint_chunks")
    run_id = digits.value(LARGE, 60)
    n_units = "SELECT count(*) FROM easeml.training_units WHERE run_id = %s"
    digits.wait_until(f"SELECT ({n_units} AND state_bytes > %s) > 3", run_id, 4 * MEGABYTE)
    digits.execute("SELECT easeml.cancel(%s)", [run_id])
    another_coordinator()
    digits.execute("UPDATE easeml.trials SET max_epochs = n_steps_done / 4 + 2 WHERE run_id = %s", [run_id])
    done = digits.value(n_units, run_id)
    digits.execute("SELECT easeml.resume(%s)", [run_id])
    finish(digits, run_id)
    hops = digits.rows(
        "SELECT u.read_bytes, f.state_bytes FROM easeml.training_units u JOIN easeml.training_units f"
        " ON f.checkpoint_id = u.from_checkpoint_id WHERE u.read_bytes > 0 AND u.run_id = %s",
        run_id,
    )
    assert digits.value(n_units, run_id) > done
    # The first unit under the new coordinator read it, whether it trains or validates.
    assert digits.value("SELECT bytes_hopped FROM easeml.run_traffic WHERE run_id = %s", run_id) > 4 * MEGABYTE
    assert all(hop["read_bytes"] == hop["state_bytes"] for hop in hops)
    states = "SELECT c.checkpoint_id FROM easeml.checkpoints c JOIN easeml.trials USING (trial_id) WHERE run_id = %s"
    chunked = f"SELECT count(DISTINCT checkpoint_id) FROM easeml.checkpoint_chunks WHERE checkpoint_id IN ({states})"
    assert digits.value(chunked, run_id) <= 2
    digits.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
    assert digits.value("SELECT count(*) FROM easeml.checkpoint_chunks") == n_chunks_before
