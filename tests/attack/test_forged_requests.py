"""A tenant sends the door whatever it likes, packs whatever it likes, and has it trained: the service outlives it.

`make attack` sends 20,000 (`--attack-rows`). What fails is shrunk to the request that did it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from tests.attack.conftest import Scene
    from tests.fixtures.sessions import Session

N_AT_ONCE = 20
numbers = count(1)
# Stands for the number of the tenant's newest run, or its trial.
LAST = "<last>"
# For each action, arguments that are right: a fuzzer that only sends nonsense never gets past the first check.
ACTIONS: dict[str, dict[str, Any]] = {
    "begin_dataset": {
        "name": "forged",
        "source": "mallory.rows",
        "inputs": ["x"],
        "target": "y",
        "n_partitions": 2,
        "validation_fraction": 0.15,
        "test_fraction": 0.15,
        "seed": 0,
        "placement": "shared",
    },
    "begin_refresh": {"dataset": "work"},
    "begin_node_job": {"kind": "answers", "dataset": "work", "trial_id": LAST},
    "begin_packing": {
        "name": "spread",
        "source": '{"east": "mallory.rows"}',
        "places": [{"segment": "east", "table": "mallory.rows"}],
        "inputs": ["x"],
        "columns": {"x": "float8", "y": "text"},
        "target": "y",
        "n_partitions": 2,
        "validation_fraction": 0.15,
        "test_fraction": 0.15,
        "seed": 0,
        "placement": "bound",
        "shuffle": "across",
    },
    "finish_dataset": {"dataset_id": 1, "checksums": [0, 0]},
    "drop_dataset": {"dataset": "work", "cascade": False},
    "grant_use": {"dataset": "work", "role": "victim", "serving_only": False},
    "revoke_use": {"dataset": "work", "role": "victim"},
    "replicate_dataset": {"dataset": "work", "factor": 1},
    "select_models": {
        "dataset": "work",
        "architectures": ["linear"],
        "search_space": {"learning_rate": {"type": "float", "low": 1e-4, "high": 0.1, "log": True}},
        "procedure": "random",
        "n_configs": 2,
        "max_epochs": 1,
        "max_seconds": 60,
        "seed": 0,
        "scheduler": "auto",
        "visit_order": "cyclic",
        "procedure_options": None,
        "allocation": "hopping",
        "deadline": None,
        "max_cost": None,
        "price_list": None,
    },
    "cancel": {"run_id": LAST},
    "resume": {"run_id": LAST},
    "drop_run": {"run_id": LAST},
    "deploy": {"trial_id": LAST},
    "undeploy": {"dataset": "work"},
    "rollback": {"dataset": "work"},
    "set_serving_metric": {"dataset": "work", "metric": "log_loss"},
    "set_prediction_audit": {"dataset": "work", "is_on": True},
    "set_refresh": {"dataset": "work", "every": "1 day", "when_drift": 0.25},
    "run_refresh": {"dataset": "work"},
    "take_refresh": {"dataset": "work"},
    "record_refresh": {"dataset": "work", "outcome": "no drift", "drifting": "x", "psi": 0.1, "reason": "none"},
    "finish_refresh": {"refresh_id": 1, "failure": None, "before_value": 0.5, "after_value": 0.6, "n_rows": 40},
    "create_task": {
        "name": "pairs",
        "program": "Input = [2] Output = [1]",
        "schema": "mallory",
        "classes": None,
        "storage": None,
        "run_after_examples": 10,
        "run_after_minutes": None,
        "run_options": {"max_seconds": 5},
        "validation_fraction": 0.15,
        "test_fraction": 0.15,
        "seed": 0,
        "n_partitions": 2,
    },
    "alter_task": {
        "task": "pairs",
        "run_after_examples": None,
        "run_after_minutes": 1.5,
        "run_options": {"architectures": ["linear"], "max_epochs": 1},
    },
    "run_task": {"task": "pairs"},
    "drop_task": {"task": "pairs", "cascade": True},
    "label_examples": {"task": "pairs", "labels": [{"example_id": 1, "output": "0.5"}]},
    "set_labelling_function": {"task": "pairs", "function": "mallory.label", "is_added": True},
}
# Python refuses to write such numbers, PostgreSQL reads them.
MANY_DIGITS = "<5001 digits>"


def as_json(value: Any) -> str:
    """Return the json text of a value."""
    return json.dumps(value).replace(json.dumps(MANY_DIGITS), "9" * 5001)


def nested(depth: int) -> Any:
    """A list in a list, and so on."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


