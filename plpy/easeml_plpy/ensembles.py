"""How an ensemble is made: its run's best trials answer for all validation rows, and greedy selection weighs them.

A trial that was made names its members and their weights in its config, so it can be made again to the same bytes as
long as their best states are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .architectures import architecture, complete
from .cancellation import SessionPause
from .datasets import Dataset, dataset
from .errors import NotReady
from .folds import answers_for
from .greedy_ensemble import select
from .metrics import METRICS, Score, measure, score_of, values
from .refitting import Learner, refitted, with_time_for
from .round_rows import round_rows
from .session import Command, Session, Statement
from .states import read_state
from .trainers import LiveTrial, resume_trial
from .trainers.contract import Blueprint
from .trainers.ensemble import EnsembleTrial, Member
from .units import TrialSpec
from .value_types import Array
from .views.combined import parts_of

MOST_CANDIDATES = 12
MOST_STATE_BYTES = 64 << 20


class _Candidate(NamedTuple):
    trial_id: int
    trial_number: int
    architecture: str
    config: str
    checkpoint_id: int
    metric: str
    n_epochs: int
    training_seconds: float


class _Choice(NamedTuple):
    """What a config says of a member: its weight, and the epochs that it is trained again, 0 for not at all."""

    weight: float
    n_epochs: int


# The best of each architecture first, then the seconds: members that differ help most.
CANDIDATES = Statement(
    """
SELECT c.trial_id, c.trial_number, c.architecture, c.config, c.best_checkpoint_id AS checkpoint_id, c.metric,
    c.best_epoch AS n_epochs, (SELECT coalesce(sum(u.training_seconds), 0) FROM easeml.training_units u
        WHERE u.trial_id = c.trial_id AND u.epoch <= c.best_epoch) AS training_seconds FROM (
    SELECT t.*, r.metric, row_number() OVER (PARTITION BY t.architecture ORDER BY CASE WHEN r.is_higher_better
        THEN -t.best_metric_value ELSE t.best_metric_value END, t.best_loss, t.trial_number) AS place
    FROM easeml.trials e JOIN easeml.trials t USING (run_id) JOIN easeml.runs r USING (run_id)
        JOIN easeml.checkpoints s ON s.checkpoint_id = t.best_checkpoint_id
    WHERE e.trial_id = $1 AND t.trial_id <> $1 AND t.best_metric_value IS NOT NULL AND s.n_bytes <= $2) c
ORDER BY c.place, c.trial_number LIMIT $3
""",
    ("int8", "int8", "int4"),
    _Candidate,
)
TELL = Command("UPDATE easeml.trials SET config = $2 WHERE trial_id = $1", ("int8", "jsonb"))


def composed_trial(session: Session, trial_id: int, spec: TrialSpec, seed: int, device: str) -> EnsembleTrial:
    """Return the ensemble of a trial: of the members that its config names, else of those that are chosen now.

    Raises NotReady where the run has nothing to make one of, CorruptCheckpoint.
    """
    data = dataset(session, spec.dataset_id)
    starts = {part.view.name: part.start for part in parts_of(data.encoder)}
    rows = session.rows(CANDIDATES, trial_id, MOST_STATE_BYTES, MOST_CANDIDATES)
    candidates = [row for row in rows if _view(data, row.architecture) in starts]
    if not candidates:
        raise NotReady(f"trial {trial_id}: the run has no trial that an ensemble could be made of")
    told = _told_choices(spec.config)
    if told is None:
        told = _choices(session, trial_id, spec, candidates, device)
        session.run(TELL, trial_id, json.dumps({"members": [_telling(*each) for each in told.items()]}))
        session.commit()
    chosen = architecture(spec.architecture)
    blueprint = Blueprint(chosen, complete(chosen, spec.config), data.task(chosen.view), device)
    members = []
    for candidate in candidates:
        if candidate.trial_number in told:
            weight, n_epochs = told[candidate.trial_number]
            member = _member(session, data, starts, candidate, weight)
            own = _spec_of(candidate, spec)
            again = refitted(session, own, n_epochs, seed + candidate.trial_number, device) if n_epochs else None
            members.append(replace(member, refit=again))
    return EnsembleTrial(blueprint, members)


def _view(data: Dataset, name: str) -> str:
    return data.view(architecture(name).view).name


def _telling(number: int, choice: _Choice) -> dict[str, Any]:
    refit = {"refit_epochs": choice.n_epochs} if choice.n_epochs else {}
    return {"trial": number, "weight": choice.weight} | refit


def _told_choices(config: Mapping[str, Any]) -> dict[int, _Choice] | None:
    """Return what a config says of its members by trial number, None where nothing was chosen yet."""
    if "members" not in config:
        return None
    return {each["trial"]: _Choice(each["weight"], each.get("refit_epochs", 0)) for each in config["members"]}


def _choices(
    session: Session, trial_id: int, spec: TrialSpec, candidates: Sequence[_Candidate], device: str
) -> dict[int, _Choice]:
    """Choose the members, and those of them that there is time to train again. Committees have seen all rows."""
    weights = _chosen_weights(session, spec, candidates, device)
    by_number = {each.trial_number: each for each in candidates}
    learners = {
        number: Learner(_spec_of(by_number[number], spec), weight, by_number[number].training_seconds)
        for number, weight in weights.items()
        if not dataset(session, spec.dataset_id).encoder.n_folds
    }
    again = with_time_for(session, trial_id, learners)
    return {
        number: _Choice(weight, by_number[number].n_epochs if number in again else 0)
        for number, weight in weights.items()
    }


def _spec_of(candidate: _Candidate, spec: TrialSpec) -> TrialSpec:
    """Return what a candidate trains, in the run of the ensemble."""
    return spec._replace(architecture=candidate.architecture, config=json.loads(candidate.config))


def _chosen_weights(
    session: Session, spec: TrialSpec, candidates: Sequence[_Candidate], device: str
) -> dict[int, float]:
    """Return weights by trial number: what greedy selection makes of the answers for all validation rows."""
    data, outputs = dataset(session, spec.dataset_id), []
    for candidate in candidates:
        rows = round_rows(session, _spec_of(candidate, spec), "validation")
        live = _restored(session, data, candidate, device)
        session.commit()
        outputs.append(answers_for(live, rows, SessionPause(session)).astype(np.float64))
    metric, targets, pause = METRICS[candidates[0].metric], rows.raw_targets, SessionPause(session)

    def score(mean: Array) -> Score:
        pause()
        return score_of(metric, values(data.task(), measure(data.task(), data.raw(mean.astype(np.float32)), targets)))

    return {candidates[k].trial_number: weight for k, weight in select(outputs, score).items()}


def _restored(session: Session, data: Dataset, candidate: _Candidate, device: str) -> LiveTrial:
    chosen = architecture(candidate.architecture)
    state = read_state(session, candidate.trial_id, candidate.checkpoint_id)
    config = json.loads(candidate.config)
    return resume_trial(chosen, config, data.task(chosen.view), state, device=device)


def _member(session: Session, data: Dataset, starts: Mapping[str, int], candidate: _Candidate, weight: float) -> Member:
    state = read_state(session, candidate.trial_id, candidate.checkpoint_id)
    name = candidate.architecture
    task, start = data.task(architecture(name).view), starts[_view(data, name)]
    return Member(name, json.loads(candidate.config), task, weight, start, state)
