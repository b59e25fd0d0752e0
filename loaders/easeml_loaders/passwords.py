"""Connection strings by which no server gets to read a password: it must prove, by SCRAM, that it knows it already.

libpq answers whatever way a server asks in, and sends the password itself to one that asks for that. So wherever a
password is at hand, SCRAM is demanded. What a user demands counts: in the string, a service, or the environment.
"""

from __future__ import annotations

from typing import NamedTuple

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_plpy.server.errors import NotReady

SCRAM = "scram-sha-256"
DEMANDING_VERSION = 160000
ENCRYPTED = ("require", "verify-ca", "verify-full")


class _Resolved(NamedTuple):
    """What libpq makes of a string with services, environment and files: settings, and whether it has a password."""

    settings: dict[str, str]
    has_password: bool

    @property
    def is_local(self) -> bool:
        """Whether it leads to sockets of this machine alone, whose server may know users without their passwords."""
        hosts = self.settings.get("hostaddr") or self.settings.get("host") or ""
        return all(host.startswith(("/", "@")) or not host for host in hosts.split(","))


def guarded(conninfo: str) -> str:
    """Return a connection string that demands SCRAM if a password is at hand and the user demands nothing else.

    Over TLS, if the user demands it, the proof must also be about this very connection. Raises NotReady if the driver
    is too old for such demands.
    """
    try:
        given = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        return conninfo  # whoever connects with it reports the mistake
    found = _resolved(conninfo)
    said = found.settings.get("require_auth", "")
    is_open = not said or said.startswith("!")  # what is only excluded leaves the rest open, and passwords as they are
    if not found.has_password or not is_open or f"!{SCRAM}" in said:
        return conninfo
    demands = {"require_auth": f"{SCRAM},none" if found.is_local and "!none" not in said else SCRAM}
    if not found.is_local and found.settings.get("sslmode") in ENCRYPTED and "channel_binding" not in given:
        demands |= {"channel_binding": "require"} if found.settings.get("channel_binding") == "prefer" else {}
    if pq.version() < DEMANDING_VERSION:
        _check_binding(found, demands)
        demands.pop("require_auth")
    return make_conninfo(conninfo, **demands)


def _check_binding(found: _Resolved, demands: dict[str, str]) -> None:
    """Refuse to send a password by a driver that would send it in any way, unless it is bound to TLS."""
    is_bound = "require" in (found.settings.get("channel_binding"), demands.get("channel_binding"))
    if not is_bound and not found.is_local:
        raise NotReady(
            f"the driver's libpq is {pq.version() // 10000}, and cannot keep a password from a false server",
            hint="Install psycopg[binary], which has a newer one, or say sslmode=verify-full in the connection string.",
        )


def _resolved(conninfo: str) -> _Resolved:
    """Let libpq resolve a string, with a last setting that it refuses before it looks for any server."""
    refused = pq.PGconn.connect_start(make_conninfo(conninfo, target_session_attrs="unknown").encode())
    try:
        settings = {option.keyword.decode(): option.val.decode() for option in refused.info if option.val is not None}
        return _Resolved(settings, bool(refused.password or settings.get("password")))
    finally:
        refused.finish()
