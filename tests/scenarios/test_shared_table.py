"""A tenant trains on a colleague's table, and has it refreshed, while the colleague changes the table's structure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
VISITS = """
CREATE SCHEMA carl;
CREATE TABLE carl.visits AS SELECT i AS id, (i % 100) / 10.0 AS age,
    CASE WHEN i % 100 < 50 THEN 'no' ELSE 'yes' END AS comes_back FROM generate_series(1, 400) i;
ALTER TABLE carl.visits ADD PRIMARY KEY (id);
GRANT USAGE ON SCHEMA carl TO anna;
GRANT SELECT ON carl.visits TO anna;
"""
FURTHER = """
INSERT INTO carl.visits SELECT i, 2 + (i % 100) / 10.0, CASE WHEN i % 100 < 50 THEN 'yes' ELSE 'no' END
FROM generate_series({} * 1000, {} * 1000 + 600) i
"""
# Planning any query over the table evaluates the index: it would leave anna's name, and do what anna may do.
SPY = """
CREATE TABLE carl.caught (who text);
GRANT INSERT ON carl.caught TO PUBLIC;
CREATE FUNCTION carl.note() RETURNS int LANGUAGE plpgsql
    AS 'BEGIN INSERT INTO carl.caught SELECT current_user WHERE current_user <> ''carl''; RETURN 1; END';
CREATE FUNCTION carl.spy(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN carl.note(); END';
CREATE INDEX spying ON carl.visits ((carl.spy(1)));
"""
STATUS = "SELECT * FROM easeml.refresh_status WHERE dataset_name = 'visits'"


def looked(anna: Session, is_problem: bool) -> dict[str, Any]:
    """Have the service look at the table now, wait until it has, and return how things stand."""
    before = anna.value("SELECT count(*) FROM easeml.refresh_history")
    anna.execute("SELECT easeml.run_refresh('visits')")
    anna.wait_until(
        "SELECT problem IS NOT NULL FROM easeml.refresh_status"
        if is_problem
        else f"SELECT count(*) > {before} AND bool_and(outcome <> 'training') FROM easeml.refresh_history"
    )
    return anna.rows(STATUS)[0]


def test_a_shared_table_is_refreshed_as_long_as_it_brings_no_code(module_coordinated: Session) -> None:
    root = module_coordinated
    anna, carl = (root.as_role(role, "easeml_tenant") for role in ("anna", "carl"))
    root.execute(f"GRANT CREATE ON DATABASE {root.info.dbname} TO carl")  # type: ignore[arg-type]
    carl.execute(VISITS)  # type: ignore[arg-type]
    for session in (anna, carl):  # the colleague works with the table, too
        session.execute("SELECT easeml.create_dataset('visits', 'carl.visits', target => 'comes_back')")
        run_id = session.value("SELECT easeml.select_models('visits', '{sgd}', n_configs => 2, max_epochs => 2)")
        session.wait_until("SELECT status = 'finished' FROM easeml.run_status WHERE run_id = %s", run_id)
    anna.execute("SELECT easeml.set_refresh('visits', every => '1 day')")

    carl.execute("CREATE INDEX ON carl.visits (lower(comes_back)) WHERE age > 1")
    carl.execute(FURTHER.format(1, 1))  # type: ignore[arg-type]
    assert looked(anna, False)["last_outcome"] in ("served", "not served")

    carl.execute(SPY)  # type: ignore[arg-type]
    carl.execute(FURTHER.format(2, 2))  # type: ignore[arg-type]
    stopped = looked(anna, True)
    assert (
        "expected a relation without code of other roles, got function carl.spy(integer) of carl in index"
        in (stopped["problem"])
    )
    assert "Let carl drop it there" in stopped["problem"]
    assert anna.value("SELECT easeml.predict('visits', '{\"age\": 1}'::jsonb)") in ("no", "yes")
    assert carl.value("SELECT easeml.predict('visits', '{\"age\": 1}'::jsonb)") in ("no", "yes")
    assert carl.values("SELECT who FROM carl.caught") == []
    assert carl.value("SELECT easeml.refresh_dataset('visits')")  # the table is carl's, and so is the code

    carl.execute("DROP INDEX carl.spying")
    went_on = looked(anna, False)
    assert went_on["problem"] is None
    assert went_on["last_outcome"] in ("served", "not served")
    assert carl.values("SELECT who FROM carl.caught") == []
