"""Every error the code inside a segment raises on purpose.

EasemlError
├── InvalidArgument    ML001  a value the caller passed is wrong
├── InvalidData        ML002  the rows are wrong
├── NotFound           ML003  no such thing
├── NotAllowed         ML004  the role may not do this
├── CorruptCheckpoint  ML005  stored bytes are not what was stored
├── StaleLease         ML006  another coordinator has taken over
├── TrialFailed        ML007  a trial's own fault: diverged, raised, out of memory
├── VersionMismatch    ML008  package, server and schema disagree
├── ShapeMismatch      ML009  arrays do not have the shape that was declared
├── NotReady           ML010  nothing to serve, or to wait for, yet
├── SlotLost           ML011  a slot that trained with this one is gone: run the gang again
└── QuotaExceeded      ML015  a limit of the tenant is reached

The entry points turn them into SQL errors with the SQLSTATE, detail and hint given here.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class EasemlError(Exception):
    """Root of all errors; `message` is one line, `detail` what was seen, `hint` what to do."""

    sqlstate = "ML000"

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint


class InvalidArgument(EasemlError):
    """A value the caller passed is wrong."""

    sqlstate = "ML001"


class InvalidData(EasemlError):
    """The rows are wrong: missing, not finite, or a class that does not exist."""

    sqlstate = "ML002"


class NotFound(EasemlError):
    """There is no such thing, or the role cannot see it."""

    sqlstate = "ML003"


class NotAllowed(EasemlError):
    """The role may not do this."""

    sqlstate = "ML004"


class CorruptCheckpoint(EasemlError):
    """Stored bytes are not what was stored, or belong to another trial."""

    sqlstate = "ML005"


class StaleLease(EasemlError):
    """Another coordinator has taken over since this unit was sent."""

    sqlstate = "ML006"


class TrialFailed(EasemlError):
    """A trial's own fault: it diverged, raised, or ran out of memory. An observation, not a crash."""

    sqlstate = "ML007"


class VersionMismatch(EasemlError):
    """Package, server and schema are of versions that do not work together."""

    sqlstate = "ML008"


class ShapeMismatch(EasemlError):
    """Arrays do not have the shape that was declared."""

    sqlstate = "ML009"


class NotReady(EasemlError):
    """There is nothing to serve, or to wait for, yet."""

    sqlstate = "ML010"


class SlotLost(EasemlError):
    """A slot that trained together with this one is gone; the gang can be run again."""

    sqlstate = "ML011"


class QuotaExceeded(EasemlError):
    """The tenant has reached a limit that an administrator set."""

    sqlstate = "ML015"


def close_matches_hint(given: str, known: Iterable[str]) -> str:
    """A hint that lists the names nearest to the given one, or all of them when none is near."""
    names = sorted(known)
    near = get_close_matches(given, names, n=3)
    if near:
        return "Did you mean " + " or ".join(repr(name) for name in near) + "?"
    return "Known: " + ", ".join(names) + "."
