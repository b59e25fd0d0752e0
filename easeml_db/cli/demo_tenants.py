"""easeml demo tenants: four roles share one database, and a policy decides whose arm is opened next."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg

from easeml_db.cli.connection import database
from easeml_db.cli.demo_roles import ANNA, BEN, CORA, DAN, GUESTS, MARK, Guest
from easeml_db.cli.output import print_rows
from easeml_db.cli.statements import Connection, Row, rows
from easeml_db.cli.talk import Talk, provide_table, say_goodbye, since, start_server
from easeml_db.cli.tenant_board import Lines, is_open, watch_board
from easeml_db.errors import NotAllowed, TrialFailed
from easeml_db.local.server import Embedded
from easeml_loaders import bundled_source

DEADLINE_SECONDS = 4


def show_tenants(server: Embedded, n_slots: int | None) -> None:
    """Show it, on a private server. Roles and data sets of an earlier one are used again, runs are new."""
    talk = Talk()
    start_server(server, n_slots, talk)
    with database(server.dsn()) as connection:
        connection.execute("SET client_min_messages = warning")
        _provide_tables(connection, server, talk)
        _provide_tenants(connection, talk)
        _provide_datasets(connection, talk)
        run_ids = _share(connection, talk)
        _explain(connection, run_ids, talk)
        _look_at_others(connection, run_ids, talk)
    say_goodbye(server, talk, ("decisions", "who was served and who waited"), ("regret --all", "what each came to"))


# What must be there


def _provide_tables(connection: Connection, server: Embedded, talk: Talk) -> None:
    talk.step("Four data sets in ordinary tables")
    talk.execute(connection, ANNA.statement("schema"))
    for guest in GUESTS:
        provide_table(server, lambda name=guest.bundled: bundled_source(name), guest.table, talk)  # type: ignore[misc]


def _provide_tenants(connection: Connection, talk: Talk) -> None:
    talk.step("Four roles become tenants; anna's weight is twice the others'")
    there = {row["role"]: row for row in rows(connection, "demo_roles", roles=[guest.role for guest in GUESTS])}
    strangers = [role for role, row in there.items() if row["comment"] != MARK]
    if strangers:
        raise NotAllowed(
            f"there is a role {strangers[0]} that this demonstration has not made",
            hint="Use another private server: easeml demo tenants --data FOLDER",
        )
    for guest in GUESTS:
        _provide_tenant(connection, guest, there.get(guest.role), talk)


def _provide_tenant(connection: Connection, guest: Guest, found: Row | None, talk: Talk) -> None:
    """Make a role a tenant; one of an earlier demonstration begins afresh, without open runs."""
    if found is None:
        talk.execute(connection, guest.statement("create_role"))
    for run_id in found["open_runs"] if found else ():
        talk.execute(connection, guest.statement("cancel", run_id=run_id))
    if found and found["is_tenant"]:
        talk.execute(connection, guest.statement("drop_tenant"))
    for name in ("create_tenant", "grant"):
        talk.execute(connection, guest.statement(name))


def _provide_datasets(connection: Connection, talk: Talk) -> None:
    talk.step("Each makes a data set of her own; no other tenant sees it")
    there = {(row["owner"], row["dataset_name"]) for row in rows(connection, "datasets")}
    for guest in GUESTS:
        if (guest.role, guest.bundled) in there:
            talk.note(f"{guest.role} has {guest.bundled} from before")
            continue
        started_seconds = time.monotonic()
        _say_as(connection, guest, "create_dataset", talk)
        talk.note(f"packed in {since(started_seconds)}")


# What happens


def _share(connection: Connection, talk: Talk) -> list[int]:
    """Let all come and go. Returns their runs in the order in which they came."""
    talk.step("Three of them want the best model at once; the policy says whose next architecture is tried")
    print_rows(talk.execute(connection, ANNA.statement("policy")), as_json=False, empty="")
    run_ids, lines = [_select(connection, guest, talk) for guest in (ANNA, BEN, CORA)], Lines()
    watch_board(connection, run_ids, lines, lambda board: all(row["n_closed"] for row in board.values()))

    talk.step("Dan comes late; cora's result is due in a few seconds")
    run_ids.append(_select(connection, DAN, talk))
    talk.execute(connection, CORA.statement("set_deadline", seconds=DEADLINE_SECONDS))
    watch_board(connection, run_ids, lines, lambda board: bool(board[DAN.role]["n_closed"]))

    talk.step("Ben has seen enough and cancels; the others share his slots")
    _cancel(connection, run_ids[1], talk)
    watch_board(connection, run_ids, lines, lambda board: False)
    talk.execute(connection, CORA.statement("clear_deadline"))
    return run_ids


def _select(connection: Connection, guest: Guest, talk: Talk) -> int:
    return int(_say_as(connection, guest, "select_models", talk)[0]["run_id"])


def _cancel(connection: Connection, run_id: int, talk: Talk) -> None:
    (run,) = rows(connection, "run", run_id=run_id)
    if is_open(run):
        _say_as(connection, BEN, "cancel", talk, run_id=run_id)
    else:
        talk.note(f"his run {run_id} was over before")


def _say_as(connection: Connection, guest: Guest, name: str, talk: Talk, **values: object) -> list[Row]:
    """Execute a statement under a tenant's role."""
    talk.execute(connection, guest.statement("set_role"))
    try:
        return talk.execute(connection, guest.statement(name, **values))
    finally:
        talk.execute(connection, guest.statement("reset_role"))


# What came of it


def _explain(connection: Connection, run_ids: Sequence[int], talk: Talk) -> None:
    named = ", ".join(map(str, run_ids))
    talk.step("Who was served, in which order, and why")
    print_rows(_say(connection, "decisions", talk, run_ids=named), as_json=False, empty="", is_folded=False)
    talk.step("What each came to")
    results = _say(connection, "results", talk, run_ids=named)
    print_rows(results, as_json=False, empty="")
    failed = [row["tenant"] for row in results if row["state"] == "failed"]
    if failed:
        raise TrialFailed(f"the run of {failed[0]} failed", hint="easeml logs shows what the coordinator said.")


def _say(connection: Connection, name: str, talk: Talk, **values: object) -> list[Row]:
    return talk.execute(connection, ANNA.statement(name, **values))


def _look_at_others(connection: Connection, run_ids: Sequence[int], talk: Talk) -> None:
    talk.step("What each sees of the others: nothing")
    seen = [row for guest in GUESTS for row in _say_as(connection, guest, "own_rows", talk)]
    print_rows(seen, as_json=False, empty="")
    try:
        _say_as(connection, DAN, "cancel", talk, run_id=run_ids[0])
    except psycopg.Error as error:
        talk.note(f"ERROR:  {error.diag.message_primary}", "red")
