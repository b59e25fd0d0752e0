"""Making an ensemble: the best trials of its run predict all validation rows, and greedy selection weights them.

The config of the new trial names its members and their weights, so it can be made again to the same bytes as long as
their best states are kept.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from easeml_plpy.architectures import complete
from easeml_plpy.metrics import METRICS
from easeml_plpy.metrics.metrics import Score, measure, score_of, values
from easeml_plpy.row_forms.combined import parts_of
from easeml_plpy.row_forms.datasets import Dataset, dataset
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.errors import NotReady
from easeml_plpy.server.session import Session
from easeml_plpy.server.value_types import Array
from easeml_plpy.states.states import read_state
from easeml_plpy.trainers import architecture, resume_trial, resumed_member
from easeml_plpy.trainers.contract import Blueprint, LiveTrial
from easeml_plpy.trainers.ensemble import EnsembleTrial, Member
from easeml_plpy.units.composition import Candidate, Composition
from easeml_plpy.units.folds import answers_for
from easeml_plpy.units.greedy_ensemble import select
from easeml_plpy.units.refitting import Learner, refitted, with_time_for
from easeml_plpy.units.round_rows import round_rows
from easeml_plpy.units.units import TrialSpec


class _Choice(NamedTuple):
    """A member in a config: its weight, and the number of epochs for which it is trained again, 0 for not at all."""

    weight: float
    n_epochs: int


def composed_trial(session: Session, pool: Composition, spec: TrialSpec, seed: int, device: str) -> EnsembleTrial:
    """Return the ensemble of a trial: of the members that its config names, else of those that are chosen now.

    Raises NotReady if the run has no trials for it, CorruptCheckpoint.
    """
    data = dataset(session, spec.dataset_id)
    starts = {part.view.name: part.start for part in parts_of(data.encoder)}
    usable = [candidate for candidate in pool.candidates if _view(data, candidate.architecture) in starts]
    pool = pool._replace(candidates=tuple(usable))
    if not usable:
        raise NotReady("the run has no trial that an ensemble could be made of")
    named_choices = _choices_in(spec.config)
    choices = named_choices or _choices(session, pool, spec, device)
    chosen = architecture(spec.architecture)
    blueprint = Blueprint(chosen, complete(chosen, spec.config), data.task(chosen.view), device)
    members = []
    for candidate in pool.candidates:
        if (number := candidate.trial_number) in choices:
            weight, n_epochs = choices[number]
            member = _member(session, data, starts, candidate, weight)
            learned = _spec_of(candidate, spec)
            again = refitted(session, learned, n_epochs, seed + number, device) if n_epochs else None
            members.append(replace(member, refit=again))
    chosen_members = None if named_choices else [_as_entry(*choice) for choice in choices.items()]
    return EnsembleTrial(blueprint, members, resumed_member, chosen=chosen_members)


def _view(data: Dataset, name: str) -> str:
    return data.view(architecture(name).view).name


def _as_entry(number: int, choice: _Choice) -> dict[str, Any]:
    return {"trial": number, "weight": choice.weight} | ({"refit_epochs": choice.n_epochs} if choice.n_epochs else {})


def _choices_in(config: Mapping[str, Any]) -> dict[int, _Choice] | None:
    """Return the members in a config by trial number; None if none were chosen yet."""
    if "members" not in config:
        return None
    return {item["trial"]: _Choice(float(item["weight"]), item.get("refit_epochs", 0)) for item in config["members"]}


def _choices(session: Session, composition: Composition, spec: TrialSpec, device: str) -> dict[int, _Choice]:
    """Choose the members, and those of them that there is time to train again. Committees have seen all rows."""
    began = time.monotonic()
    weights = _chosen_weights(session, composition, spec, device)
    by_number = {candidate.trial_number: candidate for candidate in composition.candidates}
    learners = {
        number: Learner(_spec_of(by_number[number], spec), weight, by_number[number].training_seconds)
        for number, weight in weights.items()
        if not dataset(session, spec.dataset_id).encoder.n_folds
    }
    again = with_time_for(session, composition.later(time.monotonic() - began), learners)
    return {
        number: _Choice(weight, by_number[number].n_epochs if number in again else 0)
        for number, weight in weights.items()
    }


def _spec_of(candidate: Candidate, spec: TrialSpec) -> TrialSpec:
    """Return what a candidate trains, in the run of the ensemble."""
    return spec._replace(architecture=candidate.architecture, config=candidate.config)


def _chosen_weights(session: Session, composition: Composition, spec: TrialSpec, device: str) -> dict[int, float]:
    """Return weights by trial number: what greedy selection makes of the answers for all validation rows."""
    data, outputs = dataset(session, spec.dataset_id), []
    for candidate in composition.candidates:
        rows = round_rows(session, _spec_of(candidate, spec), "validation")
        live = _restored(session, data, candidate, device)
        session.commit()
        outputs.append(answers_for(live, rows, SessionPause(session)).astype(np.float64))
    metric, targets, pause = METRICS[composition.metric], rows.raw_targets, SessionPause(session)

    def score(mean: Array) -> Score:
        pause()
        return score_of(metric, values(data.task(), measure(data.task(), data.raw(mean.astype(np.float32)), targets)))

    return {composition.candidates[k].trial_number: weight for k, weight in select(outputs, score).items()}


def _restored(session: Session, data: Dataset, candidate: Candidate, device: str) -> LiveTrial:
    chosen = architecture(candidate.architecture)
    state = read_state(session, candidate.trial_id, candidate.checkpoint_id)
    return resume_trial(chosen, candidate.config, data.task(chosen.view), state, device=device)


def _member(session: Session, data: Dataset, starts: Mapping[str, int], candidate: Candidate, weight: float) -> Member:
    state = read_state(session, candidate.trial_id, candidate.checkpoint_id)
    name = candidate.architecture
    task, start = data.task(architecture(name).view), starts[_view(data, name)]
    return Member(name, candidate.config, task, weight, start, state)
