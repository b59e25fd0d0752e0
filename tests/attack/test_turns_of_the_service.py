"""What the service does for tenants one after another, it does in turns: nobody waits for all that another wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easeml_db.postgres.queries import queries

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_OF_MALLORY = 5
CREATE_TASK = "SELECT easeml.create_task(%s, 'Input = [2] Output = [2]', schema => current_user)"
WAITING = """
INSERT INTO easeml.packings (dataset_id, tenant, dataset_name, version, caller, shuffle, arguments, places, asked_at)
VALUES (%s, %s, %s, 1, %s, 'across', '{}', '{}', now() - %s * interval '1 minute')
"""


@pytest.fixture(scope="module")
def tenants(module_database: Session) -> dict[str, Session]:
    """Two tenants with a schema each."""
    tenants = {name: module_database.as_role(name, "easeml_tenant") for name in ("mallory", "victim")}
    for name in tenants:
        module_database.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
    return tenants


def test_the_task_of_one_tenant_is_looked_at_before_the_second_of_another(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    for name, n_tasks in (("mallory", N_OF_MALLORY), ("victim", 1)):
        for number in range(n_tasks):
            tenants[name].execute(CREATE_TASK, [f"task {number}"])
            tenants[name].execute("SELECT easeml.run_task(%s)", [f"task {number}"])
    due = module_database.values(
        "SELECT k.tenant::text FROM easeml.due_tasks(false) WITH ORDINALITY d(task_id, place)"
        " JOIN easeml.tasks k USING (task_id) ORDER BY d.place"
    )
    assert sorted(due) == ["mallory", "victim"], "the others come at the next looks"


def test_a_tenant_that_may_begin_no_run_has_no_examples_packed_for_one(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    """Packing is the long part, and all tenants share the session that does it."""
    mallory = tenants["mallory"]
    mallory.execute(CREATE_TASK, ["limited"])
    mallory.execute("SELECT easeml.run_task('limited')")
    task_id = module_database.value("SELECT task_id FROM easeml.tasks WHERE task_name = 'limited'")
    examples = module_database.value("SELECT examples FROM easeml.tasks WHERE task_id = %s", task_id)
    mallory.execute("CREATE TABLE open AS SELECT sin(i) AS x, i % 2 = 0 AS y FROM generate_series(1, 40) i")
    mallory.execute("SELECT easeml.create_dataset('open', 'open', '{x}', 'y', n_partitions => 1)")
    mallory.execute("SELECT easeml.select_models('open', '{linear}', n_configs => 1, max_epochs => 1)")
    mallory.execute(
        f"INSERT INTO {examples} (input, output) SELECT ARRAY[sin(i), cos(i)],"
        " (i % 2)::text FROM generate_series(1, 60) i"
    )
    lease = module_database.value("SELECT lease_number FROM easeml.coordinator_lease")
    with module_database.transaction(force_rollback=True):
        module_database.execute("SELECT easeml.create_tenant('mallory', max_runs => 1)")
        module_database.execute(
            "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'packed'; END$$"
        )
        module_database.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON easeml.blocks FOR EACH ROW EXECUTE FUNCTION public.refuse()"
        )
        assert module_database.value("SELECT easeml.advance_task(%s, %s)", task_id, lease) is None
        problem = module_database.value("SELECT problem FROM easeml.tasks WHERE task_id = %s", task_id)
        assert problem.startswith("max_runs: mallory may have 1 open run(s) at a time")
    mallory.execute("SELECT easeml.drop_dataset('open', cascade => true)")
    mallory.execute("SELECT easeml.drop_task('limited')")


def test_who_had_rows_packed_on_nodes_waits_for_others_although_it_asked_before(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    mallory = tenants["mallory"]
    mallory.execute("CREATE TABLE mine AS SELECT sin(i) AS x, i % 2 = 0 AS y FROM generate_series(1, 40) i")
    mallory.execute("SELECT easeml.create_dataset('packed', 'mine', '{x}', 'y', n_partitions => 1)")
    module_database.execute("UPDATE easeml.datasets SET shuffle = 'across' WHERE dataset_name = 'packed'")
    for dataset_id, tenant, minutes in ((1001, "mallory", 9), (1002, "mallory", 8), (1003, "victim", 1)):
        module_database.execute(WAITING, [dataset_id, tenant, f"waiting {dataset_id}", tenant, minutes])
    told = [module_database.value("SELECT easeml.next_packing() -> 'number'") for _ in range(2)]
    assert told == [1003, 1001]
    module_database.execute("DELETE FROM easeml.packings")


def test_an_open_transaction_that_drops_a_waiting_dataset_holds_up_no_packing_of_others(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    for dataset_id, tenant, minutes in ((1001, "mallory", 9), (1003, "victim", 1)):
        module_database.execute(WAITING, [dataset_id, tenant, f"waiting {dataset_id}", tenant, minutes])
    with tenants["mallory"].transaction():
        tenants["mallory"].execute("SELECT easeml.drop_dataset('waiting 1001')")
        with module_database.transaction():
            module_database.execute("SET LOCAL lock_timeout = '250ms'")
            assert module_database.value("SELECT easeml.next_packing() -> 'number'") == 1003
    assert module_database.values("SELECT dataset_id FROM easeml.packings") == [1003]
    module_database.execute("DELETE FROM easeml.packings")


def test_an_open_transaction_that_drops_a_task_keeps_nobody_from_seeing_the_tenants(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    """Its table of examples is locked, and what the others keep is shown."""
    mallory = tenants["mallory"]
    mallory.execute(CREATE_TASK, ["dropped"])
    with mallory.transaction():
        mallory.execute("SELECT easeml.drop_task('dropped')")
        with module_database.transaction(force_rollback=True):
            module_database.execute("SELECT easeml.create_tenant(name) FROM unnest(%s::text[]) name", [list(tenants)])
            module_database.execute("SET LOCAL statement_timeout = '5s'")
            rows = module_database.rows(queries("command_line")["tenants"])
    assert {row["tenant"] for row in rows} >= {"mallory", "victim"}


def test_who_starts_very_many_runs_does_not_teach_the_priors_of_all_alone(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    for tenant in tenants.values():
        tenant.execute("CREATE TABLE taught AS SELECT sin(i) AS x, i % 2 = 0 AS y FROM generate_series(1, 40) i")
        tenant.execute("SELECT easeml.create_dataset('taught', 'taught', '{x}', 'y', n_partitions => 1)")
        tenant.execute("SELECT easeml.select_models('taught', '{linear}', n_configs => 1, max_epochs => 1)")
    module_database.execute("UPDATE easeml.trials SET n_steps_done = 3")
    module_database.execute("UPDATE easeml.arms SET closing = arm_id, quality = 0.5, cost_seconds = 1")
    module_database.execute(
        "INSERT INTO easeml.runs (tenant, dataset_id, procedure, architectures, n_configs, max_epochs, metric,"
        " is_higher_better, seed, status) SELECT r.tenant, r.dataset_id, r.procedure, r.architectures, 1, 1, r.metric,"
        " r.is_higher_better, 0, 'finished' FROM easeml.runs r, generate_series(1, 600) WHERE r.tenant = 'mallory'"
    )
    known = module_database.rows(queries("coordinator")["history"])
    taught = "SELECT tenant::text FROM easeml.runs WHERE run_id = ANY (%s)"
    assert module_database.values(taught, [row["run_id"] for row in known]) == ["victim"]
    module_database.execute("DELETE FROM easeml.runs")
    for tenant in tenants.values():
        tenant.execute("SELECT easeml.drop_dataset('taught', cascade => true)")
