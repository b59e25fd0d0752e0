"""Every error this project raises on purpose, for code outside the server.

The tree itself is `easeml_plpy.server.errors`: a node of the database has that package and not this one.
"""

from easeml_plpy.server.errors import (
    ALL_ERRORS,
    BY_SQLSTATE,
    CorruptCheckpoint,
    EasemlError,
    InvalidArgument,
    InvalidData,
    NotAllowed,
    NotFound,
    NotReady,
    OutOfSpace,
    QuotaExceeded,
    RowsHeld,
    ServerCrashed,
    ServerUnavailable,
    ShapeMismatch,
    SlotLost,
    StaleLease,
    StandbyOnly,
    TrialFailed,
    VersionMismatch,
    close_matches_hint,
    from_sqlstate,
)

__all__ = [
    "ALL_ERRORS",
    "BY_SQLSTATE",
    "CorruptCheckpoint",
    "EasemlError",
    "InvalidArgument",
    "InvalidData",
    "NotAllowed",
    "NotFound",
    "NotReady",
    "OutOfSpace",
    "QuotaExceeded",
    "RowsHeld",
    "ServerCrashed",
    "ServerUnavailable",
    "ShapeMismatch",
    "SlotLost",
    "StaleLease",
    "StandbyOnly",
    "TrialFailed",
    "VersionMismatch",
    "close_matches_hint",
    "from_sqlstate",
]
