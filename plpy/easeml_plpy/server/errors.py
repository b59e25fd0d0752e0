"""Every error this project raises on purpose, grouped by what the caller can do about it.

    EasemlError            ML000  the root
    ├── InvalidArgument    ML001  an argument is wrong: change the call
    ├── InvalidData        ML002  the dataset holds something unusable: change the data
    ├── NotFound           ML003  no such thing, or not yours
    ├── NotAllowed         ML004  it exists, and you may not do this to it, or not in its status
    ├── CorruptCheckpoint  ML005  stored bytes are not the state they claim to be
    ├── StaleLease         ML006  another coordinator took over: stop and record nothing
    ├── TrialFailed        ML007  training this trial failed: an observation, others go on
    ├── VersionMismatch    ML008  package, server and schema disagree: upgrade, reconnect
    ├── ShapeMismatch      ML009  inputs or targets have another shape than the dataset declares
    ├── NotReady           ML010  nothing to serve yet: wait and ask again
    ├── SlotLost           ML011  a slot's session broke: run the unit again elsewhere
    ├── ServerUnavailable  ML012  the server cannot be reached: try again later
    ├── StandbyOnly        ML013  another coordinator holds the lease: wait as standby
    ├── OutOfSpace         ML014  a disk of the server is full: make room, work goes on by itself
    ├── QuotaExceeded      ML015  a limit of the tenant is reached: free something, or ask an administrator
    ├── RowsHeld           ML016  an open transaction holds the rows: try again later, nobody is to blame
    ├── ServerCrashed      ML017  the server restarted while a unit ran: the trial is not tried again
    ├── ServerBusy         ML018  no room in the lock table, no connection left: try again later, nobody is to blame
    └── Unexpected         ML019  a fault of easeml, or an internal function that was called by hand: report it

The codes are SQLSTATEs of class ML, so an error raised in the server comes back as the same class in Python.
Outside the server the tree is imported as `easeml_db.errors`.
"""

# The names are the words that users meet in SQL, so they carry no suffix "Error".

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class EasemlError(Exception):
    """The root: a one-line message, optionally what lies behind it (detail) and what to do (hint)."""

    sqlstate: ClassVar[str] = "ML000"

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        return " ".join(self.message.split())


class InvalidArgument(EasemlError):
    """An argument is wrong; nothing was written."""

    sqlstate = "ML001"


class InvalidData(EasemlError):
    """The dataset holds something that cannot be packed or trained on."""

    sqlstate = "ML002"


class NotFound(EasemlError):
    """No such thing, or it belongs to another tenant (deliberately not distinguished)."""

    sqlstate = "ML003"


class NotAllowed(EasemlError):
    """The caller lacks the right, or the status of the thing does not allow it."""

    sqlstate = "ML004"


class CorruptCheckpoint(EasemlError):
    """Stored bytes are not the state they claim to be."""

    sqlstate = "ML005"


class StaleLease(EasemlError):
    """The lease number is not the current one: another coordinator took over."""

    sqlstate = "ML006"


class TrialFailed(EasemlError):
    """Training this trial failed for a reason of its own (a NaN loss, out of memory)."""

    sqlstate = "ML007"


class VersionMismatch(EasemlError):
    """Package, server and schema do not have the same version."""

    sqlstate = "ML008"


class ShapeMismatch(EasemlError):
    """Inputs or targets have another shape than the dataset declares."""

    sqlstate = "ML009"


class NotReady(EasemlError):
    """What was asked for does not exist yet, and will once training goes on."""

    sqlstate = "ML010"


class SlotLost(EasemlError):
    """A slot's session broke; the unit it ran can be run again elsewhere."""

    sqlstate = "ML011"


class ServerUnavailable(EasemlError):
    """The server cannot be reached, or refuses sessions."""

    sqlstate = "ML012"


class StandbyOnly(EasemlError):
    """Another coordinator holds the lease of this database."""

    sqlstate = "ML013"


class OutOfSpace(EasemlError):
    """A disk of the server is full; what was not written can be written later."""

    sqlstate = "ML014"


class QuotaExceeded(EasemlError):
    """The tenant has reached a limit that an administrator set; nothing was written."""

    sqlstate = "ML015"


class RowsHeld(EasemlError):
    """An open transaction holds the rows; nothing was written, and what was to be can be later."""

    sqlstate = "ML016"


class ServerCrashed(EasemlError):
    """The server process that ran the unit was killed, and the server restarted."""

    sqlstate = "ML017"


class ServerBusy(EasemlError):
    """The server lacks something that all sessions share, such as room in its lock table; nothing was written."""

    sqlstate = "ML018"


class Unexpected(EasemlError):
    """Code of ours met a value that it did not expect."""

    sqlstate = "ML019"


FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of Python that show a value that the code did not expect."""


def unexpected(error: BaseException) -> Unexpected:
    """Return such an error as one that users may meet: what it says, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})" for frame in frames)
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return Unexpected(
        f"easeml met a value that it does not expect: {said}",
        detail=f"in {places}",
        hint="Call the functions of the guide, not internal ones. If you did, this is a fault of easeml: report it.",
    )


ALL_ERRORS: tuple[type[EasemlError], ...] = (EasemlError, *EasemlError.__subclasses__())

BY_SQLSTATE: dict[str, type[EasemlError]] = {error.sqlstate: error for error in ALL_ERRORS}


def from_sqlstate(sqlstate: str, message: str, detail: str | None = None, hint: str | None = None) -> EasemlError:
    """Return (not raise) the error for a code; an unknown code gives the root."""
    return BY_SQLSTATE.get(sqlstate, EasemlError)(message, detail=detail, hint=hint)


def close_matches_hint(given: str, names: Iterable[str]) -> str:
    """Return a hint that lists the names nearest to the given one, or all of them when none is near."""
    ordered = sorted(names)
    if near := get_close_matches(given, ordered, n=3):
        return "Did you mean " + " or ".join(repr(name) for name in near) + "?"
    return "Known: " + ", ".join(ordered) + "."
