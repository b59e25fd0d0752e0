"""easeml segment: places that hold partitions, on this server or on others."""

from __future__ import annotations

from collections.abc import Sequence

import click
from psycopg.types.json import Jsonb

from easeml_db.cli.server.topology_commands import place_command
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import group_options, listing_group, read_rows
from easeml_db.cli.terminal.output import print_json, print_rows, say
from easeml_db.cli.terminal.statements import Connection, call, rows
from easeml_db.errors import EasemlError, InvalidArgument
from easeml_db.postgres.nodes.engines import DEFAULT, ENGINES, engines_of, place_of
from easeml_db.postgres.nodes.node_installation import add_readers, check_installer, let_work
from easeml_db.postgres.nodes.nodes import Node, execute_script, hold, look_at, visited

COLUMNS = {
    "segment_name": "segment", "service": "service", "n_slots": "slots", "n_active_slots": "active",
    "n_partitions": "partitions", "n_bytes": "bytes", "refusal": "refusal",
}  # fmt: skip
# As bytes: a text would be shown to the user, and has its line breaks escaped.
INSTALLATION = """
SELECT convert_to(easeml.install_greenplum_views(service => %s, host => %s, port => %s), 'UTF8') AS script
"""
REMOVAL = "SELECT convert_to(easeml.remove_greenplum_views(), 'UTF8') AS script"
PLACE = click.argument("place", metavar="SEGMENT")


def _print(dsn: str | None, as_json: bool) -> None:
    segments = read_rows(dsn, "segments")
    hidden = {key for key in ("service", "refusal") if not any(row[key] for row in segments)}
    shown = {key: title for key, title in COLUMNS.items() if key not in hidden}
    print_rows(segments, as_json=as_json, empty="no segments", columns=shown)


def _servers() -> str:
    """Return the servers of each engine, for a help text."""
    return ", ".join(f"{name}: {place_of(name).SERVER}" for name in ENGINES)


def _contents() -> str:
    """Return the meaning of a content for each engine, for a help text."""
    return ", ".join(content for name in ENGINES if (content := place_of(name).CONTENT))


segments = listing_group("segment", "List segments (without a command), or add, check, drain and remove them.", _print)


@segments.command("add")
@click.argument("name", metavar="SEGMENT")
@click.option("--service", help="Another server, by its name in pg_service.conf (default: a part of this server).")
@click.option("--engine", default=DEFAULT, help=f"What that server is: {_servers()}.")
@click.option("--content", type=int, help=f"Of a cluster's coordinator: {_contents()}.")
@group_options
def add(name: str, service: str | None, engine: str, content: int | None, dsn: str | None, as_json: bool) -> None:
    """Add SEGMENT: a place that holds partitions; give it slots next. Another server is checked first."""
    with database(dsn) as connection, connection.transaction():
        call(connection, "add_segment", name, service=service, engine=engine, content=content)
        if service is not None:
            _look_at(connection, name)
    _print(dsn, as_json)


@segments.command("check")
@PLACE
@group_options
def check(place: str, dsn: str | None, as_json: bool) -> None:
    """Check the server of SEGMENT now: versions, packages, devices, and what prevents its use."""
    with database(dsn) as connection:
        _look_at(connection, place)
        facts = call(connection, "segment_facts", place)
    print_json(facts)


@segments.command("install")
@click.argument("service")
@click.option("--grant", "role", help="Role by which the coordinator works there: made a member of easeml_segment.")
@click.option(
    "--reader", "tenants", metavar="ROLE", multiple=True,
    help="A role whose tables are read there: makes easeml_reads_ROLE, to which owners GRANT SELECT.",
)  # fmt: skip
@click.option("--engine", type=click.Choice(list(ENGINES)), default=DEFAULT, help=f"What SERVICE is: {_servers()}.")
@click.option(
    "--delegated", "through_coordinator", is_flag=True,
    help="With --engine citus: SERVICE is the cluster's coordinator, and installs it on all workers.",
)  # fmt: skip
def install_segment(
    service: str, role: str | None, tenants: Sequence[str], engine: str, through_coordinator: bool
) -> None:
    """Create the extension easeml_segment on the server of SERVICE, whose role must be a superuser there."""
    ways = engines_of(engine)
    if through_coordinator and len(ways) == 1:
        raise InvalidArgument("--delegated: expected --engine citus", hint="Other clusters need no such thing.")
    kind = ways[through_coordinator]
    with visited(service) as connection:
        check_installer(service, connection, role)
        kind.install(service, connection)
        if role is not None:
            let_work(connection, role)
        add_readers(connection, tenants)
    say(
        "easeml_segment is installed there; now, with the service by which the coordinator works there"
        f"{f' as role {role}' if role else ''}: easeml segment add NAME --service ...{kind.options}"
    )


@segments.command("views")
@click.argument("service")
@click.option("--control", metavar="SERVICE", help="Service in pg_service.conf there that leads to the control server.")
@click.option("--host", help="Host of the control server as the cluster reaches it, where there is no such service.")
@click.option("--port", type=int, help="Its port (default: that of the server of --dsn).")
@click.option("--remove", is_flag=True, help="Remove what this command has made there.")
@dsn_option
def views(service: str, control: str | None, host: str | None, port: int | None, remove: bool, dsn: str | None) -> None:
    """Let users of a Greenplum database start runs and read leaderboards from inside; SERVICE must log in as its
    superuser.
    """
    with database(dsn) as connection:
        made = connection.execute(REMOVAL if remove else INSTALLATION, [] if remove else [control, host, port])
        (script,) = [row["script"] for row in made]
    execute_script(service, script)
    say("schema easeml is removed there" if remove else "schema easeml is there now: SELECT * FROM easeml.leaderboard")


def _look_at(connection: Connection, segment: str) -> None:
    """Check a server and record its facts. Raises, and also records, the reason if it cannot be a segment."""
    (entry,) = rows(connection, "node", segment=segment)
    node = Node(**entry)
    if node.service is None:
        raise InvalidArgument(f"segment {segment} is a part of this server", hint="easeml doctor looks at that.")
    try:
        facts = look_at(node)
        call(connection, "note_segment", node.segment_id, Jsonb(facts), None)
        hold(node)
    except EasemlError as error:
        call(connection, "note_segment", node.segment_id, None, str(error))
        raise


place_command(segments, "drain_segment", PLACE, "Drain all slots of SEGMENT.", _print, is_forced=True)
place_command(segments, "resume_segment", PLACE, "Give units again to all slots of SEGMENT.", _print)
place_command(segments, "remove_segment", PLACE, "Remove SEGMENT, which has no slots left.", _print, is_forced=True)


COMMANDS = (segments,)
