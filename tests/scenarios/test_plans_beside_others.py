"""A tenant asks for plans; another one trains meanwhile, and notices nothing of what the plans take to compute."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

TABLE = """
CREATE TABLE flowers AS SELECT i AS id, i % 3 + sin(i) / 9 AS width, i % 5 + cos(i) AS height, chr(97 + i % 3) AS kind
FROM generate_series(1, 300) i;
GRANT SELECT ON flowers TO PUBLIC
"""
DATASET = "SELECT easeml.create_dataset(%s, 'flowers', '{width,height}', 'kind', n_partitions => 2)"
ENDLESS = """
SELECT easeml.select_models('steady', '{linear}', procedure => 'random', n_configs => 1, max_epochs => 1000000)
"""
BUSIEST_SECONDS = 0.1  # of processor time that the loop may spend without a look at what has arrived
OLDEST_HEARTBEAT_SECONDS = 8.0  # others take over after ten
UNITS = "SELECT count(*) FROM easeml.training_timeline WHERE run_id = %s"


@pytest.fixture
def flowers(coordinated: Session) -> Session:
    coordinated.execute(TABLE)
    return coordinated


def ask(session: Session, arguments: str) -> int:
    """Ask for a run with defaults but for these arguments."""
    return int(session.value(f"SELECT easeml.select_models('flowers', {arguments})"))


def wait_for(session: Session, run_id: int) -> float:
    """Wait until a run has finished; return the age of the oldest heartbeat meanwhile."""
    oldest = 0.0
    while session.value("SELECT status IN ('queued', 'running') FROM easeml.runs WHERE run_id = %s", run_id):
        oldest = max(oldest, session.value("SELECT heartbeat_age_seconds FROM easeml.health"))
        time.sleep(0.2)
    assert session.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
    return oldest


def test_a_planned_race_keeps_nobody_waiting(flowers: Session) -> None:
    """Its curves are known, and it is simulated to the end of the race to plan it, again and again while it trains."""
    anna, ben = flowers.as_role("anna", "easeml_tenant"), flowers.as_role("ben", "easeml_tenant")
    anna.execute(DATASET, ["flowers"])
    ben.execute(DATASET, ["steady"])
    wait_for(anna, anna.value("SELECT easeml.profile_dataset('flowers')"))
    wait_for(anna, ask(anna, "max_seconds => 20"))
    steady = ben.value(ENDLESS)
    ben.wait_until(f"SELECT ({UNITS.replace('%s', str(steady))}) > 0")
    lease = flowers.value("SELECT lease_number FROM easeml.coordinator_lease")
    for limits in (
        "max_seconds => 20, deadline => '10 minutes'",
        "max_seconds => 20, deadline => '1 minute', max_cost => 1000",
        "max_seconds => 600, deadline => '30 seconds'",
    ):
        before = ben.value(UNITS, steady)
        run_id = ask(anna, limits)
        assert wait_for(anna, run_id) < OLDEST_HEARTBEAT_SECONDS
        assert ben.value(UNITS, steady) > before, "the other tenant's units went on"
        (run,) = anna.rows("SELECT finished_at <= deadline AS is_in_time FROM easeml.runs WHERE run_id = %s", run_id)
        assert run["is_in_time"]
        assert anna.value("SELECT count(*) > 0 FROM easeml.leaderboard WHERE run_id = %s", run_id)
    assert flowers.value("SELECT lease_number FROM easeml.coordinator_lease") == lease
    assert flowers.value("SELECT longest_turn_seconds FROM easeml.health") < BUSIEST_SECONDS


# Every form of the guide: procedures, allocations, schedulers, and limits, each small.
SMALL = "architectures => '{linear,mlp}', n_configs => 3, max_epochs => 3"
FORMS = [
    "max_seconds => 3",
    "max_seconds => 3, deadline => '2 minutes', max_cost => 1000",
    *(
        f"{SMALL}, procedure => '{name}'"
        for name in ("race", "random", "successive_halving", "hyperband", "asha", "pbt", "tpe", "bohb", "sync_bohb")
    ),
    "architectures => '{linear}', max_epochs => 2, procedure => 'grid', search_space => '{\"momentum\": [0.1, 0.2]}'",
    *(
        f"{SMALL}, allocation => '{name}'"
        for name in ("hopping", "batched", "data_parallel", "water_filling", "auto", "planned")
    ),
    f"{SMALL}, deadline => '5 minutes'",
    f"{SMALL}, max_cost => 1000",
    f"{SMALL}, max_seconds => 20, max_cost => 1000",
    f"{SMALL}, procedure => 'hyperband', deadline => '5 minutes', max_seconds => 20",
    f"{SMALL}, procedure => 'asha', deadline => '5 minutes', max_seconds => 20",
    f"{SMALL}, procedure_options => '{{\"joint\": true}}', procedure => 'tpe'",
]


def test_no_call_of_the_guide_keeps_the_loop_for_a_tenth_of_a_second(flowers: Session) -> None:
    anna = flowers.as_role("anna", "easeml_tenant")
    anna.execute(DATASET, ["flowers"])
    wait_for(anna, anna.value("SELECT easeml.profile_dataset('flowers')"))
    policies = flowers.values("SELECT policy FROM easeml.list_policies()")
    run_ids = []
    for place, form in enumerate(FORMS):
        flowers.execute("SELECT easeml.set_policy(%s)", [policies[place % len(policies)]])
        run_ids.append(ask(anna, form))
    for run_id in run_ids:
        wait_for(anna, run_id)
    assert flowers.value("SELECT longest_turn_seconds FROM easeml.health") < BUSIEST_SECONDS
