"""All open runs, and those worth checking: of thousands that are open, few have work, and fewer have changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from easeml_db.decisions.hopper.dispatch.open_run import OpenRun
from easeml_db.decisions.hopper.schedulers.estimates import UnitSeconds
from easeml_db.words.run import Run


class OpenRuns:
    """Runs by number, served by the age of their oldest open arm. Each change of one must call `touch`."""

    def __init__(self) -> None:
        self._seconds = UnitSeconds()  # of all runs: their architectures are the same
        self._runs: dict[int, OpenRun] = {}
        self._active: dict[int, int] = {}  # age by run, of those with trials that may run, run, or want a pilot
        self._by_age: list[OpenRun] | None = None  # active ones; None: to be sorted
        self._changed: dict[int, None] = {}  # in the order of the changes
        self._to_count: set[int] = set()  # whose demand for slots may have changed
        self._limited: set[int] = set()  # with a time limit
        self._aside: set[int] = set()
        self._n_of_tenant: Counter[str] = Counter()
        self._first: str | None = None  # tenant

    def __contains__(self, run_id: int) -> bool:
        return run_id in self._runs

    def __getitem__(self, run_id: int) -> OpenRun:
        return self._runs[run_id]

    def __iter__(self) -> Iterator[OpenRun]:
        return iter(self._runs.values())

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, run_id: int) -> OpenRun | None:
        """Return the run, if it is open."""
        return self._runs.get(run_id)

    def put(self, run: Run, busy: Mapping[int, int]) -> OpenRun:
        """Add a run, or update it. `busy`: a slot of each of its trials that is under way already."""
        open_run = self._runs.get(run.run_id)
        if open_run is None:
            open_run = self._runs[run.run_id] = OpenRun(run, self._seconds.of_run(), busy)
            self._n_of_tenant[run.tenant] += 1
        else:
            open_run.renew(run)
        if run.max_seconds is not None:
            self._limited.add(run.run_id)
        self.touch(run.run_id)
        return open_run

    def drop(self, run_id: int) -> None:
        """Forget a run."""
        gone = self._runs.pop(run_id, None)
        if gone is not None:
            self._n_of_tenant -= Counter([gone.run.tenant])
        self._changed.pop(run_id, None)
        self._limited.discard(run_id)
        self._aside.discard(run_id)
        self._to_count.add(run_id)
        if self._active.pop(run_id, None) is not None:
            self._by_age = None

    def touch(self, run_id: int) -> None:
        """Mark a run as changed, to be checked at the next turn."""
        open_run = self._runs.get(run_id)
        if open_run is None:
            return
        self._changed[run_id] = None
        self._to_count.add(run_id)
        age = open_run.arms.age() if open_run.has_work() else None
        if age != self._active.get(run_id):
            self._by_age = None
            if age is None:
                del self._active[run_id]
            else:
                self._active[run_id] = age

    def put_aside(self, run_id: int) -> None:
        """Start nothing of a run, and expect no demand of it, until it is taken back."""
        self._runs[run_id].is_aside = True
        self._aside.add(run_id)
        self.touch(run_id)

    def take_back(self, run_id: int) -> None:
        """Serve a run again that was put aside, if it is still open."""
        self._aside.discard(run_id)
        if run_id in self._runs:
            self._runs[run_id].is_aside = False
            self.touch(run_id)

    def aside(self) -> Collection[int]:
        """Return the runs that are put aside."""
        return self._aside

    # Runs worth checking

    def active(self) -> Sequence[OpenRun]:
        """Return the runs with trials that run, may run, or need a pilot: first those of the tenant that is served
        first, then by the age of their oldest arm.
        """
        if self._by_age is None:
            by_age = [self._runs[run] for run in sorted(self._active, key=lambda run: (self._active[run], run))]
            self._by_age = sorted(by_age, key=lambda run: run.run.tenant != self._first) if self._first else by_age
        return self._by_age

    def tenants(self) -> Collection[str]:
        """Return the tenants with open runs."""
        return self._n_of_tenant.keys()

    def is_shared(self) -> bool:
        """Return whether runs of several tenants are open."""
        return len(self._n_of_tenant) > 1

    def serve_first(self, tenant: str | None) -> None:
        """Serve a tenant's runs before all others; None: the oldest arm first."""
        if tenant != self._first:
            self._first, self._by_age = tenant, None

    def take_to_count(self) -> Collection[int]:
        """Return the runs whose demand may have changed since the last call, ended runs among them."""
        run_ids, self._to_count = self._to_count, set()
        return run_ids

    def arms_to_close(self) -> list[tuple[int, int]]:
        """Return (run, arm) of open arms whose trials are all over, each once."""
        return [(run_id, arm_id) for run_id in self._changed for arm_id in self._runs[run_id].arms.close_ended()]

    def done(self) -> list[int]:
        """Return the runs of which nothing is under way or left to do, each once for a change."""
        done = [run_id for run_id in self._changed if self._runs[run_id].is_done()]
        self._changed.clear()
        return done

    def spent(self, now_seconds: float) -> list[int]:
        """Return the runs whose time is up, and that still start units."""
        return [run_id for run_id in self._limited if self._runs[run_id].is_spent(now_seconds)]

    # What happens to them

    def open_arm(self, run_id: int, arm_id: int, opening: int) -> None:
        """Let an arm's trials run from now on."""
        self._runs[run_id].open_arm(arm_id, opening)
        self.touch(run_id)

    def time_arms(self, run_id: int, arm_ids: Collection[int]) -> None:
        """Request a pilot of one trial of each of these arms, before any arm of the run is opened."""
        self._runs[run_id].time_arms(arm_ids)
        self.touch(run_id)

    def end_search(self, run_id: int, arm_id: int) -> None:
        """Expect no further trial from the procedure of an arm."""
        self._runs[run_id].arms.end_search(arm_id)
        self.touch(run_id)

    def not_closed(self, run_id: int, arm_id: int) -> None:
        """Offer an arm for closing again: it could not be closed yet."""
        if run_id in self._runs:
            self._runs[run_id].arms.not_closed(arm_id)
            self.touch(run_id)

    def end_budget(self, run_id: int) -> None:
        """Start no more units of this run; those under way run to their end."""
        self._runs[run_id].end_budget()
        self.touch(run_id)
