"""What Greenplum's own users see of easeml from inside: a script of PostgreSQL 9.4's SQL that makes a schema easeml in
their database, with views of the control server and functions that ask it.

The functions run with the rights of the superuser who executes the script, since others may open no connection without
a password in the statement. They connect as the role that the session has logged in as, so what it sees and does is
decided on the control server. Its password is in a file of the cluster's coordinator (.pgpass), and in no table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

REMARK = "easeml as its control server has it (easeml.install_greenplum_views)."
GUARD = """
BEGIN;
SET LOCAL standard_conforming_strings TO on;
DO $easeml$
BEGIN
    IF NOT (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user) THEN
        RAISE EXCEPTION 'role % is no superuser here', current_user
            USING ERRCODE = 'ML004', HINT = 'Connect to the cluster as a superuser: its functions open connections.';
    END IF;
    IF EXISTS (SELECT 1 FROM pg_catalog.pg_namespace n WHERE n.nspname = 'easeml'
            AND coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace'), '') <> {remark}) THEN
        RAISE EXCEPTION 'this database has a schema easeml that easeml.install_greenplum_views has not made'
            USING ERRCODE = 'ML004', HINT = 'Drop or rename it, or connect to another database of the cluster.';
    END IF;
END
$easeml$;
"""
SCHEMA = """
DO $easeml$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_available_extensions a WHERE a.name = 'dblink') THEN
        RAISE EXCEPTION 'this server has no extension dblink'
            USING ERRCODE = 'ML010', HINT = 'Install it on all hosts of the cluster: it is one of contrib.';
    END IF;
END
$easeml$;
CREATE EXTENSION IF NOT EXISTS dblink WITH SCHEMA public;
CREATE SCHEMA IF NOT EXISTS easeml;
COMMENT ON SCHEMA easeml IS {remark};
GRANT USAGE ON SCHEMA easeml TO PUBLIC;
"""
# What this version has not; of what others have made upon it nothing goes: DROP says what depends on it.
DROP_OLD = """
DO $easeml$
DECLARE
    gone text;
BEGIN
    FOR gone IN
        SELECT format('FUNCTION %s', p.oid::pg_catalog.regprocedure) FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'easeml')
            AND p.proname NOT IN ('asked', 'rows_of', 'wait_while')
            AND NOT p.proname || '(' || pg_catalog.oidvectortypes(p.proargtypes) || ')' = ANY ({functions}::text[])
        UNION ALL
        SELECT format('VIEW easeml.%I', c.relname) FROM pg_catalog.pg_class c
        WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'easeml')
            AND c.relkind = 'v' AND NOT c.relname = ANY ({views}::text[])
    LOOP
        EXECUTE 'DROP ' || gone;
    END LOOP;
END
$easeml$;
"""
# Greenplum's dblink asks and waits in one, and no cancel reaches it meanwhile: so what takes long is asked about again
# and again, and a timeout goes along.
ASKED = """
CREATE OR REPLACE FUNCTION easeml.asked(statement text, columns text) RETURNS SETOF record LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $easeml$
DECLARE
    place text := (SELECT quote_ident(n.nspname) FROM pg_extension x JOIN pg_namespace n ON n.oid = x.extnamespace
        WHERE x.extname = 'dblink');
    timeout text := (SELECT s.setting FROM pg_settings s WHERE s.name = 'statement_timeout');
    role text := replace(replace(session_user::text, '\\', '\\\\'), '''', '\\''');
    reason text;
BEGIN
    IF (SELECT s.setting FROM pg_settings s WHERE s.name = 'gp_contentid') <> '-1' THEN
        RAISE EXCEPTION 'functions of schema easeml cannot run on segments'
            USING ERRCODE = 'ML004', HINT = 'Call them alone, not over rows of a table: SELECT easeml.cancel(1)';
    ELSIF (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = session_user) THEN
        RAISE EXCEPTION 'superusers of this server are nobody on the control server of easeml'
            USING ERRCODE = 'ML004', HINT = 'Log in as a role that is a tenant there, too. SET ROLE is not enough.';
    ELSIF place IS NULL THEN
        RAISE EXCEPTION 'this database has no extension dblink any more'
            USING ERRCODE = 'ML010', HINT = 'CREATE EXTENSION dblink';
    END IF;
    RETURN QUERY EXECUTE format('SELECT * FROM %s.dblink($1, $2) AS answer (%s)', place, columns)
        USING {address} || format(' user=''%s'' options=''-c statement_timeout=%s''', role, timeout), statement;
EXCEPTION WHEN sqlclient_unable_to_establish_sqlconnection THEN
    GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
    RAISE EXCEPTION 'the control server of easeml cannot be reached as role %', quote_ident(session_user)
        USING ERRCODE = 'ML012', DETAIL = reason, HINT = 'A role of that name must be a tenant there, and its '
            'password in .pgpass of the system user that runs this server.';
