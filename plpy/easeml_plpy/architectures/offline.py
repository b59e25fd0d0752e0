"""No network access while a registered architecture is imported and built: weights downloaded from a hub are not part
of it.

It is a check for honest packages, not a sandbox: their code has the rights of the server's user anyway, which is why an
administrator of the machine installs them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from easeml_plpy.server.errors import NotAllowed

REFUSED = frozenset(
    {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.sendto"}
)
"""Events of Python's audit (PEP 578) that begin to use a network."""


class _Watched:
    """The architecture that is being built in this process, if one is."""

    name: str | None = None


@contextmanager
def offline(name: str) -> Iterator[None]:
    """Raise NotAllowed, which names the architecture, where code in this block uses the network."""
    _listen()
    before, _Watched.name = _Watched.name, name
    try:
        yield
    finally:
        _Watched.name = before


@cache
def _listen() -> None:
    """Add the audit hook, once: a process cannot remove it again."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[object, ...], watched: type[_Watched] = _Watched) -> None:
    # Bound here: audit events still arrive while a process ends, when the names of this module are gone.
    if watched.name is not None and event in REFUSED:
        raise NotAllowed(
            f"architecture {watched.name} needs the network ({event})",
            hint="Ship what it downloads in its package, or build it with random weights.",
        )
