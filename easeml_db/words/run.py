"""A run: one `select_models` call, as the coordinator sees it, and the arms that it has to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from easeml_db.words.trial import Trial

UNPLANNED = "longest_remaining"
"""The scheduler that serves any run at once: it needs to know no times."""


@dataclass(frozen=True)
class Arm:
    """A candidate of a run: an architecture with its augmentation, and the trials of its hyperparameter search.

    `opening` is the number of the decision that opened it, growing over all runs (None: not open yet), `bound` its
    upper bound at that time. `quality` in [0, 1] and `cost_seconds` of its units are known once it `is_closed`;
    `closing` then gives the order of the closings. `work` is its size in rows times epochs times trials; `n_epochs` is
    the largest number of epochs of all its trials together (None: each present trial runs to its end).
    """

    arm_id: int
    name: str
    work: float = 1.0
    opening: int | None = None
    bound: float | None = None
    closing: int | None = None
    quality: float | None = None
    cost_seconds: float | None = None
    is_complete: bool = True  # every trial went to its end, or was given up by its procedure: then others learn from it
    n_epochs: float | None = None

    @property
    def is_open(self) -> bool:
        """Return whether its trials may run."""
        return self.opening is not None

    @property
    def is_closed(self) -> bool:
        """Return whether its trials have ended and its quality is known."""
        return self.closing is not None


@dataclass(frozen=True)
class Search:
    """The arguments of a run for its procedure, as stored. `architectures_json` is an array of {"architecture": name,
    "hyperparameters": [spec, ...]}, whose order is kept, or an object name -> [spec, ...]; `options_json` is an object,
    null or nothing; `n_configs` counts for each arm (None: what the procedure takes); `portfolio_json` is an object
    name -> [config, ...] of configs to try first.
    """

    architectures_json: str
    search_space_json: str | None
    procedure: str
    n_configs: int | None = None
    max_epochs: int = 1
    seed: int = 0
    options_json: str | None = None
    portfolio_json: str | None = None


@dataclass(frozen=True)
class Run:
    """An open run with all its trials; `started_seconds` is on the coordinator's clock (None: not started).

    `holders` gives the segments that hold each partition, shape (p,); None: every slot may run every partition.
    `arm_of` gives the arm of each trial; a trial without one needs no opening. What a run of `tenant` learns helps
    other runs of the same `task`. `search` is set if its procedure decides on the way, once inside every arm;
    `allocation` says how slots are shared out among its trials. Trials of `joint_architectures` can train on several
    slots at once; those of `whole_architectures` do a whole round, over all partitions, in one unit on one slot, of a
    segment that holds all or to which the rest may be brought (`gathering_segments`). Trials with the same of the
    `batch_keys` may share a batch. `n_resumes` says how often it was resumed: a resume reopens trials that were over,
    so earlier findings no longer hold.
    """

    run_id: int
    seed: int
    status: str
    max_seconds: float | None
    started_seconds: float | None
    trials: tuple[Trial, ...]
    architectures: Mapping[int, str]
    scheduler: str = "auto"
    visit_order: str = "cyclic"
    holders: tuple[frozenset[int], ...] | None = None
    tenant: str = ""
    task: str = "classification"
    arms: tuple[Arm, ...] = ()
    arm_of: Mapping[int, int] = field(default_factory=dict)
    search: Search | None = None
    allocation: str = "hopping"
    joint_architectures: frozenset[str] = frozenset()
    whole_architectures: frozenset[str] = frozenset()
    gathering_segments: frozenset[int] = frozenset()
    batch_keys: Mapping[int, str] = field(default_factory=dict)
    n_resumes: int = 0

    def beside(self, earlier: Run) -> Run:
        """Return the run with the trials of an `earlier` reading where it has no newer ones."""
        trials = {trial.trial_number: trial for trial in earlier.trials}
        trials.update((trial.trial_number, trial) for trial in self.trials)
        return replace(
            self, trials=tuple(trials[number] for number in sorted(trials)),
            architectures={**earlier.architectures, **self.architectures}, arm_of={**earlier.arm_of, **self.arm_of},
            batch_keys={**earlier.batch_keys, **self.batch_keys},
        )  # fmt: skip

    def in_its_ending(self, allocation: str) -> Run:
        """Return the run after the end of its search: the remaining work needs no arm, procedure, limit or plan, hence
        no pilot. `allocation` is one that follows no plan.
        """
        return replace(
            self, max_seconds=None, scheduler=UNPLANNED, search=None, arms=(), arm_of={}, allocation=allocation
        )
