"""Random numbers that all candidates share: plans are compared on the same draws, and one seed gives one plan."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from easeml_db.decisions.planner.job import Job, Latency, Vector
from easeml_db.errors import InvalidArgument

DEFAULT_SAMPLES = 20
MAX_SAMPLES = 1000
MAX_DRAWS = 2_000_000  # samples times trials, over all stages
MAX_INSTANCE_DRAWS = 512  # start latencies of a stage; of more instances the slowest is hardly slower


class Draws:
    """Standard normal numbers: for each sample, for each stage of it, for each trial. Raises InvalidArgument."""

    def __init__(self, job: Job, n_samples: int = DEFAULT_SAMPLES, seed: int = 0) -> None:
        if not 1 <= n_samples <= MAX_SAMPLES:
            raise InvalidArgument(f"samples: expected 1 to {MAX_SAMPLES}, got {n_samples}")
        n_draws = n_samples * sum(stage.n_trials for stage in job.stages)
        if n_draws > MAX_DRAWS:
            raise InvalidArgument(
                f"a plan: expected at most {MAX_DRAWS // n_samples} trials over all stages, got {n_draws // n_samples}",
                hint="Plan fewer trials.",
            )
        self.n_samples = n_samples
        self._seed = seed % 2**63
        self._sizes = [stage.n_trials for stage in job.stages]

    def _of(self, *place: int) -> np.random.Generator:
        # One generator for each purpose and stage: what one takes does not shift the numbers of another.
        return np.random.default_rng([self._seed, *place])

    @cached_property
    def common(self) -> Vector:
        """The draw that all trials of a sample share, shape (samples,)."""
        return self._of(0).standard_normal(self.n_samples)

    @cached_property
    def _trials(self) -> list[Vector]:
        return [self._of(1, stage).standard_normal((self.n_samples, size)) for stage, size in enumerate(self._sizes)]

    def trials(self, stage: int) -> Vector:
        """Return a standard normal number for each trial of a stage, shape (samples, trials)."""
        return self._trials[stage]

    @cached_property
    def _starts(self) -> list[tuple[Vector, Vector]]:
        """By stage: a number for the provider's queue, and the largest of the first 1, 2, ... instances."""
        starts = []
        for stage in range(len(self._sizes)):
            generator = self._of(2, stage)
            queue = generator.standard_normal(self.n_samples)
            instances = generator.standard_normal((self.n_samples, MAX_INSTANCE_DRAWS))
            # A latency rises with its normal number, so the slowest of n instances has the largest of the first n.
            starts.append((queue, np.maximum.accumulate(instances, axis=1)))
        return starts

    def queue_seconds(self, stage: int, latency: Latency) -> Vector:
        """Return how long the provider's queue takes at the start of a stage, shape (samples,)."""
        return latency.at(self._starts[stage][0])

    def slowest_start(self, stage: int, latency: Latency, n_instances: int) -> Vector:
        """Return the initialisation time of the slowest of some new instances, shape (samples,)."""
        worst = self._starts[stage][1]
        return latency.at(worst[:, min(n_instances, MAX_INSTANCE_DRAWS) - 1])