END
$easeml$;
REVOKE ALL ON FUNCTION easeml.asked(text, text) FROM PUBLIC;
COMMENT ON FUNCTION easeml.asked(text, text) IS
    'Asks the control server, as the role that has logged in, and returns the rows (internal).';
CREATE OR REPLACE FUNCTION easeml.rows_of(view_name text, one_run bigint) RETURNS SETOF record LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $easeml$
DECLARE
    names text;
    columns text;
BEGIN
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
        string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, NULL), ', ' ORDER BY a.attnum)
    INTO names, columns
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'easeml')
        AND c.relkind = 'v' AND c.relname = view_name;
    IF names IS NULL THEN
        RAISE EXCEPTION 'schema easeml has no view %', quote_nullable(view_name) USING ERRCODE = 'ML003';
    END IF;
    RETURN QUERY EXECUTE format('SELECT * FROM easeml.asked($1, $2) AS answer (%s)', columns)
        USING format('SELECT %s FROM easeml.%I', names, view_name) || coalesce(' WHERE run_id = ' || one_run, ''),
            columns;
END
$easeml$;
COMMENT ON FUNCTION easeml.rows_of(text, bigint) IS
    'Returns the rows of a view of the control server, of one run or of all (internal: read the views).';
"""
# The last statement checks what was waited for, and returns at once.
WAITS = """
CREATE OR REPLACE FUNCTION easeml.wait_while(condition text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $easeml$
DECLARE
    started timestamptz := clock_timestamp();
    asked record;
BEGIN
    LOOP
        SELECT answer.goes_on, answer.is_served INTO asked
        FROM easeml.asked('SELECT ' || condition || ', easeml.has_live_coordinator()',
            'goes_on boolean, is_served boolean') AS answer (goes_on boolean, is_served boolean);
        EXIT WHEN NOT asked.goes_on;
        IF NOT asked.is_served AND clock_timestamp() > started + interval '15 seconds' THEN
            RAISE EXCEPTION 'no coordinator of easeml is running, so nothing goes on'
                USING ERRCODE = 'ML010', HINT = 'Ask an administrator of the control server; it resumes by itself.';
        END IF;
        PERFORM pg_sleep(0.5);
    END LOOP;
END
$easeml$;
REVOKE ALL ON FUNCTION easeml.wait_while(text) FROM PUBLIC;
COMMENT ON FUNCTION easeml.wait_while(text) IS 'Waits as long as a condition holds on the control server (internal).';
CREATE OR REPLACE FUNCTION easeml.wait(run_id bigint) RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $easeml$
DECLARE
    wanted text := quote_nullable(run_id);
BEGIN
    PERFORM easeml.wait_while('EXISTS (SELECT FROM easeml.run_status WHERE run_id = ' || wanted
        || ' AND status NOT IN (''finished'', ''failed'', ''cancelled''))');
    PERFORM 1 FROM easeml.asked('CALL easeml.wait(' || wanted || ')', 'done text') AS answer (done text);
    RETURN (SELECT answer.status
        FROM easeml.asked('SELECT status FROM easeml.run_status WHERE run_id = ' || wanted, 'status text')
            AS answer (status text));
END
$easeml$;
COMMENT ON FUNCTION easeml.wait(bigint) IS
    'Waits until a run has ended, and returns its status: finished, failed or cancelled.';
CREATE OR REPLACE FUNCTION easeml.wait_dataset(dataset_id bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $easeml$
DECLARE
    wanted text := quote_nullable(dataset_id);
BEGIN
    PERFORM easeml.wait_while('EXISTS (SELECT FROM easeml.packing_status WHERE dataset_id = ' || wanted
        || ' AND status <> ''failed'')');
    PERFORM 1 FROM easeml.asked('CALL easeml.wait_dataset(' || wanted || ')', 'done text') AS answer (done text);
END
$easeml$;
COMMENT ON FUNCTION easeml.wait_dataset(bigint) IS
    'Waits until a dataset of rows on nodes is packed; raises what is wrong with them.';
"""
VIEW = """
CREATE OR REPLACE VIEW easeml.{name} AS
    SELECT * FROM easeml.rows_of({text}, NULL) AS answer ({columns});
COMMENT ON VIEW easeml.{name} IS {remark};
GRANT SELECT ON easeml.{name} TO PUBLIC;
"""
OF_A_RUN = """
CREATE OR REPLACE FUNCTION easeml.{name}(run_id bigint) RETURNS SETOF easeml.{name} LANGUAGE sql STRICT
SET search_path = pg_catalog, pg_temp AS $easeml$
    SELECT * FROM easeml.rows_of({text}, $1) AS answer ({columns})
$easeml$;
COMMENT ON FUNCTION easeml.{name}(bigint) IS {remark};
"""
CALL = """
CREATE OR REPLACE FUNCTION easeml.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET extra_float_digits TO 3 AS $easeml$
DECLARE
    statement text := {statement};
BEGIN
    {verb} answer.value FROM easeml.asked(statement, {columns}) AS answer ({columns_here}){end};
END
$easeml$;
COMMENT ON FUNCTION easeml.{name}({types}) IS {remark};
"""
# The views are dropped together, since some might stand on others; what stands on them elsewhere keeps them.
REMOVAL = """
DO $easeml$
DECLARE
    ours oid := (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'easeml');
    gone text;
BEGIN
    IF ours IS NULL THEN
        RETURN;
    END IF;
    FOR gone IN
        SELECT 'DROP FUNCTION ' || p.oid::pg_catalog.regprocedure FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = ours AND p.proname NOT IN ('asked', 'rows_of', 'wait_while') LOOP
        EXECUTE gone;
    END LOOP;
    SELECT 'DROP VIEW ' || string_agg(format('easeml.%I', c.relname), ', ') INTO gone
    FROM pg_catalog.pg_class c WHERE c.relnamespace = ours AND c.relkind = 'v';
    IF gone IS NOT NULL THEN
        EXECUTE gone;
    END IF;
    DROP FUNCTION easeml.rows_of(text, bigint);
    DROP FUNCTION easeml.wait_while(text);
    DROP FUNCTION easeml.asked(text, text);
    DROP SCHEMA easeml;
END
$easeml$;
COMMIT;
"""


class Argument(NamedTuple):
    """An argument of a function: its name as SQL writes it, its type, and its default if it has one."""

    name: str
    type: str
    default: str | None


def installation_script(offered: str, address: str) -> str:
    """Return the script that makes the schema, or brings it to what this control server offers.

    `offered`: json with `views` (name, quoted, remark, columns: name and type) and `calls` (name, quoted, result,
    remark, arguments: name, type, default), names of columns and arguments as SQL writes them. `address`: a
    connection string without user and password.
    """
    views, calls = json.loads(offered)["views"], json.loads(offered)["calls"]
    of_runs = [view for view in views if is_by_run(view)]
    functions = ["wait(bigint)", "wait_dataset(bigint)"]
    functions += [f"{view['name']}(bigint)" for view in of_runs]
    functions += [f"{call['name']}({', '.join(argument.type for argument in arguments(call))})" for call in calls]
    remark = literal(REMARK)
    parts = [
        GUARD.format(remark=remark),
        SCHEMA.format(remark=remark),
        DROP_OLD.format(functions=array(functions), views=array([view["name"] for view in views])),
        ASKED.format(address=literal(address)),
        WAITS,
        *(VIEW.format(**view_texts(view)) for view in views),
        *(OF_A_RUN.format(**view_texts(view)) for view in of_runs),
        *call_statements(calls),
        "COMMIT;\n",
    ]
    return "".join(parts)


def removal_script() -> str:
    """Return the script that takes away what the other one has made; dblink stays."""
    return GUARD.format(remark=literal(REMARK)) + REMOVAL


def is_by_run(view: Mapping[str, Any]) -> bool:
    """Return whether the rows of a view are of runs."""
    return ["run_id", "bigint"] in view["columns"]


def view_texts(view: Mapping[str, Any]) -> dict[str, str]:
    """Return what the statements about a view have in them."""
    columns = ", ".join(f"{name} {kind}" for name, kind in view["columns"])
    return {
        "name": view["quoted"], "text": literal(view["name"]), "columns": columns, "remark": literal(view["remark"]),
    }  # fmt: skip


def call_statements(calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what makes a function here of each function there."""
    for call in calls:
        given = arguments(call)
        is_void = call["result"] == "void"
        column = f"value {'text' if is_void else call['result']}"
        yield CALL.format(
            name=call["quoted"],
            arguments=", ".join(
                f"{name} {kind}" + (f" DEFAULT {default}" if default else "") for name, kind, default in given
            ),
            result=call["result"],
            verb="PERFORM" if is_void else "RETURN (SELECT",
            end="" if is_void else ")",
            statement=asking(call, given),
            columns=literal(column),
            columns_here=column,
            types=", ".join(argument.type for argument in given),
            remark=literal(call["remark"]),
        )


def asking(call: Mapping[str, Any], given: Sequence[Argument]) -> str:
    """Return an SQL expression of the statement that calls a function there, with what it was called with here."""
    parts = [literal(f"SELECT easeml.{call['quoted']}(")]
    for number, argument in enumerate(given, start=1):
        lead = literal(f"{', ' if number > 1 else ''}{argument.name} => ")
        parts.append(f"{lead} || quote_nullable(${number}::text) || {literal(f'::{argument.type}')}")
    return " || ".join([*parts, literal(")")])


def arguments(call: Mapping[str, Any]) -> list[Argument]:
    """Return what a function is given."""
    return [Argument(*entry) for entry in call["arguments"]]


def array(values: Sequence[str]) -> str:
    """Return an SQL literal of an array of names."""
    return literal("{" + ",".join(json.dumps(value) for value in values) + "}")


def literal(text: str) -> str:
    """Return a text as SQL writes it where strings conform to the standard.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
