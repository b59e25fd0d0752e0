"""Prediction on a segment of a Greenplum cluster, within a query of its coordinator (cluster_prediction.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from easeml_plpy.nodes.greenplum.fed_session import ENCODER, STATE_CHUNK, Fed, FedSession, KnownState, Piece, shed
from easeml_plpy.nodes.node_prediction import job_limit_bytes, to_answer, trial_on_node
from easeml_plpy.prediction.prediction import answers, packed_fields
from easeml_plpy.prediction.serving import Served
from easeml_plpy.server.devices import bind
from easeml_plpy.server.failures import told_by
from easeml_plpy.server.plpython import GlobalData, PlPy
from easeml_plpy.server.session import Kept

MARK = "easeml has refused: "
"""Stands before an error as JSON: other words of an error come from the server."""
Predicted = tuple[str | None, str | None, bytes, str | None]


class _Answering:
    """The trial that this process answers with, and for which job."""

    job_id: int | None = None
    served: Served | None = None


class RefusedError(Exception):
    """An error that users cause, on its way to the coordinator of the cluster."""


ANSWERING: Kept[_Answering] = Kept(_Answering)


def knows_trial(plpy: PlPy, GD: GlobalData, job_id: int) -> bool:
    """Return whether this process has been brought the trial of a job."""
    session = GD.get(f"{FedSession.schema}_session")
    return isinstance(session, FedSession) and session.kept(ANSWERING).job_id == job_id


def predict_on_segment(
    plpy: PlPy,
    GD: GlobalData,
    told: str,
    pieces: Sequence[bytes] | None,
    n_rows: int,
    payload: bytes | None,
    texts: str | None,
) -> Predicted:
    """Answer for packed rows as easeml.predict_packed does; `pieces` are the encoder and the chunks of the state, None
    if `knows_trial`. Raises an error of class ML as RefusedError.
    """
    try:
        return _answers(FedSession.of(plpy, GD), json.loads(told), pieces, (n_rows, payload, texts))
    except Exception as error:
        failure = told_by(error)
        if failure is None:
            raise
        raise RefusedError(MARK + json.dumps(failure)) from error


def _answers(
    session: FedSession,
    order: Mapping[str, Any],
    pieces: Sequence[bytes] | None,
    packed: tuple[int, bytes | None, str | None],
) -> Predicted:
    answering = session.kept(ANSWERING)
    if pieces is not None:
        answering.served, answering.job_id = _brought(session, order, pieces), order["job_id"]
    assert answering.served is not None
    fields = packed_fields(answering.served.data.encoder.inputs, *packed, is_by_column=True)
    labels, separator, values, every, _ = answers(
        answering.served, fields, packed[0], has_probabilities=order["probabilities"]
    )
    return labels, separator, values, every


def _brought(session: FedSession, order: Mapping[str, Any], pieces: Sequence[bytes]) -> Served:
    """Return the trial of a job. Raises CorruptCheckpoint."""
    session.fed = fed_with_trial(order, pieces)
    try:
        bind("cpu", 1, job_limit_bytes(session, order))
        return trial_on_node(session, order, to_answer)
    finally:
        shed(session)


def fed_with_trial(order: Mapping[str, Any], pieces: Sequence[bytes]) -> Fed:
    """Return what the trial of a job is read from: the encoder, then the chunks of its state."""
    dataset_id, number = order["dataset_id"], order["checkpoint_id"]
    encoder, *chunks = pieces
    grouped = {
        (ENCODER, dataset_id): [Piece(ENCODER, dataset_id, 0, None, encoder, None)],
        (STATE_CHUNK, number): [Piece(STATE_CHUNK, number, k, None, chunk, None) for k, chunk in enumerate(chunks)],
    }
    return Fed(grouped, {number: KnownState(**order["state"])}, Fed.registered_in(order))
