"""The trial that is examined, and its answers for the rows of a split: computed once, kept by the session.

The caller must be allowed to see these rows: `examined_trial` checks that under row-level security, in each statement,
before anything that the session keeps is used. Blocks come one by one, so memory holds one block and the answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from easeml_plpy.columns.encoder import TensorTarget
from easeml_plpy.columns.encoding import fields_from_bytes, targets_from_bytes
from easeml_plpy.columns.target_statistics import folds_of
from easeml_plpy.prediction.prediction import outputs_of
from easeml_plpy.prediction.serving import MEMORY, Served, within_memory
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.cache import Bounded
from easeml_plpy.server.chunks import ANSWER_ROWS
from easeml_plpy.server.devices import bind
from easeml_plpy.server.errors import InvalidData, NotAllowed, NotReady
from easeml_plpy.server.session import Kept, Session, Statement, only_column
from easeml_plpy.server.value_types import Array
from easeml_plpy.states.states import read_state
from easeml_plpy.trainers import architecture
from easeml_plpy.units.folds import held_out_outputs
from easeml_plpy.units.live_trials import resumed_trial
from easeml_plpy.units.outputs import measurable_on

ANSWERS_BYTES = 256 << 20
N_TRIALS = 2


class Examined(NamedTuple):
    """A trial as the tables describe it; the caller may see the rows of its dataset."""

    dataset_name: str
    dataset_id: int
    n_partitions: int
    trial_id: int
    checkpoint_id: int
    architecture: str
    config: str
    metric: str
    is_elsewhere: bool


class Block(NamedTuple):
    """Rows of a block by field, with their targets, the partition, and how many rows of it came before."""

    fields: list[Array]
    targets: Array
    partition_number: int
    n_before: int


class _Answered(NamedTuple):
    n_rows: int
    outputs: bytes
    targets: bytes


class _Keys(NamedTuple):
    n_rows: int
    keys: list[str] | None


@dataclass(frozen=True)
class Answers:
    """A trial's answers for rows: `outputs` (n, n_outputs) in the target's units, and the `targets` (n,)."""

    outputs: Array
    targets: Array

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return int(self.outputs.nbytes + self.targets.nbytes)


EXAMINED = Statement(
    "SELECT dataset_name, dataset_id, n_partitions, examined_trial_id AS trial_id, checkpoint_id, architecture, config,"
    " metric, is_elsewhere FROM easeml.examined_trial($1, $2)",
    ("text", "int8"),
    Examined,
)
ANSWERED = Statement(
    "SELECT n_rows, outputs, targets FROM easeml.node_answers"
    " WHERE trial_id = $1 AND checkpoint_id = $2 AND split = $3 ORDER BY partition_number, block_number",
    ("int8", "int8", "text"),
    _Answered,
)
IS_ANSWERED: Statement[bool] = Statement(
    "SELECT EXISTS (SELECT FROM easeml.node_answers WHERE trial_id = $1 AND checkpoint_id = $2) AS found",
    ("int8", "int8"),
    only_column,
)
KEYS = Statement(
    "SELECT n_rows, coalesce(row_keys, row_hashes::text[]) AS keys FROM easeml.version_blocks"
    " WHERE dataset_id = $1 AND split = $2 AND partition_number = $3 ORDER BY block_number",
    ("int8", "text", "int4"),
    _Keys,
)
TRIALS: Kept[Bounded[Served]] = Kept(lambda: Bounded(N_TRIALS))
ANSWERS: Kept[Bounded[Answers]] = Kept(lambda: Bounded(ANSWERS_BYTES, lambda answers: answers.nbytes))


def examined_trial(session: Session, dataset: str | None, trial_id: int | None) -> Examined:
    """Return the trial of that number, by default the one that answers. Raises the errors of easeml.examined_trial."""
    return session.row(EXAMINED, dataset, trial_id)


def require_answers(session: Session, examined: Examined) -> None:
    """Raise NotReady if the rows are on nodes that have not answered them with the present state."""
    if examined.is_elsewhere and not session.row(IS_ANSWERED, examined.trial_id, examined.checkpoint_id):
        name, trial_id = examined.dataset_name, examined.trial_id
        raise NotReady(
            f"the rows of dataset {name!r} are on its nodes, and trial {trial_id} has not answered them yet",
            hint=f"Have it do so first: CALL easeml.evaluate_on_nodes('{name}', {trial_id}).",
        )


def restored(session: Session, examined: Examined) -> Served:
    """Return the trial ready to answer, with the caller's rights."""
    bind("cpu", 1, session.kept(MEMORY))
    return session.kept(TRIALS).get(examined.checkpoint_id, lambda: _restored(session, examined))


def _restored(session: Session, examined: Examined) -> Served:
    data = datasets.dataset(session, examined.dataset_id)
    if isinstance(data.encoder.target, TensorTarget):
        raise NotAllowed(
            f"tensors come out of dataset {examined.dataset_name!r}, and only classes and numbers can be examined",
            hint="easeml.trial_metrics and easeml.learning_curves have its metrics.",
        )
    view = architecture(examined.architecture).view
    with within_memory():
        state = read_state(session, examined.trial_id, examined.checkpoint_id)
        live = resumed_trial(examined.architecture, json.loads(examined.config), data.task(view), state)
    return Served(data, view, live, examined.trial_id, len(state))


