"""easeml doctor: check everything that has to fit together, and say what to do about each fault."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict

import click
import psycopg
from rich.console import Console
from rich.text import Text

from easeml_db.cli.server.findings import (
    Finding,
    coordinator_finding,
    device_finding,
    extension_finding,
    module_findings,
    plpython_finding,
    python_finding,
    segment_findings,
    server_finding,
    service_findings,
    slot_findings,
    this_environment,
    vacuum_finding,
)
from easeml_db.cli.server.lock_findings import lock_findings
from easeml_db.cli.terminal.connection import dsn_option, dsn_or_embedded, open_connection
from easeml_db.cli.terminal.output import json_option, print_json
from easeml_db.cli.terminal.statements import Connection, Row, call, rows
from easeml_db.errors import EasemlError
from easeml_db.local.lock_rights import open_rights
from easeml_db.postgres.connection import server_error
from easeml_db.words.visible_text import visible

STYLES = {"ok": "green", "warn": "yellow", "fault": "bold red"}


@click.command()
@dsn_option
@json_option
def doctor(dsn: str | None, as_json: bool) -> None:
    """Check server, extension, Python, devices, slots, nodes, coordinator and locks. Exits with 1 on a fault."""
    findings = list(_examine(dsn))
    is_healthy = all(finding.status != "fault" for finding in findings)
    if as_json:
        print_json({"is_healthy": is_healthy, "checks": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
    sys.exit(0 if is_healthy else 1)


COMMANDS = (doctor,)


def _print(findings: Sequence[Finding]) -> None:
    # Lines are not folded: what is to be typed must stay in one piece.
    console = Console(soft_wrap=True, highlight=False)
    last_todo = ""
    for finding in findings:
        console.print(
            Text.assemble(
                (f"{finding.status:6}", STYLES[finding.status]), f"{finding.check:13}{visible(finding.message)}"
            )
        )
        todo = "As above." if finding.todo and finding.todo == last_todo else finding.todo
        last_todo = finding.todo or last_todo
        for line in todo.splitlines():
            console.print(Text(f"{'':19}{visible(line)}", style=STYLES[finding.status]))


def _examine(dsn: str | None) -> Iterator[Finding]:
    try:
        with open_connection(dsn_or_embedded(dsn), "easeml doctor") as connection:
            yield from _examine_server(connection, is_private=dsn is None)
    except EasemlError as error:
        yield Finding("server", "fault", str(error), error.hint or "")


def _examine_server(connection: Connection, *, is_private: bool) -> Iterator[Finding]:
    server = rows(connection, "server")[0]
    yield server_finding(server)
    yield plpython_finding(server)
    yield vacuum_finding(server)
    yield extension_finding(server)
    if server["installed_version"] is None:
        return
    facts = None
    try:
        facts = rows(connection, "python_facts")[0]["facts"]
    except psycopg.errors.InsufficientPrivilege:
        role = connection.info.user
        yield Finding("python", "warn", f"role {role} may not ask", "Run easeml doctor as a member of easeml_admin.")
    except psycopg.Error as error:
        yield Finding("python", "fault", f"PL/Python does not work: {server_error(error)}", "See the server's log.")
    if facts:
        yield from _examine_python(facts, server, is_private=is_private)
    yield from _examine_work(connection, facts, is_private=is_private)
    yield from lock_findings(server, open_rights(connection), _lock_holders(connection))


def _lock_holders(connection: Connection) -> list[Row]:
    try:
        return rows(connection, "lock_holders")
    except psycopg.errors.InsufficientPrivilege:  # they are for administrators
        return []


def _examine_python(facts: Row, server: Row, *, is_private: bool) -> Iterator[Finding]:
    here = this_environment()
    yield python_finding(facts, here)
    yield from module_findings(facts, here, server, is_private=is_private)
    yield device_finding(facts)


def _examine_nodes(connection: Connection, names: Sequence[str]) -> Iterator[Finding]:
    """Check the service's rights on each node, as of the last look at it; only administrators may see that."""
    readers: dict[str, dict[str, str]] = {}
    for row in rows(connection, "readers"):
        readers.setdefault(row["segment_name"], {})[row["reader"]] = row["role"]
    for name in names:
        with suppress(psycopg.errors.InsufficientPrivilege):
            yield from service_findings(name, call(connection, "segment_facts", name) or {}, readers.get(name, {}))


def _examine_work(connection: Connection, facts: Row | None, *, is_private: bool) -> Iterator[Finding]:
    try:
        is_local = (connection.info.host or "/").startswith("/")
        segments = rows(connection, "segments")
        nodes = {segment["segment_name"] for segment in segments if segment["service"] is not None}
        yield from slot_findings(rows(connection, "slots"), facts, os.cpu_count() if is_local else None, nodes)
        yield from segment_findings(segments)
        yield from _examine_nodes(connection, [row["segment_name"] for row in segments if row["checked_at"]])
        last = next(iter(rows(connection, "coordinator")), None)
        yield coordinator_finding(last, is_private=is_private)
    except psycopg.errors.InsufficientPrivilege:
        role = connection.info.user
        todo = f"As a superuser: GRANT easeml_tenant TO {role};"
        yield Finding("rights", "fault", f"role {role} has no rights in schema easeml", todo)
