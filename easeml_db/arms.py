"""Which arms of which runs are open: decisions of the pool, written down before they count, and what arms came to.

The coordinator's loop asks; the pool and the dispatcher are told what the tables then say.
"""

from __future__ import annotations

from easeml_db.errors import NotFound, StaleLease, StandbyOnly
from easeml_db.hopper.dispatch import Dispatcher
from easeml_db.ports import Store
from easeml_db.run import Run
from easeml_db.tenancy.pool import Pool


class Arms:
    """Opens an arm where slots would have nothing to do, and closes it once its trials are over."""

    def __init__(self, store: Store, dispatcher: Dispatcher) -> None:
        self._store, self._dispatcher = store, dispatcher
        self._pool = Pool()

    async def take_up(self) -> None:
        """Read how tenants are served, what past runs came to, and all open runs where they stand."""
        await self.renew_tenancy()
        for past in await self._store.history():
            self._pool.history.add(past)
        memory = await self._store.policy_memory(self._pool.policy)
        places = {run_id: place for place, run_id in enumerate(memory.get("policy", {}).get("tenants", ()))}
        runs = await self._store.open_runs()
        for run in sorted(runs, key=lambda run: (places.get(run.run_id, len(places)), run.run_id)):
            await self.put_run(run)
        self._pool.remember(memory)

    async def renew_tenancy(self) -> None:
        """Take over the policy and the tenants' terms."""
        tenancy = await self._store.tenancy()
        self._pool.set_tenancy(tenancy)
        tenants = tenancy.tenants.values()
        self._dispatcher.limit_slots({one.role: one.max_slots for one in tenants if one.max_slots is not None})

    async def put_run(self, run: Run) -> None:
        """Add a run, or renew what is known of it. Arms that nobody knows the cost of are timed first."""
        self._dispatcher.put_run(run)
        if not run.arms or self._dispatcher.is_over(run.run_id):
            return
        prior = await self._store.prior(run.run_id)
        if prior is None:
            prior = self._pool.prior_of(run)
            await self._store.keep_prior(run.run_id, prior)
        self._pool.put_run(run, prior)
        self._dispatcher.time_arms(run.run_id, self._pool.untimed_arms(run.run_id))
        self.timed(run.run_id)
        await self._keep_beliefs(run.run_id)

    def drop_run(self, run_id: int) -> None:
        """Forget a run."""
        self._dispatcher.drop_run(run_id)
        self._pool.drop_run(run_id)

    def end_budget(self, run_id: int) -> None:
        """Start nothing of a run any more; what is under way goes on."""
        self._dispatcher.end_budget(run_id)
        self._pool.drop_run(run_id)

    async def end_overdue(self, now_seconds: float) -> None:
        """End the runs whose tenant's deadline is over, or too near for any arm that is left."""
        for run_id in self._pool.overdue_runs(now_seconds):
            self.end_budget(run_id)
            message = "the tenant's deadline is over, or too near for any arm that is left: nothing more is begun"
            await self._store.note(run_id, None, "deadline", message)

    def timed(self, run_id: int) -> None:
        """Take in what pilots have shown of a run's arms."""
        self._pool.set_seconds(run_id, self._dispatcher.arm_seconds(run_id))

    async def open_next(self, now_seconds: float) -> bool:
        """Open the arm that the policy chooses, if slots would have nothing to do; say whether something changed."""
        if self._dispatcher.n_unclaimed() <= 0 or self._dispatcher.is_newcomer_timed():
            return False
        n_slots, blocked = self._dispatcher.n_in_service(), self._dispatcher.runs_without_claim()
        opening = self._pool.choose(now_seconds, n_slots=n_slots, blocked=blocked)
        if opening is None:
            return False
        try:
            number = await self._store.open_arm(opening)
        except (NotFound, StaleLease):
            await self._renew(opening.run_id)
            return True
        self._pool.opened(opening, number)
        self._dispatcher.open_arm(opening.run_id, opening.arm_id, number)
        await self._keep_beliefs(opening.run_id)
        return True

    async def close_ended(self) -> None:
        """Write down and take in what arms came to whose trials are all over."""
        for run_id, arm_id in self._dispatcher.arms_to_close():
            try:
                arm = await self._store.close_arm(run_id, arm_id)
            except StaleLease:
                await self._check_lease()
                continue
            if arm is not None and run_id in self._pool:
                self._pool.arm_closed(run_id, arm)
                await self._keep_beliefs(run_id)

    async def _renew(self, run_id: int) -> None:
        """The tables were ahead: the run is over, gone, or its arm is open."""
        await self._check_lease()
        run = await self._store.read_run(run_id)
        if run is None:
            self.drop_run(run_id)
        else:
            await self.put_run(run)

    async def _keep_beliefs(self, run_id: int) -> None:
        try:
            await self._store.keep_beliefs(run_id, self._pool.beliefs(run_id))
        except StaleLease:
            await self._check_lease()

    async def _check_lease(self) -> None:
        if not await self._store.holds_lease():
            raise StandbyOnly("another coordinator took over")
