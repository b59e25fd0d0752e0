"""One stage for a procedure that declares none: the procedure is simulated several times on past learning curves.

A trial gets a curve of its architecture, drawn at random and moved up or down a little, so that no two trials are alike
where few curves are known (a smoothed bootstrap); beyond the curve's end it stays as it was. Trials in training do an
epoch each, then the procedure is asked, as on slots that are all alike. The work of each simulation is one of the
stage's alternatives, so times and costs have quantiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from easeml_db.decisions.planner.job import Load, Stage, StageKey
from easeml_db.decisions.procedures.contract import (
    ContinueTrial,
    Procedure,
    StartTrial,
    StopTrial,
    TrialDecision,
    TrialHistory,
)
from easeml_db.decisions.procedures.creation import arm_names, create_procedure
from easeml_db.decisions.search_space.specs import RESERVED
from easeml_db.errors import InvalidArgument, NotReady
from easeml_db.words.run import Search

FEWEST_PLAYS, MOST_PLAYS, PLAYED_TRIALS = 4, 32, 1200  # few trials are played more often: their number varies more
MAX_PLAYED_EPOCHS = 20_000
MAX_PLAYED_TRIALS = 200
TIE = 1e-9  # by which scores differ that are known as equal
Curves = Mapping[str, Sequence[Sequence[float]]]  # scores after each epoch, higher is better, by architecture


@dataclass(frozen=True)
class Past:
    """Known trials: learning curves and seconds of an epoch, by architecture."""

    curves: Curves
    epoch_seconds: Mapping[str, float]


def envelopes(search: Search, past: Past, *, seed: int = 0) -> tuple[Stage, ...]:
    """Return a stage for each arm, or one for all if the procedure runs over all at once. Raises NotReady if there are
    no curves, InvalidArgument if it trains too much to be simulated.
    """
    arms: list[str | None] = [None] if search.procedure == "race" else [*arm_names(search)]
    return tuple(stage for arm in arms for stage in envelope(search, past, arm, seed=seed))


def envelope(
    search: Search, past: Past, arm: str | None, history: Sequence[TrialHistory] = (), *, seed: int = 0
) -> tuple[Stage, ...]:
    """Return the rest of the stage of an arm (None: of all) after its history; nothing if none of it is left.

    Raises NotReady, InvalidArgument."""
    search, history, every = _sampled(search, arm, history)
    procedure = create_procedure(search, arm=arm)
    n_plays = min(MOST_PLAYS, max(FEWEST_PLAYS, PLAYED_TRIALS // max(1, procedure.n_trials())))
    plays = [_Play(procedure, past, history, np.random.default_rng([seed % 2**63, k])) for k in range(n_plays)]
    played = [(loads, play.turns) for play in plays if (loads := play.run())]
    if not played:
        return ()
    left = tuple(tuple(replace(load, n_trials=load.n_trials * every) for load in loads) for loads, _ in played)
    turns = tuple({n_trials * every: n for n_trials, n in counted.items()} for _, counted in played)
    return (Stage(left[0], f"{arm or 'all'}: {search.procedure}", False, left, StageKey(arm or ""), turns),)


def _sampled(
    search: Search, arm: str | None, history: Sequence[TrialHistory]
) -> tuple[Search, Sequence[TrialHistory], int]:
    """Return a search over every k-th trial if there are many, and k: each simulated trial stands for k. Only for ASHA,
    which examines all trials at every turn, and decides by shares of a rung.
    """
    if search.procedure != "asha":
        return search, history, 1
    n_trials = create_procedure(search, arm=arm).preview()[0].n_trials
    every = -(-n_trials // MAX_PLAYED_TRIALS)
    some = [replace(trial, trial_number=number) for number, trial in enumerate(history[::every], 1)]
    return replace(search, n_configs=-(-n_trials // every)), some, every


class _Play:
    """One run of a procedure on curves of the past."""

    def __init__(
        self, procedure: Procedure, past: Past, history: Sequence[TrialHistory], rng: np.random.Generator
    ) -> None:
        self._procedure, self._past, self._rng = procedure, past, rng
        self._trials = list(history)
        self._n_done = [len(trial.scores) for trial in history]
        self._curves = [self._curve(str(trial.config[RESERVED])) for trial in history]
        self._now = max((moment for trial in history for moment in trial.moments), default=0.0)
        self.turns: Counter[int] = Counter()  # in how many turns how many trials trained

    def run(self) -> tuple[Load, ...]:
        """Return how many trials trained how many epochs."""
        last = self._procedure.max_epochs
        n_epochs = 0
        while True:
            for decision in self._procedure.ask(self._trials):
                self._carry_out(decision)
            training = [k for k, trial in enumerate(self._trials) if trial.is_training(last)]
            if not training:
                return self._loads()
            n_epochs += len(training)
            self.turns[len(training)] += 1
            if n_epochs > MAX_PLAYED_EPOCHS:
                raise InvalidArgument(
                    f"a procedure without stages: expected at most {MAX_PLAYED_EPOCHS} epochs to plan, got more",
                    hint="Lower n_configs or max_epochs, or take a procedure that declares its stages.",
                )
            for place in training:
                self._train(place)

    def _carry_out(self, decision: TrialDecision) -> None:
        match decision:
            case StartTrial(config, target):
                self._trials.append(TrialHistory(len(self._trials) + 1, config, "running", target_epochs=target))
                self._curves.append(self._curve(str(config[RESERVED])))
                self._n_done.append(0)
            case ContinueTrial(number, target):
                self._change(number - 1, status="running", target_epochs=target)
            case StopTrial(number):
                self._change(number - 1, status="stopped")

    def _curve(self, architecture: str) -> Sequence[float]:
        curves = self._past.curves.get(architecture) or [one for some in self._past.curves.values() for one in some]
        if not curves:
            raise NotReady(
                "nobody knows what a procedure without stages would do: there are no learning curves to play it on",
                hint="Train some trials on this dataset first (easeml.profile_dataset, easeml plan --profile), or take"
                " a procedure that declares its stages.",
            )
        ends = [curve[-1] for curve in curves if curve]
        # Silverman's width for a sample of this size; if all are alike, any width breaks ties.
        width = 1.06 * len(ends) ** -0.2 * float(np.std(ends)) if ends else 0.0
        moved = float(self._rng.normal()) * (width or TIE)
        return [score + moved for score in curves[int(self._rng.integers(len(curves)))]]

    def _train(self, place: int) -> None:
        trial, curve = self._trials[place], self._curves[place]
        scores = (*trial.scores, curve[min(len(trial.scores), len(curve) - 1)])
        is_over = len(scores) >= self._procedure.max_epochs
        seconds = self._past.epoch_seconds.get(str(trial.config[RESERVED]), 1.0)
        self._now += seconds
        self._change(
            place, scores=scores, moments=(*trial.moments, self._now), seconds=trial.seconds + seconds,
            status="finished" if is_over else "running",
        )  # fmt: skip

    def _change(self, place: int, **changes: object) -> None:
        self._trials[place] = replace(self._trials[place], **changes)  # type: ignore[arg-type]

    def _loads(self) -> tuple[Load, ...]:
        last = self._procedure.max_epochs
        more = Counter(
            (str(trial.config[RESERVED]), len(trial.scores) - n_done, len(trial.scores) >= last, n_done)
            for trial, n_done in zip(self._trials, self._n_done, strict=True)
        )
        counted = sorted(more.items())
        return tuple(Load(name, n, left, tested, done) for (name, left, tested, done), n in counted if left)
