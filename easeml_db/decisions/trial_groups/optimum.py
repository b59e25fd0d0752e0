"""The shortest makespan of a few trials on a few devices, by branch and bound: what heuristics are measured against.

Over all schedules where a trial keeps its width and devices from start to end (the paper's strip packing) and starts
at 0 or when another ends. Packed trials are slowed by those that are really there. Five trials take
milliseconds; the effort grows exponentially, less where trials are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import InvalidArgument

MAX_TRIALS = 8
SLACK = 1e-9


def optimum(seconds: Sequence[float], n_devices: int, profile: Profile, *, known: float = inf) -> float:
    """Return the shortest makespan in seconds; `seconds` is h_1 of each trial, `known` a makespan to start from.

    Raises InvalidArgument for more than 8 trials.
    """
    if len(seconds) > MAX_TRIALS:
        raise InvalidArgument(f"expected at most {MAX_TRIALS} trials, got {len(seconds)}")
    if n_devices < 1:
        raise InvalidArgument(f"n_devices: expected at least 1, got {n_devices}")
    state = _State(0.0, n_devices, (), (), tuple(sorted(seconds, reverse=True)))
    search = _Search(profile, n_devices, known)
    search.descend(state)
    return search.best


@dataclass(frozen=True)
class _State:
    """`packed`: for each shared device h_1 of the remaining work; `wide`: (seconds left, devices); `waiting`: h_1."""

    now: float
    idle: int
    packed: tuple[tuple[float, ...], ...]
    wide: tuple[tuple[float, int], ...]
    waiting: tuple[float, ...]


class _Search:
    def __init__(self, profile: Profile, n_devices: int, makespan: float) -> None:
        self.best, self._profile, self._capacity = makespan, profile, n_devices * profile.throughput
        self._widths = range(profile.d if profile.d < n_devices else n_devices, 0 if profile.c == 1 else 1, -1)
        self._seen: dict[_State, float] = {}

    def descend(self, state: _State) -> None:
        """Try all starts at this moment, each followed to its end."""
        # What follows a state takes the same time whenever it is reached, so only its earliest visit counts.
        timeless = replace(state, now=0.0)
        if self._bound(state) >= self.best - SLACK or self._seen.get(timeless, inf) <= state.now:
            return
        self._seen[timeless] = state.now
        if not (state.waiting or state.packed or state.wide):
            self.best = state.now
            return
        for started in self._starts(replace(state, waiting=()), state.waiting):
            # With nothing running, time would not advance.
            if started.packed or started.wide:
                self.descend(self._after_next_end(started))

    def _starts(self, state: _State, waiting: tuple[float, ...]) -> Iterator[_State]:
        """Yield every way to start some of these; the others wait on."""
        if not waiting:
            yield state
            return
        for placed in self._places(state, waiting[0]):
            yield from self._starts(placed, waiting[1:])

    def _places(self, state: _State, h_1: float) -> Iterator[_State]:
        """Yield every place of a trial, widest first; alone on a shared device stands for width 1; waiting last."""
        for width in self._widths:
            if width <= state.idle:
                one = (self._profile.seconds(h_1, width), width)
                yield replace(state, idle=state.idle - width, wide=(*state.wide, one))
        if self._profile.c > 1:
            if state.idle:
                yield replace(state, idle=state.idle - 1, packed=_sorted((*state.packed, (h_1,))))
            # Devices with equal work lead to equal schedules: one of them is enough.
            for device in dict.fromkeys(state.packed):
                if len(device) < self._profile.c:
                    others = list(state.packed)
                    others.remove(device)
                    yield replace(state, packed=_sorted((*others, tuple(sorted((*device, h_1))))))
        yield replace(state, waiting=(*state.waiting, h_1))

    def _after_next_end(self, state: _State) -> _State:
        slow = self._profile.slowdown
        ends = [device[0] * slow(len(device)) for device in state.packed] + [seconds for seconds, _ in state.wide]
        passed = min(ends)
        wide = tuple(sorted((s - passed, w) for s, w in state.wide if s - passed > SLACK))
        devices = (tuple(h - passed / slow(len(device)) for h in device) for device in state.packed)
        packed = _sorted(kept for device in devices if (kept := tuple(h for h in device if h > SLACK)))
        taken = len(packed) + sum(width for _, width in wide)
        had = len(state.packed) + sum(width for _, width in state.wide)
        return _State(state.now + passed, state.idle + had - taken, packed, wide, state.waiting)

    def _bound(self, state: _State) -> float:
        """Return when a schedule may end at the earliest: each trial at its fastest, all work at full throughput."""
        running = [h for device in state.packed for h in device]
        fastest = min([1.0, *(self._profile.seconds(1.0, width) for width in self._widths)])
        work = sum(state.waiting) + sum(running) + sum(s / self._profile.seconds(1.0, w) for s, w in state.wide)
        longest = max([*running, *(s for s, _ in state.wide), *(h * fastest for h in state.waiting)], default=0.0)
        return state.now + max(longest, work / self._capacity)


def _sorted(devices: Iterator[tuple[float, ...]] | Sequence[tuple[float, ...]]) -> tuple[tuple[float, ...], ...]:
    return tuple(sorted(devices))
