"""easeml demo tenants: four roles share one database, and a policy decides whose arm opens next."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg

from easeml_db.cli.demo.demo_console import DemoConsole, print_next_steps, provide_table, since, start_server
from easeml_db.cli.demo.demo_roles import ANNA, BEN, CORA, DAN, DEMO_TENANTS, MARK, DemoTenant
from easeml_db.cli.tenancy.tenant_board import BoardChanges, is_open, watch_board
from easeml_db.cli.terminal.connection import database
from easeml_db.cli.terminal.output import print_rows
from easeml_db.cli.terminal.statements import Connection, Row, rows
from easeml_db.errors import NotAllowed, TrialFailed
from easeml_db.local.server import Embedded
from easeml_loaders import bundled_source

DEADLINE_SECONDS = 4


def show_tenants(server: Embedded, n_slots: int | None) -> None:
    """Show it, on a private server. Roles and datasets of an earlier one are used again, runs are new."""
    console = DemoConsole()
    start_server(server, n_slots, console)
    with database(server.dsn(), has_own_names=True) as connection:
        connection.execute("SET client_min_messages = warning")
        _provide_tables(connection, server, console)
        _provide_tenants(connection, console)
        _provide_datasets(connection, console)
        run_ids = _train_side_by_side(connection, console)
        _explain(connection, run_ids, console)
        _look_at_others(connection, run_ids, console)
    print_next_steps(
        server, console, ("run decisions", "who was served and who waited"), ("regret --all", "what each came to")
    )


# Set-up


def _provide_tables(connection: Connection, server: Embedded, console: DemoConsole) -> None:
    console.step("Four datasets in ordinary tables")
    console.execute(connection, ANNA.statement("schema"))
    for tenant in DEMO_TENANTS:
        provide_table(server, lambda name=tenant.bundled: bundled_source(name), tenant.table, console)  # type: ignore[misc]


def _provide_tenants(connection: Connection, console: DemoConsole) -> None:
    console.step("Four roles become tenants; anna's weight is twice the others'")
    there = {row["role"]: row for row in rows(connection, "demo_roles", roles=[tenant.role for tenant in DEMO_TENANTS])}
    strangers = [role for role, row in there.items() if row["comment"] != MARK]
    if strangers:
        raise NotAllowed(
            f"there is a role {strangers[0]} that this demonstration has not made",
            hint="Use another private server: easeml demo tenants --data FOLDER",
        )
    for tenant in DEMO_TENANTS:
        _provide_tenant(connection, tenant, there.get(tenant.role), console)


def _provide_tenant(connection: Connection, tenant: DemoTenant, existing: Row | None, console: DemoConsole) -> None:
    """Make a role a tenant; one of an earlier demonstration begins afresh, without open runs."""
    if existing is None:
        console.execute(connection, tenant.statement("create_role"))
    for run_id in existing["open_runs"] if existing else ():
        console.execute(connection, tenant.statement("cancel", run_id=run_id))
    if existing and existing["is_tenant"]:
        console.execute(connection, tenant.statement("drop_tenant"))
    for name in ("create_tenant", "grant"):
        console.execute(connection, tenant.statement(name))


def _provide_datasets(connection: Connection, console: DemoConsole) -> None:
    console.step("Each makes a dataset of her own; no other tenant sees it")
    there = {(row["tenant"], row["dataset_name"]) for row in rows(connection, "datasets")}
    for tenant in DEMO_TENANTS:
        if (tenant.role, tenant.bundled) in there:
            console.note(f"{tenant.role} has {tenant.bundled} from before")
            continue
        started_seconds = time.monotonic()
        _run_as(connection, tenant, "create_dataset", console)
        console.note(f"packed in {since(started_seconds)}")


# Actions


def _train_side_by_side(connection: Connection, console: DemoConsole) -> list[int]:
    """Let all tenants start and end their runs; return the runs in the order of their starts."""
    console.step("Three of them want the best model at once; the policy says whose next architecture is tried")
    print_rows(console.execute(connection, ANNA.statement("policy")), as_json=False, empty="")
    run_ids, lines = [_select(connection, tenant, console) for tenant in (ANNA, BEN, CORA)], BoardChanges()
    watch_board(connection, run_ids, lines, lambda board: all(row["n_closed"] for row in board.values()))

    console.step("Dan comes late; cora's result is due in a few seconds")
    run_ids.append(_select(connection, DAN, console))
    console.execute(connection, CORA.statement("set_deadline", seconds=DEADLINE_SECONDS))
    watch_board(connection, run_ids, lines, lambda board: bool(board[DAN.role]["n_closed"]))

    console.step("Ben has seen enough and cancels; the others share his slots")
    cancel_for_ben(connection, run_ids[1], console)
    watch_board(connection, run_ids, lines, lambda board: False)
    console.execute(connection, CORA.statement("clear_deadline"))
    return run_ids


def _select(connection: Connection, tenant: DemoTenant, console: DemoConsole) -> int:
    return int(_run_as(connection, tenant, "select_models", console)[0]["run_id"])


def cancel_for_ben(connection: Connection, run_id: int, console: DemoConsole) -> None:
    """Cancel ben's run, unless it is over."""
    (run,) = rows(connection, "run", run_id=run_id)
    if is_open(run):
        _run_as(connection, BEN, "cancel", console, run_id=run_id)
    else:
        console.note(f"his run {run_id} was over before")


def _run_as(connection: Connection, tenant: DemoTenant, name: str, console: DemoConsole, **values: object) -> list[Row]:
    """Execute a statement under a tenant's role."""
    console.execute(connection, tenant.statement("set_role"))
    try:
        return console.execute(connection, tenant.statement(name, **values))
    finally:
        console.execute(connection, tenant.statement("reset_role"))


# The outcome


def _explain(connection: Connection, run_ids: Sequence[int], console: DemoConsole) -> None:
    named = ", ".join(map(str, run_ids))
    console.step("Who was served, in which order, and why")
    print_rows(_say(connection, "decisions", console, run_ids=named), as_json=False, empty="", is_folded=False)
    console.step("What each came to")
    results = _say(connection, "results", console, run_ids=named)
    print_rows(results, as_json=False, empty="")
    failed = [row["tenant"] for row in results if row["status"] == "failed"]
    if failed:
        raise TrialFailed(f"the run of {failed[0]} failed", hint="easeml logs shows what the coordinator said.")


def _say(connection: Connection, name: str, console: DemoConsole, **values: object) -> list[Row]:
    return console.execute(connection, ANNA.statement(name, **values))


def _look_at_others(connection: Connection, run_ids: Sequence[int], console: DemoConsole) -> None:
    console.step("What each sees of the others: nothing")
    seen = [row for tenant in DEMO_TENANTS for row in _run_as(connection, tenant, "own_rows", console)]
    print_rows(seen, as_json=False, empty="")
    try:
        _run_as(connection, DAN, "cancel", console, run_id=run_ids[0])
    except psycopg.Error as error:
        console.note(f"ERROR:  {error.diag.message_primary}", "red")