def answers_for(session: Session, examined: Examined, split: str) -> Answers:
    """Return the answers for all rows of a split. Raises NotReady if it has none, InvalidData."""
    key = (examined.checkpoint_id, split)
    read = _answers_of_nodes if examined.is_elsewhere else _answers
    answers = session.kept(ANSWERS).get(key, lambda: _finite(read(session, examined, split), examined, split))
    if not len(answers.targets):
        raise NotReady(
            f"dataset {examined.dataset_name!r} has no {split} rows",
            hint="SELECT * FROM easeml.partition_status shows how many rows each split has.",
        )
    return answers


def _answers(session: Session, examined: Examined, split: str) -> Answers:
    served = restored(session, examined)
    served = replace(served, live=measurable_on(split, served.live))
    n_outputs = served.data.task(served.view).n_outputs
    outputs, targets = [np.zeros((0, n_outputs), np.float32)], [np.zeros(0, np.int32)]
    for block in blocks_of(session, examined, split):
        if served.data.encoder.n_folds and split == "validation":
            outputs.append(_held_out_outputs(served, block))
        else:
            outputs.append(paged_outputs(served, block.fields))
        targets.append(block.targets)
    with within_memory():
        return Answers(np.concatenate(outputs), np.concatenate(targets))


def _answers_of_nodes(session: Session, examined: Examined, split: str) -> Answers:
    """Return the answers that nodes have sent for their rows of a split."""
    data = datasets.dataset(session, examined.dataset_id)
    n_outputs = data.task().n_outputs
    outputs, targets = [np.zeros((0, n_outputs))], [np.zeros(0, np.int32)]
    for stored in session.each(ANSWERED, examined.trial_id, examined.checkpoint_id, split):
        outputs.append(np.frombuffer(stored.outputs, "<f8").reshape(stored.n_rows, n_outputs))
        targets.append(targets_from_bytes(data.encoder.target, stored.targets, stored.n_rows))
    with within_memory():
        return Answers(np.concatenate(outputs), np.concatenate(targets))


def _finite(answers: Answers, examined: Examined, split: str) -> Answers:
    n_wrong = int((~np.isfinite(answers.outputs)).any(axis=1).sum())
    if n_wrong:
        raise InvalidData(
            f"trial {examined.trial_id} answers {n_wrong} {split} rows with numbers that are not finite",
            hint="It diverged in training: examine another trial of easeml.leaderboard.",
        )
    return answers


def paged_outputs(served: Served, fields: Sequence[Array]) -> Array:
    """Return the outputs of rows given by field, some thousand at a time."""
    pages = range(0, len(fields[0]), ANSWER_ROWS)
    return np.concatenate([outputs_of(served, [part[i : i + ANSWER_ROWS] for part in fields]) for i in pages])


def _held_out_outputs(served: Served, block: Block) -> Array:
    """Return the outputs for a block of training rows, of the model that has not seen their fold."""
    n_rows = len(block.targets)
    inputs = torch.from_numpy(served.data.encode(served.view, block.fields, folds_of(block.n_before, n_rows)))
    with within_memory():
        return served.data.raw(held_out_outputs(served.live, inputs, np.full(n_rows, block.partition_number)))


def blocks_of(session: Session, examined: Examined, split: str) -> Iterator[Block]:
    """Yield the blocks of a split, partition by partition, with one in memory. Raises NotAllowed."""
    if examined.is_elsewhere:
        raise NotAllowed(
            f"this needs the rows of dataset {examined.dataset_name!r} on this server, and they are on its nodes",
            hint="easeml.evaluate and what asks only for answers does not.",
        )
    data = datasets.dataset(session, examined.dataset_id)
    for partition_number in range(examined.n_partitions):
        n_before = 0
        for stored in session.each(datasets.BLOCKS, examined.dataset_id, data.stored_split(split), partition_number):
            fields = fields_from_bytes(data.encoder, stored.inputs, stored.n_rows)
            targets = targets_from_bytes(data.encoder.target, stored.targets, stored.n_rows)
            yield Block(fields, targets, partition_number, n_before)
            n_before += stored.n_rows


def row_keys(session: Session, examined: Examined, split: str) -> list[str | None]:
    """Return the keys of the rows of a split, as easeml.dataset_rows has them, in the order of their answers."""
    if examined.is_elsewhere:
        return [None] * len(answers_for(session, examined, split).targets)
    all_keys: list[str | None] = []
    split = datasets.dataset(session, examined.dataset_id).stored_split(split)
    for partition_number in range(examined.n_partitions):
        for n_rows, keys in session.rows(KEYS, examined.dataset_id, split, partition_number):
            all_keys += keys or [None] * n_rows
    return all_keys


def sampled_rows(session: Session, examined: Examined, split: str, n_rows: int, seed: int) -> tuple[list[Array], Array]:
    """Return the fields and targets of rows of a split: all of them, or a number drawn with the seed."""
    counts = [len(block.targets) for block in blocks_of(session, examined, split)]
    total, rng = sum(counts), np.random.default_rng(seed)
    drawn = np.arange(total) if total <= n_rows else np.sort(rng.choice(total, n_rows, replace=False))
    starts = np.cumsum([0, *counts])
    fields: list[list[Array]] = []
    targets: list[Array] = []
    for block, first, last in zip(blocks_of(session, examined, split), starts, starts[1:], strict=False):
        chosen = drawn[(drawn >= first) & (drawn < last)] - first
        fields.append([part[chosen] for part in block.fields])
        targets.append(block.targets[chosen])
    return [np.concatenate(parts) for parts in zip(*fields, strict=True)], np.concatenate(targets)
