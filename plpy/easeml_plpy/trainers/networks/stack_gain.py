"""Whether trials are faster as one computation than one after another: a few steps of both, timed and thrown away."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Hashable, Sequence

from easeml_plpy.server.value_types import no_pause
from easeml_plpy.trainers.networks.stack import Pass, Stack, n_common_steps, stack_key
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from easeml_plpy.trainers.training_rows import visit_order

PROBE_STEPS, N_PROBES = 6, 3
LEAST_STEPS = 8  # a pass of fewer is over before it is measured
LEAST_GAIN = 1.1


class StackGains:
    """Measured gains, by the trials' common key and their number, in powers of two."""

    def __init__(self) -> None:
        self._gains: dict[tuple[Hashable, int], float] = {}

    def pays(self, trials: Sequence[TorchTrial], passes: Sequence[Pass]) -> bool:
        """Return whether these trials take less time together. Raises NotStackable."""
        if n_common_steps(trials, passes) < LEAST_STEPS:
            return False
        key = stack_key(trials[0]), len(trials).bit_length()
        if key not in self._gains:
            self._gains[key] = measured_gain(trials, passes)
        return self._gains[key] >= LEAST_GAIN


def measured_gain(trials: Sequence[TorchTrial], passes: Sequence[Pass]) -> float:
    """Return how many times faster a step of all trials is together; the trials stay unchanged."""
    stack, visit = Stack(trials, passes), passes[0]
    alone, n_rows = copy.deepcopy(trials[0]), PROBE_STEPS * trials[0].batch_size
    device, order = alone.device, visit_order(n_rows, visit.seed)
    inputs, targets, order = (tensor[:n_rows].to(device) for tensor in (visit.inputs, visit.targets, order))
    # On a busy processor the longer of two pieces of work waits the more often: only what it computes counts.
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    together = _quickest(lambda: stack.train(PROBE_STEPS, no_pause).tolist(), clock)
    in_turn = _quickest(lambda: alone.train_rows(inputs, targets, order, no_pause), clock)
    return len(trials) * in_turn / together


def _quickest(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the least time that the work takes, in seconds of a clock."""
    seconds = math.inf
    for _ in range(N_PROBES):
        started = clock()
        work()
        seconds = min(seconds, clock() - started)
    return seconds
