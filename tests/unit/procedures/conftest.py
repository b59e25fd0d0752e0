"""Trials without training: scores from a seeded function, ended in random order, failing now and then."""

import math
from dataclasses import replace

import numpy as np
import pytest

from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.contract import ContinueTrial, SearchArguments, StartTrial, StopTrial, TrialHistory
from easeml_db.decisions.search_space.parsing import parse_search_space

RATE = {
    "name": "rate",
    "kind": "float",
    "default": 0.1,
    "low": 0.0,
    "high": 1.0,
    "search": {"low": 0.01, "high": 1.0, "log": True},
}
DECAY = {"name": "decay", "kind": "float", "default": 0.0, "low": 0.0, "high": 1.0, "search": [0.0, 0.1, 0.2]}
DEPTH = {"name": "depth", "kind": "integer", "default": 2, "low": 1, "high": 64, "search": {"low": 1, "high": 9}}
UNITS = {"name": "units", "kind": "integers", "default": [8], "low": 1, "high": 64, "search": [[8], [16, 8]]}
RULE = {"name": "rule", "kind": "categorical", "default": None, "choices": [None, True, "a"], "search": [None, True]}
SPECS = {"tree": [RATE, DEPTH, RULE], "line": [RATE, DECAY, UNITS]}


class Trials:
    """The trials of one run of a procedure, which is made anew for every question."""

    def __init__(self, make, *, score=None, seed=0, p_failed=0.0, p_nan=0.0):
        self.make = make
        self.max_epochs = make().max_epochs
        self.score = score or (lambda config, n_epochs: config["rate"] + n_epochs / 1000)
        self.rng = np.random.default_rng(seed)
        self.p_failed, self.p_nan = p_failed, p_nan
        self.trials = []
        self.n_epochs_trained = 0
        self.copies = []

    def ask(self):
        return self.make().ask(tuple(self.trials))

    def apply(self, decision):
        if isinstance(decision, StartTrial):
            self.start(decision)
            return
        trial = self.trials[decision.trial_number - 1]
        assert trial.is_open, f"{decision} for a trial that is {trial.status}"
        if isinstance(decision, StopTrial):
            self.set(replace(trial, status="stopped"))
        else:
            assert isinstance(decision, ContinueTrial)
            assert not trial.is_training(self.max_epochs)
            assert trial.n_epochs < decision.n_epochs <= self.max_epochs
            self.set(replace(trial, target_epochs=decision.n_epochs))

    def start(self, decision):
        inherited = 0
        if decision.parent is not None:
            parent = self.trials[decision.parent - 1]
            assert parent.is_open
            inherited = parent.n_epochs
            self.copies.append((len(self.trials) + 1, parent.trial_number, inherited))
        number = len(self.trials) + 1
        trial = TrialHistory(
            number, decision.config, "waiting", (), decision.n_epochs, decision.parent, inherited_epochs=inherited
        )
        assert inherited < trial.target(self.max_epochs) <= self.max_epochs
        self.trials.append(trial)

    def set(self, trial):
        self.trials[trial.trial_number - 1] = trial

    @property
    def training(self):
        return [trial for trial in self.trials if trial.is_training(self.max_epochs)]

    def train_one_epoch(self, trial):
        self.n_epochs_trained += 1
        if self.rng.random() < self.p_failed:
            self.set(replace(trial, status="failed"))
            return
        value = math.nan if self.rng.random() < self.p_nan else self.score(trial.config, trial.n_epochs + 1)
        trial = replace(trial, status="running", scores=(*trial.scores, value))
        if trial.n_epochs >= trial.target(self.max_epochs):
            trial = replace(trial, status="finished" if trial.n_epochs == self.max_epochs else "waiting")
        self.set(trial)

    def step(self, check=lambda decisions: None):
        """Ask, do what was said, let one random trial train for an epoch; returns whether there was one."""
        decisions = self.ask()
        check(decisions)
        for decision in decisions:
            self.apply(decision)
        if not self.training:
            return False
        self.train_one_epoch(self.training[int(self.rng.integers(len(self.training)))])
        return True

    def run(self, check=lambda decisions: None):
        while self.step(check):
            pass
        while self.ask():  # the last ones are given up
            self.step(check)
        return self


@pytest.fixture(scope="session")
def space_of():
    """A search space over the architectures tree and line, or the named ones."""
    return lambda search_space=None, names=tuple(SPECS): parse_search_space(
        {name: SPECS[name] for name in names}, search_space
    )


@pytest.fixture(scope="session")
def trials_of(space_of):
    """Trials of a procedure by name: trials_of(name, space, n_configs=, max_epochs=, seed=, options=, **how)."""

    def make_trials(name, space=None, *, score=None, order=0, p_failed=0.0, p_nan=0.0, **arguments):
        space = space or space_of()
        return Trials(
            lambda: PROCEDURES[name](SearchArguments(space, **arguments)),
            score=score,
            seed=order,
            p_failed=p_failed,
            p_nan=p_nan,
        )

    return make_trials
