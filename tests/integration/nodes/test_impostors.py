"""A server that is not the one it should be gets no password, whatever it asks for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.cli import commands
from easeml_db.console.rows import dsn_of_role
from easeml_db.errors import EasemlError, ServerUnavailable
from easeml_db.local.dump_files import without_password
from easeml_db.postgres.connection import connect, connect_now
from easeml_db.postgres.nodes.nodes import Node, look_at
from easeml_loaders import column_types, passwords
from tests.nodes import section, service_file

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

CLEARTEXT, MD5 = struct.pack("!i", 3), struct.pack("!i4s", 5, b"salt")
SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
PASSWORD = "the-password-of-the-service"


@dataclass
class Impostor:
    """A server that asks for a password in its own way, and keeps what it is told."""

    asks: bytes
    port: int = 0
    told: list[bytes] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return make_conninfo(host="127.0.0.1", port=self.port, user="easeml_service", dbname="easeml")

    def serve(self, listening: socket.socket) -> None:
        """Answer connections until the socket is closed."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError, struct.error):
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        while True:
            length, code = struct.unpack("!ii", connection.recv(8))
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            connection.sendall(b"N")
        connection.recv(length - 8)
        connection.sendall(b"R" + struct.pack("!i", len(self.asks) + 4) + self.asks)
        connection.settimeout(2)
        if told := connection.recv(1000):
            self.told.append(told)


@contextmanager
def impostor(asks: bytes) -> Iterator[Impostor]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        false = Impostor(asks, listening.getsockname()[1])
        threading.Thread(target=false.serve, args=[listening], daemon=True).start()
        yield false


def by_coordinator(dsn: str) -> None:
    asyncio.run(connect(dsn, "easeml coordinator"))


def by_command_line(dsn: str) -> None:
    error = CliRunner().invoke(commands, ["slot", "--dsn", dsn]).exception
    assert isinstance(error, ServerUnavailable)
    assert "SCRAM" in str(error.hint)
    raise error


def by_loader(dsn: str) -> None:
    column_types(dsn, "public.rows")


def by_console(dsn: str) -> None:
    connect_now(dsn_of_role(dsn, "easeml_service", PASSWORD), "easeml console")


WAYS: list[Callable[[str], object]] = [by_coordinator, connect_now, by_command_line, by_loader, by_console]


@pytest.mark.parametrize("asks", [CLEARTEXT, MD5], ids=["cleartext", "md5"])
@pytest.mark.parametrize("way", WAYS)
def test_no_connection_gives_a_password_to_whoever_asks_for_it(way: Callable[[str], object], asks: bytes) -> None:
    with impostor(asks) as false:
        with pytest.raises(EasemlError):
            way(make_conninfo(false.dsn, password=PASSWORD))
        assert false.told == []


@pytest.mark.parametrize("asks", [CLEARTEXT, MD5], ids=["cleartext", "md5"])
@pytest.mark.parametrize("place", ["service", "file", "environment"])
def test_a_node_gets_no_password_wherever_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, asks: bytes
) -> None:
    with impostor(asks) as false:
        dsn = make_conninfo(false.dsn, password=PASSWORD) if place == "service" else false.dsn
        if place == "file":
            (tmp_path / "pgpass").write_text(f"127.0.0.1:{false.port}:easeml:easeml_service:{PASSWORD}\n")
            (tmp_path / "pgpass").chmod(0o600)
            monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
        elif place == "environment":
            monkeypatch.setenv("PGPASSWORD", PASSWORD)
        with (
            service_file(tmp_path, {"pg_false": dsn}),
            pytest.raises(ServerUnavailable, match="service pg_false: the server was not given the password") as error,
        ):
            look_at(Node(2, "false", "pg_false", "token"))
        assert false.told == []
        assert "require_auth" in str(error.value.hint)


def test_what_a_user_demands_counts(tmp_path: Path) -> None:
    with impostor(CLEARTEXT) as false:
        dsn = make_conninfo(false.dsn, password=PASSWORD, require_auth="password")
        with service_file(tmp_path, {"pg_weak": dsn}):
            for weak in (dsn, "service=pg_weak"):
                with pytest.raises(ServerUnavailable):
                    connect_now(weak)
        assert [PASSWORD.encode() in told for told in false.told] == [True, True]


def test_a_driver_that_cannot_demand_gives_no_password_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords.pq, "version", lambda: 150010)
    dsn = f"host=db.example.org user=anna password={PASSWORD}"
    with pytest.raises(EasemlError, match="libpq is 15"):
        connect_now(dsn)
    bound = conninfo_to_dict(passwords.guarded(dsn + " sslmode=verify-full"))
    assert (bound["channel_binding"], "require_auth" in bound) == ("require", False)
    for other in ("host=/run/postgresql password=x", "host=db.example.org passfile=/nowhere"):
        assert "require_auth" not in passwords.guarded(other)


def test_programs_of_postgresql_are_told_by_their_environment() -> None:
    dsn, environment = without_password(f"host=db.example.org user=anna password={PASSWORD} sslmode=verify-full", {})
    assert PASSWORD not in dsn
    assert "require_auth" not in dsn
    assert environment == {"PGPASSWORD": PASSWORD, "PGREQUIREAUTH": "scram-sha-256", "PGCHANNELBINDING": "require"}


def test_the_right_server_is_met_over_tcp_and_over_its_socket(private_server: Embedded, database: Session) -> None:
    database.execute("DROP ROLE IF EXISTS met_by_scram")
    database.execute(f"CREATE ROLE met_by_scram LOGIN PASSWORD '{PASSWORD}'")
    name = str(conninfo_to_dict(database.dsn)["dbname"])
    tcp = make_conninfo(host="127.0.0.1", port=private_server.port, dbname=name, user="met_by_scram")
    for dsn in (make_conninfo(tcp, password=PASSWORD), make_conninfo(database.dsn, password=PASSWORD), database.dsn):
        connect_now(dsn).close()
    with pytest.raises(ServerUnavailable, match="password authentication failed"):
        connect_now(make_conninfo(tcp, password="another"))
    assert "met_by_scram" in section("pg_met", tcp)
    database.execute("DROP ROLE met_by_scram")
