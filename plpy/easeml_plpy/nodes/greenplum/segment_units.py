"""Units on a segment of Greenplum, beside its rows: inputs come in the call, and results leave as rows."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence

from easeml_plpy import __version__
from easeml_plpy.nodes.greenplum.fed_session import Fed, FedSession, Piece, StateChunk, shed
from easeml_plpy.nodes.node_facts import PACKAGES, version_of
from easeml_plpy.nodes.node_units import evaluate, evaluate_round, pilot, train, train_round
from easeml_plpy.server.devices import devices
from easeml_plpy.server.failures import told_by
from easeml_plpy.server.plpython import GlobalData, PlPy
from easeml_plpy.server.session import Session
from easeml_plpy.units.warming import import_all

WORK: dict[str, Callable[[Session, str, str], str]] = {
    "train_unit": train,
    "evaluate_unit": evaluate,
    "pilot_unit": pilot,
    "train_round": train_round,
    "evaluate_round": evaluate_round,
}
Worked = tuple[int | str | bytes | None, ...]
"""checkpoint_id, chunk_number, trial_id, lease_number, n_bytes, sha256, bytes; the report, in the first row."""


def work_on_segment(
    plpy: PlPy,
    GD: GlobalData,
    work: str,
    unit: str,
    context: str,
    kinds: Sequence[str],
    owners: Sequence[int],
    numbers: Sequence[int],
    n_rows: Sequence[int | None],
    firsts: Sequence[bytes],
    seconds: Sequence[bytes | None],
) -> list[Worked]:
    """Carry out a unit with the given pieces; return the chunks of its new state, and what the control server records.

    `work` is a key of WORK, `unit` the order, `context` what easeml.open_node_unit returned. The arrays are parallel: a
    piece has an element in each. The first row has the report as JSON; for a unit that stores nothing, it has nothing
    else. An error of class ML is reported as {"failure": {"sqlstate", "message", "detail", "hint"}}; a cancel passes.
    """
    pieces = map(Piece, kinds, owners, numbers, n_rows, firsts, seconds)
    session = None
    try:
        session = FedSession.fed_with(plpy, GD, Fed.of(pieces, context))
        report = WORK[work](session, unit, context)
        return worked(session.fed.written, report)
    except Exception as error:
        failure = told_by(error)
        if failure is None:
            raise
        return worked([], json.dumps({"failure": failure}))
    finally:
        if session is not None:
            shed(session)


def worked(written: Sequence[StateChunk], report: str) -> list[Worked]:
    """Return the rows of a unit."""
    if not written:
        return [(*([None] * len(StateChunk._fields)), report)]
    return [(*chunk, report if k == 0 else None) for k, chunk in enumerate(written)]


def facts_of_segment(plpy: PlPy, GD: GlobalData) -> str:
    """Return the facts of a segment's Python, as JSON, once it has imported what units need."""
    versions = {name: version_of(name) for name in PACKAGES}
    if versions["torch"]["version"] is not None:
        import_all()
    facts = {"python": platform.python_version(), "package": __version__, "packages": versions}
    return json.dumps(facts | {"devices": devices() if versions["torch"]["version"] else []})
