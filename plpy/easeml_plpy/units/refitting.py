"""Members of an ensemble trained again, on training and validation rows.

Once members and weights are chosen, the validation rows are no longer needed for choices. So each member is trained
once more on all rows except test rows, for as many epochs as its best state had; small tables gain most from it. The
former states are kept, because only they can be measured on validation rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from easeml_plpy.architectures import complete
from easeml_plpy.row_forms.datasets import PartitionRows, dataset
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.session import Session
from easeml_plpy.trainers import architecture, trainer_for
from easeml_plpy.units.composition import Composition
from easeml_plpy.units.round_rows import round_rows
from easeml_plpy.units.units import TrialSpec

SPLITS = ("train", "validation")
MOST_BYTES = 256 << 20  # of the rows, which are there twice
SLOWER = 2.5  # than when it was measured, at most: there are more rows, and it may have been trained in a batch


class Learner(NamedTuple):
    """A member before it is trained again: what it trains, its weight, and its seconds of training so far."""

    spec: TrialSpec
    weight: float
    seconds: float


def with_time_for(session: Session, composition: Composition, learners: Mapping[int, Learner]) -> frozenset[int]:
    """Return the keys of the members that the run still has time to train, those of greatest weight first."""
    if not composition.is_refit_wanted:
        return frozenset()
    left = math.inf if composition.seconds_left is None else composition.seconds_left
    chosen = set()
    for key, learner in sorted(learners.items(), key=lambda item: (-item[1].weight, item[0])):
        # All rows are decoded once more, which takes about as long as packing them.
        seconds = composition.reading_seconds + learner.seconds * SLOWER
        if seconds <= left and sum(round_rows(session, learner.spec, split).nbytes for split in SPLITS) <= MOST_BYTES:
            chosen.add(key)
            left -= seconds
    return frozenset(chosen)


def refitted(session: Session, spec: TrialSpec, n_epochs: int, seed: int, device: str) -> bytes:
    """Return the state of a trial after a number of epochs over training and validation rows. Raises TrialFailed."""
    rows = _all_rows(session, spec)
    chosen = architecture(spec.architecture)
    trainer, config = trainer_for(chosen.trainer), complete(chosen, spec.config)
    n_steps_total = trainer.count_steps(config, [len(rows.targets)], spec.max_epochs)
    task = dataset(session, spec.dataset_id).task(spec.view)
    live = trainer.start(chosen, config, task, n_steps_total=n_steps_total, seed=seed, device=device)
    for epoch in range(n_epochs):
        live.train(rows.inputs, rows.targets, seed=(seed + epoch) % 2**63, pause=SessionPause(session))
    return live.dump()


def _all_rows(session: Session, spec: TrialSpec) -> PartitionRows:
    parts = [round_rows(session, spec, split) for split in SPLITS]
    return PartitionRows(
        torch.cat([part.inputs for part in parts]),
        torch.cat([part.targets for part in parts]),
        np.concatenate([part.raw_targets for part in parts]),
    )
