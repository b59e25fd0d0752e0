"""Priors and beliefs of runs, written to the tables many in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from easeml_db.coordinator.faults import NOT_THE_RUNS_FAULT, faults_of
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.ports.tenancy import TenancyStore
from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.pool import Pool
from easeml_db.errors import EasemlError

AT_ONCE = 100  # runs


class BeliefRecords:
    """Runs with a prior or beliefs that are not recorded yet. A prior must be recorded before any arm of its run is
    opened, so call `keep` before opening one.
    """

    def __init__(self, tenancy: TenancyStore, lease: Lease, pool: Pool) -> None:
        self._tenancy, self._lease, self._pool = tenancy, lease, pool
        self._priors: dict[int, tuple[Prior, Sequence[int]]] = {}
        self._changed: dict[int, None] = {}  # runs whose beliefs have changed

    def began(self, run_id: int, prior: Prior, arm_ids: Sequence[int]) -> None:
        """Note the prior of a new run, and about which arms it is."""
        self._priors[run_id] = prior, arm_ids

    def changed(self, run_id: int) -> None:
        """Note that beliefs about a run's arms have changed."""
        self._changed[run_id] = None

    def drop(self, run_id: int) -> None:
        """Forget a run."""
        self._priors.pop(run_id, None)
        self._changed.pop(run_id, None)

    async def keep(self) -> dict[int, EasemlError]:
        """Record new priors and beliefs; return the runs whose numbers the tables refuse, with the error."""
        refused: dict[int, EasemlError] = {}
        while self._priors or self._changed:
            refused |= await self._keep_some([*islice(dict.fromkeys([*self._priors, *self._changed]), AT_ONCE)])
        return refused

    async def _keep_some(self, run_ids: Sequence[int]) -> dict[int, EasemlError]:
        priors = {run_id: self._priors.pop(run_id) for run_id in run_ids if run_id in self._priors}
        changed = [run_id for run_id in run_ids if self._changed.pop(run_id, run_id) is None and run_id in self._pool]
        try:
            with faults_of(run_ids[0]):
                await self._write(priors, changed)
        except NOT_THE_RUNS_FAULT:
            raise
        except EasemlError as error:
            if len(run_ids) == 1:
                return {run_ids[0]: error}
            self._priors |= priors
            self._changed |= dict.fromkeys(changed)
            # One run's numbers must not keep those of others from being recorded.
            alone = [await self._keep_some([run_id]) for run_id in run_ids]
            return {run_id: fault for faults in alone for run_id, fault in faults.items()}
        return {}

    async def _write(self, priors: dict[int, tuple[Prior, Sequence[int]]], changed: Sequence[int]) -> None:
        if priors:
            await self._tenancy.keep_priors(priors)
        if changed:
            beliefs = {run_id: self._pool.beliefs(run_id) for run_id in changed}
            await self._lease.write(self._tenancy.keep_beliefs(beliefs))
