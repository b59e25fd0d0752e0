"""A job: stages of trials, and the duration of an epoch by the number of slots that a trial has.

Seconds of an epoch are measured at some widths and interpolated between them, linearly in logarithms. Beyond the widest
they stay the same, or are extrapolated from the last two. A further slot never slows a trial down: it leaves the slot
idle instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from easeml_db.errors import InvalidArgument

Vector = npt.NDArray[np.float64]
MAX_WIDTH = 1024
MAX_TRIALS = 100_000  # of a stage
MAX_STAGES = 200


@dataclass(frozen=True)
class Latency:
    """A duration in seconds, lognormal with this mean and standard deviation. Raises InvalidArgument."""

    mean_seconds: float = 0.0
    sd_seconds: float = 0.0

    def __post_init__(self) -> None:
        for value in (self.mean_seconds, self.sd_seconds):
            if not (math.isfinite(value) and value >= 0):
                raise InvalidArgument(f"a latency: expected a number of seconds of at least 0, got {value}")

    def at(self, normal: Vector) -> Vector:
        """Return the seconds that standard normal numbers stand for."""
        if not self.mean_seconds:
            return np.zeros_like(normal)
        return self.mean_seconds * noise(self.sd_seconds / self.mean_seconds, normal)


def noise(spread: float | Vector, normal: Vector) -> Vector:
    """Return lognormal factors of mean 1 and relative standard deviation `spread`."""
    # A lognormal of mean 1 and deviation s has sigma^2 = log(1 + s^2) and mu = -sigma^2 / 2.
    sigma = np.sqrt(np.log1p(np.square(spread)))
    factors: Vector = np.exp(sigma * normal - sigma**2 / 2)
    return factors


@dataclass(frozen=True)
class Load:
    """A number of trials of an architecture, each with a number of epochs to train after `n_before`; `is_tested`: each
    is tested after these.
    """

    architecture: str
    n_trials: int
    n_epochs: float
    is_tested: bool = False
    n_before: float = 0.0

    def __post_init__(self) -> None:
        if self.n_trials < 1 or not (math.isfinite(self.n_epochs) and self.n_epochs > 0):
            raise InvalidArgument(
                f"a stage: expected at least 1 trial and more than 0 epochs, got {self.n_trials} and {self.n_epochs}"
            )


class StageKey(NamedTuple):
    """The trials of a stage: their arm (empty: any), their bracket, and the epoch up to which they train (0: any)."""

    arm: str = ""
    bracket: int = 0
    target_epochs: int = 0


@dataclass(frozen=True)
class Stage:
    """Trials that train at once, up to a barrier. `is_continued`: they start from states of an earlier stage.

    `alternatives` are equally likely loads, if it is unknown which trials it will be; `loads` is the first. If trials
    follow from others, `turns` gives for each alternative the number of trials that train in each turn of one epoch:
    more slots than that do not help in that turn. `key` says which trials of a run these are. `is_overlapped`: the
    stages that follow, up to the next that is not continued, have begun meanwhile, and take the slots that it leaves
    idle.
    """

    loads: tuple[Load, ...]
    label: str = ""
    is_continued: bool = False
    alternatives: tuple[tuple[Load, ...], ...] = ()
    key: StageKey = field(default_factory=StageKey)
    turns: tuple[Mapping[int, int], ...] = ()
    is_overlapped: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.n_trials <= MAX_TRIALS:
            raise InvalidArgument(f"a stage: expected 1 to {MAX_TRIALS} trials, got {self.n_trials}")

    @property
    def n_trials(self) -> int:
        """Number of trials; if unknown, the largest possible number."""
        return max(sum(load.n_trials for load in loads) for loads in (self.loads, *self.alternatives))

    @property
    def n_epochs(self) -> float:
        """Epochs of its longest trial."""
        return max(load.n_epochs for load in self.loads)


@dataclass(frozen=True)
class TrialProfile:
    """How long trials of an architecture take on a kind of device.

    `epoch_seconds` by width, 1 among them. `spread` is the relative standard deviation of one epoch, `trial_spread`
    that of the means of trials, `uncertainty` that of the mean over all of them. Each epoch takes longer than the one
    before it by the share `growth` of the first, which `epoch_seconds` then is: boosters grow. An epoch has
    `units_per_epoch` units, between which a trial may hop. A test takes `test_epochs` of the first epoch, and with each
    epoch before it the share `test_growth` of that more. `session_seconds` until a slot that starts can train it,
    `restore_seconds` to bring a state there. Before each unit, of training and of validation, a slot waits
    `turn_seconds`. Once in a run it takes `reading_seconds` to read the rows. `note` says what was not measured.
    Raises InvalidArgument.
    """

    epoch_seconds: Mapping[int, float]
    spread: float = 0.0
    trial_spread: float = 0.0
    uncertainty: float = 0.0
    units_per_epoch: int = 1
    is_extrapolated: bool = False
    session_seconds: float = 0.0
    restore_seconds: float = 0.0
    test_epochs: float = 0.0
    turn_seconds: float = 0.0
    growth: float = 0.0
    test_growth: float = 0.0
    reading_seconds: float = 0.0
    note: str | None = None

    def __post_init__(self) -> None:
        if 1 not in self.epoch_seconds or min(self.epoch_seconds) < 1 or max(self.epoch_seconds) > MAX_WIDTH:
            raise InvalidArgument(f"epoch_seconds: expected widths 1 to {MAX_WIDTH}, 1 among them")
        if not all(math.isfinite(seconds) and seconds > 0 for seconds in self.epoch_seconds.values()):
            raise InvalidArgument("epoch_seconds: expected numbers above 0")
        others = (
            self.spread, self.trial_spread, self.uncertainty, self.session_seconds, self.restore_seconds,
            self.test_epochs, self.turn_seconds, self.growth, self.test_growth, self.reading_seconds,
        )  # fmt: skip
        if not all(math.isfinite(value) and value >= 0 for value in others) or self.units_per_epoch < 1:
            raise InvalidArgument("a profile: expected spreads and seconds of at least 0, and at least 1 unit an epoch")

    @cached_property
    def _best(self) -> tuple[Vector, npt.NDArray[np.int64]]:
        """Seconds of an epoch with at most 1, 2, ... slots, and the width that gives them."""
        widths = sorted(self.epoch_seconds)
        last = MAX_WIDTH if self.is_extrapolated and len(widths) > 1 else widths[-1]
        logs = np.log(np.arange(1, last + 1))
        log_widths, values = np.log(widths), np.log([self.epoch_seconds[width] for width in widths])
        # A power law between two measurements: perfect scaling is the case of slope -1.
        seconds = np.interp(logs, log_widths, values)
        if last > widths[-1]:
            slope = (values[-1] - values[-2]) / (log_widths[-1] - log_widths[-2])
            beyond = logs > log_widths[-1]
            seconds[beyond] = values[-1] + slope * (logs[beyond] - log_widths[-1])
        seconds = np.exp(seconds)
        seconds[np.array(widths) - 1] = [self.epoch_seconds[width] for width in widths]  # exactly what was measured
        best = np.minimum.accumulate(seconds)
        used = np.maximum.accumulate(np.where(seconds <= best, np.arange(1, last + 1), 1))
        return best, used

    def first_epochs(self, n_epochs: Vector, n_before: Vector, tests: Vector) -> Vector:
        """Return how many first epochs a number of later epochs take, with a number of tests after the last."""
        # Epoch k takes 1 + g (k - 1) first epochs; e of them after b others take e (1 + g (b + (e - 1) / 2)). Part of
        # an epoch counts as part of the first of them.
        trained = n_epochs * (1 + self.growth * (n_before + np.maximum(n_epochs - 1, 0) / 2))
        tested = tests * self.test_epochs * (1 + self.test_growth * np.maximum(n_before + n_epochs - 1, 0))
        epochs: Vector = trained + tested
        return epochs

    def waits(self, n_slots: int) -> float:
        """Return the seconds for which slots wait during the training units of an epoch, or as many others."""
        return self.turn_seconds * math.ceil(self.units_per_epoch / self.width(n_slots))

    @property
    def max_width(self) -> int:
        """Slots beyond which a trial gets no faster."""
        return int(self._best[1][-1])

    def width(self, n_slots: int) -> int:
        """Return how many of its slots a trial uses."""
        used = self._best[1]
        return int(used[min(n_slots, len(used)) - 1])

    def seconds(self, n_slots: int) -> float:
        """Return the mean seconds of an epoch of a trial on a number of slots."""
        best = self._best[0]
        return float(best[min(n_slots, len(best)) - 1])


@dataclass(frozen=True)
class Cut:
    """When a run is cut short, with what it has by then: `limit_seconds` after its first slots are ready (`is_begun`:
    from now), and no later than `latest_seconds` from now; but it trains for `least_seconds` in any case.
    """

    limit_seconds: float
    latest_seconds: float = math.inf
    least_seconds: float = 0.0
    is_begun: bool = False

    def moment(self, ready: Vector) -> Vector:
        """Return when it is cut, if its first slots are ready at these times."""
        limit = (0.0 if self.is_begun else ready) + self.limit_seconds
        return np.maximum(np.minimum(limit, self.latest_seconds), ready + self.least_seconds)


@dataclass(frozen=True)
class Job:
    """Stages in their order, profiles by architecture and kind of device, and the bytes that an instance brings in.

    `is_hopping`: trials of a stage hop over its slots; else each keeps one, as in the paper. `margin_seconds` pass
    before the first unit and after the last. Raises InvalidArgument.
    """

    stages: tuple[Stage, ...]
    profiles: Mapping[tuple[str, str], TrialProfile] = field(repr=False)
    is_hopping: bool = True
    data_gb: float = 0.0
    margin_seconds: float = 0.0
    cut: Cut | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.stages) <= MAX_STAGES:
            raise InvalidArgument(f"a plan: expected 1 to {MAX_STAGES} stages, got {len(self.stages)}")
        for name, value in (("data_gb", self.data_gb), ("margin_seconds", self.margin_seconds)):
            if not (math.isfinite(value) and value >= 0):
                raise InvalidArgument(f"{name}: expected a number of at least 0, got {value}")

    @property
    def architectures(self) -> list[str]:
        """Architectures of all stages, each once."""
        return architectures_of(self.stages)

    def profile(self, architecture: str, device_kind: str) -> TrialProfile:
        """Return the profile of an architecture on a kind of device. Raises InvalidArgument."""
        try:
            return self.profiles[architecture, device_kind]
        except KeyError:
            raise InvalidArgument(
                f"nothing is known of how long {architecture} takes on {device_kind}",
                hint="Train a trial of it there for an epoch first.",
            ) from None

    def fits(self, device_kind: str) -> bool:
        """Return whether every architecture of the job has a profile on a kind of device."""
        return all((architecture, device_kind) in self.profiles for architecture in self.architectures)


def architectures_of(stages: Sequence[Stage]) -> list[str]:
    """Return the architectures of all stages, each once."""
    loads = [load for stage in stages for some in (stage.loads, *stage.alternatives) for load in some]
    return list(dict.fromkeys(load.architecture for load in loads))


def halving_job(
    n_trials: Sequence[int],
    n_epochs: Sequence[float],
    profile: TrialProfile,
    device_kind: str,
    *,
    is_hopping: bool = True,
) -> Job:
    """Return a job of one architecture: the number of trials and of further epochs each, stage by stage."""
    stages = tuple(
        Stage((Load("any", trials, epochs),), f"stage {k}", k > 0)
        for k, (trials, epochs) in enumerate(zip(n_trials, n_epochs, strict=True))
    )
    return Job(stages, {("any", device_kind): profile}, is_hopping)
