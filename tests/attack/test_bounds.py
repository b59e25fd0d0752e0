"""No argument of a tenant makes a plan, a search or a document that grows without end: all is refused before it grows.

The functions are called as the server calls them, with a limit on the memory of this process that the old ones broke.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.proposal import begin_search, preview
from easeml_db.errors import InvalidArgument
from easeml_plpy.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

LARGEST = 2**31 - 1
MORE_BYTES = 1 << 30
ENOUGH_SECONDS = 30.0  # of processor time: the old functions took minutes, or never came back
SPECS = json.dumps({name: [h.to_json() for h in a.hyperparameters] for name, a in ARCHITECTURES.items()})
STAGED = sorted(name for name, made in PROCEDURES.items() if not made.description.is_one_shot)


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """A call that takes another gigabyte fails; one that takes minutes of the processor does, too."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/status", encoding="ascii") as status:
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    started = time.process_time()
    resource.setrlimit(resource.RLIMIT_DATA, (used + MORE_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert time.process_time() - started < ENOUGH_SECONDS


def called(function: Any, procedure: str, space: Any = None, **named: Any) -> Any:
    """What the server's function answers, or the error that it refuses with."""
    options = named.pop("options", None)
    arguments = {"n_configs": None, "max_epochs": 5, "seed": 0, **named}
    try:
        return json.loads(
            function(SPECS, space if isinstance(space, str) else json.dumps(space), procedure,
                     options_json=None if options is None else json.dumps(options), **arguments)
        )  # fmt: skip
    except InvalidArgument as error:
        return error


@pytest.mark.parametrize("function", [begin_search, preview])
@pytest.mark.parametrize("procedure", sorted(PROCEDURES))
@pytest.mark.parametrize("argument", ["max_epochs", "n_configs"])
def test_numbers_beyond_those_of_select_models_are_refused_everywhere(
    function: Any, procedure: str, argument: str
) -> None:
    for number in (LARGEST, {"max_epochs": 1_000_001, "n_configs": 10_001}[argument], 0, -1):
        refused = called(function, procedure, {"learning_rate": [0.1, 0.2]}, **{argument: number})
        assert str(refused).startswith(f"{argument}: expected a whole number from 1 to"), refused


@pytest.mark.parametrize("procedure", STAGED)
def test_the_largest_legal_search_lists_rungs_that_somebody_can_read(procedure: str) -> None:
    planned = called(preview, procedure, max_epochs=1_000_000, n_configs=300)
    assert isinstance(planned, InvalidArgument) or len(planned) < 100_000


def test_a_population_of_a_million_rounds_is_refused_and_says_what_to_do() -> None:
    refused = called(preview, "pbt", max_epochs=1_000_000)
    assert str(refused) == "max_epochs: expected at most 10000 rounds, got 1000000 with 1000000 epochs and interval 1"
    assert "interval" in refused.hint
    assert called(preview, "pbt", max_epochs=1_000_000, options={"interval": 1000})[-1]["n_epochs"] == 1_000_000


@pytest.mark.parametrize(
    ("procedure", "name"),
    [("pbt", "interval"), ("pbt", "population"), ("asha", "n_parallel"), ("tpe", "n_startup"), ("hyperband", "eta")],
)
@pytest.mark.parametrize("value", [10**7, 10**300, 1e300])
def test_options_have_a_largest_value(procedure: str, name: str, value: float) -> None:
    refused = called(begin_search, procedure, options={name: value})
    assert str(refused).startswith(f"procedure_options.{name}: expected a whole number from")


@pytest.mark.parametrize("procedure", ["tpe", "asha", "random"])
def test_the_most_trials_that_one_run_may_begin_with_are_there_soon(procedure: str) -> None:
    options = None if procedure == "random" else {"n_parallel": 10_000}
    space = {"mlp": {"learning_rate": {"low": 1e-6, "high": 1.0}}}
    specs = json.dumps({"mlp": json.loads(SPECS)["mlp"]})
    begun = json.loads(
        begin_search(specs, json.dumps(space), procedure, 3000, 27, 0, None if options is None else json.dumps(options))
    )
    assert len(begun["trials"]) == 3000


@pytest.mark.parametrize("procedure", ["random", "grid", "tpe"])
def test_as_many_choices_as_are_allowed_cost_no_more_than_their_number(procedure: str) -> None:
    choices = [1e-5 * k for k in range(1, 9_900)]
    found = called(begin_search, procedure, {"linear": {"learning_rate": choices}}, n_configs=None)
    assert isinstance(found, dict) or "grid" in str(found)


DOCUMENTS = {
    "more choices": json.dumps({"learning_rate": list(range(1, 12_000))}),
    "more lists": json.dumps({"hidden_units": [[k % 9 + 1] * 3 for k in range(5_000)]}),
    "one long list": json.dumps({"mlp": {"hidden_units": [8] * 11_000}}),
    "more keys": json.dumps({f"key {k}": k for k in range(12_000)}),
    "a long word": json.dumps({"activation": ["x" * 2_000_000]}),
    "deep": '{"learning_rate": ' + "[" * 5000 + "]" * 5000 + "}",
    "nearly too deep": '{"learning_rate": ' + "[" * 20 + "]" * 20 + "}",
    "many digits": '{"learning_rate": ' + "9" * 5001 + "}",
    "some digits": '{"batch_size": ' + "9" * 4000 + "}",
}


@pytest.mark.parametrize("what", sorted(DOCUMENTS))
def test_documents_are_bounded_in_size_depth_and_digits(what: str) -> None:
    for named in ({"space": DOCUMENTS[what]}, {"space": None, "options": json.loads(DOCUMENTS["one long list"])}):
        refused = called(begin_search, "asha", **named)
        assert isinstance(refused, InvalidArgument), what
        assert len(refused.message) < 500


# Views

SUMS = {"run_traffic": "bytes_hopped", "tenant_status": "used_bytes"}
LARGEST_BIGINT = 2**63 - 1


def test_sums_that_no_bigint_holds_break_no_view(database: Session, mallory: Session) -> None:
    mallory.execute("SELECT easeml.select_models('points', '{linear}', n_configs => 1)")
    for partition in (0, 1):
        database.execute(
            "INSERT INTO easeml.evaluations (trial_id, run_id, tenant, epoch, split, partition_number, slot_id,"
            " attempt, lease_number, started_at, finished_at, statistics, read_bytes)"
            " SELECT trial_id, run_id, tenant, 1, 'validation', %s, 1, 1, 1, now(), now(), '{}', %s FROM easeml.trials",
            [partition, LARGEST_BIGINT],
        )
        database.execute(
            "INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256, state)"
            " SELECT trial_id, tenant, 1, %s, repeat('0', 64), '' FROM easeml.trials",
            [LARGEST_BIGINT],
        )
    database.execute(
        "UPDATE easeml.runs SET search = '{}', max_seconds = 1e308, status = 'running', started_at = now()"
    )
    assert database.value("SELECT n_units FROM easeml.run_status") >= 0
    for view, column in SUMS.items():
        assert database.values(f"SELECT max({column}) FROM easeml.{view}") == [LARGEST_BIGINT], view
    assert database.value("SELECT easeml.kept_bytes('mallory')") == LARGEST_BIGINT


# Memory

HUGE = """SELECT easeml.select_models('points', '{mlp}', search_space => '{"hidden_units": [65536, 65536, 65536]}')"""


@pytest.fixture
def mallory(database: Session) -> Session:
    """A tenant with a small dataset."""
    database.execute("CREATE TABLE points AS SELECT i * 0.1 AS x, i % 2 AS y FROM generate_series(1, 40) i")
    database.execute("GRANT SELECT ON points TO PUBLIC")
    tenant = database.as_role("mallory", "easeml_tenant")
    tenant.execute("SELECT easeml.create_dataset('points', 'points', '{x}', 'y')")
    return tenant


def test_a_network_that_no_slot_can_hold_is_refused_before_anything_is_written(mallory: Session) -> None:
    with pytest.raises(
        psycopg.Error, match=r"^search_space: mlp with hidden_units \[65536, 65536, 65536\], .* GB"
    ) as refused:
        mallory.execute(HUGE)
    assert refused.value.sqlstate == "ML001"
    assert "narrower" in (refused.value.diag.message_hint or "")
    assert not mallory.rows("SELECT FROM easeml.runs")
    assert mallory.value("SELECT easeml.select_models('points', '{mlp}')") > 0


def test_a_network_that_its_slot_cannot_hold_fails_alone_and_nothing_is_built(
    database: Session, mallory: Session, coordinator: Callable[[Session], AbstractContextManager[Any]]
) -> None:
    database.execute("SELECT easeml.set_slots(1, memory_limit_bytes => 1000000000000)")
    mallory.execute(HUGE)
    mallory.execute("SELECT easeml.select_models('points', '{linear}', n_configs => 1, max_epochs => 1)")
    database.execute("SELECT easeml.set_slots(1)")
    with coordinator(database):
        database.wait_until("SELECT bool_and(status IN ('finished', 'failed')) FROM easeml.trials")
    reasons = dict.fromkeys(mallory.values("SELECT failure_reason FROM easeml.trials WHERE architecture = 'mlp'"))
    (reason,) = reasons
    assert reason.startswith("out of memory: mlp with hidden_units [65536, 65536, 65536]")
    assert mallory.values("SELECT status FROM easeml.trials WHERE architecture = 'linear'") == ["finished"]
