"""Trials as files: read out with the rights of the caller, and stored with the owner's once they have been checked.

`import_model` runs as its caller and checks the file. It leaves the result in `GD`, which only PL/Python can write, for
`store_import`, which has the owner's rights. So `store_import` takes nothing from a client, and refuses if nothing has
been checked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from easeml_plpy import __version__
from easeml_plpy.files.model_checks import restored
from easeml_plpy.files.model_file import FORMAT, MOST_BYTES, ModelDocument, ModelFile
from easeml_plpy.metrics import METRICS
from easeml_plpy.server.chunks import INLINE_BYTES, state_chunks
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidArgument, NotAllowed, NotFound, from_sqlstate
from easeml_plpy.server.session import Kept, Session, Statement, only_column
from easeml_plpy.states.checkpoint import digest
from easeml_plpy.states.states import STORE_CHUNK, read_state
from easeml_plpy.trainers import architecture


class _Trial(NamedTuple):
    dataset_name: str
    architecture: str
    config: str
    encoder: str
    explanations: str
    metric: str
    is_higher_better: bool
    best_epoch: int
    metrics: str | None
    checkpoint_id: int
    n_bytes: int


TRIAL = Statement(
    """
SELECT d.dataset_name, t.architecture, t.config, d.encoder, d.explanations, r.metric, r.is_higher_better, t.best_epoch,
    (SELECT jsonb_object_agg(e.split, to_jsonb(e)
            - '{trial_id,run_id,tenant,epoch,split,measured_at,training_loss,training_seconds}'::text[]
            || (SELECT jsonb_object_agg(m, v.value) FROM unnest($3) m LEFT JOIN easeml.metric_values v
                ON v.trial_id = e.trial_id AND v.epoch = e.epoch AND v.split = e.split AND v.metric = m))
        FROM easeml.epoch_metrics e WHERE e.trial_id = t.trial_id AND e.epoch = t.best_epoch) AS metrics,
    c.checkpoint_id, c.n_bytes
FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d USING (dataset_id)
    JOIN easeml.checkpoints c ON c.checkpoint_id = t.best_checkpoint_id
WHERE t.trial_id = $1 AND d.dataset_name = $2
""",
    ("int8", "text", "text[]"),
    _Trial,
)


@entry_point(returns_failure=True)
def export_file(session: Session, dataset: str, trial_id: int) -> bytes:
    """Return the file of a trial of a dataset, as far as the caller may see both."""
    trials = session.rows(TRIAL, trial_id, dataset, list(METRICS))
    if not trials:
        raise NotFound(
            f"dataset {dataset!r} has no measured trial {trial_id} of yours",
            hint="SELECT trial_id, test_metric FROM easeml.leaderboard lists them.",
        )
    trial = trials[0]
    if architecture(trial.architecture).entry_point is not None:
        raise NotAllowed(
            f"{trial.architecture} is a registered architecture, whose code no file could hold",
            hint="Use pg_dump, and install its package on the other server, too.",
        )
    if trial.n_bytes > MOST_BYTES:
        raise NotAllowed(f"expected a state of at most {MOST_BYTES} bytes, got {trial.n_bytes}", hint="Use pg_dump.")
    document = _document(trial)
    if "shape" in document.encoder["target"]:
        raise NotAllowed("tensors come out of this trial, and no file can say that", hint="Use pg_dump.")
    if document.encoder["inputs"][0]["kind"] == "objects":
        raise NotAllowed("series or trees go into this trial, and no file can say that", hint="Use pg_dump.")
    return ModelFile(document, read_state(session, trial_id, trial.checkpoint_id)).to_bytes()


def _document(trial: _Trial) -> ModelDocument:
    return ModelDocument(
        format=FORMAT,
        made_by=f"easeml {__version__}",
        dataset=trial.dataset_name,
        architecture=trial.architecture,
        config=json.loads(trial.config),
        encoder=json.loads(trial.encoder),
        explanations=json.loads(trial.explanations),
        metric=trial.metric,
        is_higher_better=trial.is_higher_better,
        best_epoch=trial.best_epoch,
        metrics=json.loads(trial.metrics or "{}"),
    )


@dataclass
class _Crossing:
    """The data passed to the owner's rights: the importing role, the name, and the checked file."""

    ready: tuple[str, str, ModelFile] | None = None


class _Stored(NamedTuple):
    trial_id: int | None
    failure: str | None


class _Begun(NamedTuple):
    trial_id: int
    checkpoint_id: int


CROSSING: Kept[_Crossing] = Kept(_Crossing)
ASKER: Statement[str] = Statement("SELECT current_user AS asker", (), only_column)
STORE = Statement("SELECT trial_id, failure FROM easeml.store_import()", (), _Stored)
BEGIN = Statement(
    "SELECT trial_id, checkpoint_id FROM easeml.begin_import($1, $2, $3, $4, $5, $6)",
    ("name", "text", "jsonb", "int8", "text", "bytea"),
    _Begun,
)
FINISH: Statement[None] = Statement("SELECT easeml.finish_import($1, $2) AS nothing", ("name", "int8"), only_column)


@entry_point(returns_failure=True)
def import_model(session: Session, contents: bytes | None, name: str | None) -> int:
    """Check a file and have it stored as a dataset of the caller with one trial; return the trial's number."""
    if contents is None:
        raise InvalidArgument("contents: expected the bytes of a file, got NULL", hint="easeml import FILE reads one.")
    file = ModelFile.from_bytes(contents)
    restored(file)
    crossing = session.kept(CROSSING)
    crossing.ready = (session.row(ASKER), file.document.dataset if name is None else name, file)
    try:
        stored = session.row(STORE)
    finally:
        crossing.ready = None
    if stored.trial_id is None:
        failure: dict[str, Any] = json.loads(stored.failure or "{}")
        raise from_sqlstate(failure["sqlstate"], failure["message"], failure["detail"], failure["hint"])
    return stored.trial_id


@entry_point(returns_failure=True)
def store_import(session: Session) -> int:
    """Store the file that `import_model` has checked, for the role that called it; return the trial."""
    crossing = session.kept(CROSSING)
    ready, crossing.ready = crossing.ready, None
    if ready is None:
        raise NotAllowed("easeml.store_import cannot be called directly", hint="Call easeml.import_trial.")
    asker, name, file = ready
    state, facts = file.state, json.dumps(_facts(file))
    inline = state if len(state) <= INLINE_BYTES else None
    begun = session.row(BEGIN, asker, name, facts, len(state), digest(state), inline)
    if inline is None:
        for number, chunk in state_chunks(state):
            session.run(STORE_CHUNK, begun.checkpoint_id, number, chunk)
    session.row(FINISH, asker, begun.trial_id)
    return begun.trial_id


def _facts(file: ModelFile) -> dict[str, Any]:
    """Return what the rows of an imported trial are made of."""
    document, encoder = file.document, file.document.encoder
    columns = dict.fromkeys(entry.get("within") or entry["column"] for entry in encoder["inputs"])
    target = encoder["target"]
    return {
        "architecture": document.architecture,
        "config": document.config,
        "encoder": encoder,
        "explanations": document.explanations,
        "input_columns": list(columns),
        "target_column": target["column"],
        "task": target["task"],
        "input_shape": encoder["input_shape"],
        "n_outputs": len(target["labels"]) if target["task"] == "classification" else 1,
        "metric": document.metric,
        "is_higher_better": document.is_higher_better,
        "best_epoch": document.best_epoch,
        "metrics": document.metrics,
        "origin": f"{document.dataset} of {document.made_by}",
    }