odd_words = st.sampled_from(
    [
        *("", "asha", "hyperband", "pbt", "grid", "mlp", "linear", "data_parallel", "water_filling", "auto", "bound"),
        *("work", "victim", "victim.work", "mallory.rows", "pg_catalog.pg_class", "a'b", 'a"b', "\x1b[31m", "é" * 70),
    ]
)
odd_numbers = st.sampled_from([0, -1, 1, 3, 10**6, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 10**400, 0.5, 1e308, -1e-308])
odd_values = st.one_of(
    st.none(),
    st.booleans(),
    odd_numbers,
    odd_words,
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20),
    st.sampled_from([MANY_DIGITS, nested(40), nested(900), {}, [], "x" * 100_000, ["mlp"] * 5000]),
)
odd_json = st.recursive(
    odd_values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                ["type", "low", "high", "log", "learning_rate", "hidden_units", "eta", "n_trials", "linear"]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


def altered(right: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Right arguments, of which up to three are replaced."""
    return st.dictionaries(st.sampled_from(sorted(right) or ["x"]), odd_json, max_size=3).map(
        lambda new: {**right, **new}
    )


requests = st.sampled_from(sorted(ACTIONS)).flatmap(lambda action: st.tuples(st.just(action), altered(ACTIONS[action])))
# Changes to a dataset that was packed well: a field of one block, a field of what finishes it.
block_changes = st.one_of(
    st.tuples(st.just("partition_number"), st.integers(-1, 3)),
    st.tuples(st.just("n_rows"), st.sampled_from([-1, 0, 1, 2**31 - 1])),
    st.tuples(st.just("split"), st.sampled_from(["train", "validation", "test", "x"])),
    st.tuples(st.sampled_from(["inputs", "targets"]), st.sampled_from([b"", b"\0" * 3, b"\xff" * 4000])),
)
finishing = st.sampled_from(
    ["task", "input_shape", "n_outputs", "block_rows", "packing_seconds", "encoder", "checksums"]
)
in_encoder = st.sampled_from(["fields", "shape", "target", "inputs", "version"])
forged = st.tuples(
    st.lists(st.tuples(st.integers(0, 5), block_changes), max_size=1),
    st.dictionaries(finishing, odd_json, max_size=1),
    st.dictionaries(in_encoder, odd_json, max_size=2),
)


@contextmanager
def survived(what: object) -> Iterator[None]:
    """Allow any refusal, but no internal error, and nothing that ends the session or the server."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate[:2] in ("XX", "57"):
            pytest.fail(f"{what}: {error}")


def ask(mallory: Session, action: str, arguments: dict[str, Any]) -> Any:
    """Send a request through the door."""
    return mallory.value(
        "INSERT INTO easeml.requests (action, arguments) VALUES (%s, %s) RETURNING result", action, as_json(arguments)
    )


def prepare(mallory: Session) -> dict[str, int]:
    """Make sure that there is a dataset to work on, with a run; return the newest numbers."""
    if not mallory.value("SELECT count(*) FROM easeml.datasets WHERE dataset_name = 'work'"):
        mallory.execute("SELECT easeml.create_dataset('work', 'mallory.rows', '{x}', 'y', n_partitions => 2)")
    if not mallory.value("SELECT count(*) FROM easeml.runs"):
        mallory.execute("SELECT easeml.select_models('work', '{linear}', n_configs => 1, max_epochs => 1)")
    (newest,) = mallory.rows("SELECT max(run_id) AS run_id, max(trial_id) AS trial_id FROM easeml.trials")
    return newest


def pack(mallory: Session, blocks: list[Any], finish: dict[str, Any], encoder: dict[str, Any]) -> None:
    """Pack a copy of the dataset `work` by hand, with changes, in one transaction; start a run on it."""
    (data,) = mallory.rows(
        "SELECT dataset_id, task, input_shape, n_outputs, block_rows, n_skipped_rows, packing_seconds, encoder"
        " FROM easeml.datasets WHERE dataset_name = 'work' ORDER BY version DESC LIMIT 1"
    )
    columns = "split, partition_number, block_number, n_rows, inputs, targets"
    rows = mallory.rows(f"SELECT {columns} FROM easeml.blocks WHERE dataset_id = %s", data.pop("dataset_id"))
    for number, (name, value) in blocks:
        rows[number % len(rows)][name] = value
    data["encoder"] = {**data["encoder"], **encoder}
    name = f"forged {next(numbers)}"
    with mallory.transaction():
        dataset_id = ask(mallory, "begin_dataset", {**ACTIONS["begin_dataset"], "name": name})
        for row in rows:
            mallory.execute(
                f"INSERT INTO easeml.blocks (dataset_id, {columns}) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (dataset_id, *row.values()),
            )
        ask(mallory, "finish_dataset", {"checksums": [0, 0], **data, **finish, "dataset_id": dataset_id})
    ask(mallory, "select_models", {**ACTIONS["select_models"], "dataset": name, "n_configs": 1})


def test_only_the_door_and_the_blocks_take_rows_of_tenants(scene: Scene) -> None:
    insertable = scene.root.values(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind IN ('r', 'v')"
        " AND has_any_column_privilege('mallory', oid, 'INSERT, UPDATE') ORDER BY 1"
    )
    assert insertable == ["blocks", "requests"]


def test_every_action_of_the_door_is_tried(scene: Scene) -> None:
    source = scene.root.value("SELECT prosrc FROM pg_proc WHERE proname = 'perform_request'")
    assert set(re.findall(r"(?:WHEN|IF NEW\.action =) '(\w+)'", source)) == set(ACTIONS)


def test_forged_requests_leave_the_service_serving(scene: Scene, pytestconfig: pytest.Config) -> None:
    mallory = scene.root.as_role("mallory")
    mallory.execute("SET statement_timeout = '20s'; SET client_min_messages = 'error'")
    lease = scene.root.value("SELECT lease_number FROM easeml.coordinator_lease")
    n_examples = max(pytestconfig.getoption("--attack-rows", None) or 200, N_AT_ONCE) // N_AT_ONCE

    @settings(
        max_examples=n_examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(requests, min_size=N_AT_ONCE - 4, max_size=N_AT_ONCE), st.lists(forged, max_size=4))
    def send(sent: list[tuple[str, dict[str, Any]]], packed: list[Any]) -> None:
        newest = prepare(mallory)
        for action, arguments in sent:
            numbered = {name: newest[name] if value == LAST else value for name, value in arguments.items()}
            with survived((action, numbered)):
                ask(mallory, action, numbered)
        for dataset in packed:
            prepare(mallory)
            with survived(dataset):
                pack(mallory, *dataset)
        before = scene.n_steps()
        scene.root.wait_until(
            "SELECT sum(n_steps_done) > %s FROM easeml.trials WHERE run_id = %s", before, scene.victim_run
        )
        scene.read()

    send()
    scene.predict()
    assert scene.root.value("SELECT lease_number FROM easeml.coordinator_lease") == lease, "another coordinator"
