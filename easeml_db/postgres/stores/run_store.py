"""Runs and their trials in PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from easeml_db.errors import EasemlError
from easeml_db.postgres.sessions.server_life import has_crashed
from easeml_db.postgres.stores.off_thread import convert
from easeml_db.postgres.stores.run_rows import ArchitectureFacts, RunRows, read_runs, run_of
from easeml_db.postgres.stores.store_session import StoreSession
from easeml_db.words.run import Run
from easeml_db.words.trial import RUNNABLE

MAX_MESSAGE = 2000


class PostgresRuns:
    """RunStore on PostgreSQL."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._facts: ArchitectureFacts | None = None
        self._ahead: dict[int, RunRows] = {}

    async def open_runs(self) -> list[int]:
        """Return the numbers of all queued and running runs, oldest first."""
        return [row["run_id"] for row in await self._session.rows("open_runs")]

    async def read_ahead(self, run_ids: Sequence[int]) -> None:
        """Read several runs at once; the next `read` of each returns the result. If the rows of one cannot be read,
        each run is read on demand.
        """
        self._ahead.clear()
        with contextlib.suppress(EasemlError):  # which the read of that run raises again
            self._ahead.update(await self._rows(run_ids))

    async def read(self, run_id: int) -> Run | None:
        """Return an open run; None when it ended or is gone."""
        rows_ahead = self._ahead.pop(run_id, None)
        rows = rows_ahead if rows_ahead is not None else (await self._rows([run_id]))[run_id]
        return await self._run_of(rows)

    async def read_again(self, known: Run) -> Run | None:
        """Return an open run; trials that neither have nor had a unit to run are taken from the known run."""
        had_units = [trial.trial_id for trial in known.trials if trial.status in RUNNABLE]
        rows = (await self._rows([known.run_id], had_units))[known.run_id]
        if rows.run is not None and (rows.run["n_resumes"] != known.n_resumes or rows.run["is_ending"]):
            return await self.read(known.run_id)
        renewed = await self._run_of(rows)
        return None if renewed is None else await asyncio.to_thread(renewed.beside, known)

    async def _rows(self, run_ids: Sequence[int], had_units: Sequence[int] | None = None) -> dict[int, RunRows]:
        facts = await self._read_facts()
        return await read_runs(self._session, run_ids, facts.varying, had_units=had_units)

    async def _run_of(self, rows: RunRows) -> Run | None:
        if rows.run is None:
            return None
        facts = await self._read_facts()
        return await convert(len(rows.trials), lambda: run_of(rows, facts))

    async def _read_facts(self) -> ArchitectureFacts:
        """Return the facts of trainers about architectures, read once in a separate session: its process loads the
        package that trains, and ends here.
        """
        if self._facts is None:
            session = StoreSession(self._session.dsn, "easeml coordinator (architectures)")
            await session.open()
            try:
                row = await session.row("architecture_facts")
                self._facts = ArchitectureFacts(frozenset(row["joint"]), frozenset(row["whole"]), row["varying"])
            finally:
                await session.close()
        return self._facts

    async def start(self, run_id: int) -> None:
        """Mark a queued run as running."""
        await self._session.write("start_run", run_id=run_id)

    async def plan(
        self, run_id: int, scheduler: str, simulated_seconds: float | None, bound_seconds: float | None, reason: str
    ) -> None:
        """Record how a run is scheduled from now on."""
        await self._session.write(
            "plan_run", run_id=run_id, scheduler=scheduler, simulated_seconds=simulated_seconds,
            bound_seconds=bound_seconds, reason=reason,
        )  # fmt: skip

    async def fail_trial(self, run_id: int, trial_id: int, reason: str) -> None:
        """Mark a trial as failed, with the reason."""
        await self._session.write("fail_trial", trial_id=trial_id, reason=_text(reason))

    async def has_crashed(self, life: str | None) -> bool:
        """Return whether the server restarted by itself since then, as it does when one of its processes crashes."""
        return life is None or has_crashed(life, (await self._session.row("server_life", pid=0))["life"])

    async def crashed(self, run_id: int, trial_id: int, reason: str) -> tuple[list[int], bool]:
        """Add a crash to the run's history; end the open trials of that architecture in this run. Return them, and
        whether none is left.
        """
        ended = await self._session.write("fail_crashed", run_id=run_id, trial_id=trial_id, reason=_text(reason))
        return list(ended.get("trial_ids") or []), bool(ended.get("is_recorded"))

    async def lost(self, run_id: int, trial_id: int, reason: str) -> int:
        """Note that the server went away; count how often, since something was recorded of the trial."""
        await self.note(run_id, trial_id, "server away", reason)
        return int((await self._session.row("count_lost", run_id=run_id, trial_id=trial_id))["n"])

    async def fail(self, run_id: int, reason: str) -> bool:
        """End a run that cannot be served, with the reason, and cancel what is left of its trials."""
        failed = await self._session.write("fail_run", run_id=run_id, reason=_text(reason))
        return await self._has_ended(run_id, bool(failed))

    async def begin_ending(self, run_id: int) -> bool:
        """End the search of a run whose best trial is untested; return whether there is something to test."""
        return bool((await self._session.write("begin_ending", run_id=run_id)).get("is_tested"))

    async def finish(self, run_id: int) -> bool:
        """End a run: stop what is left of its trials; failed when every trial failed, else finished."""
        for step in ("start_run", "stop_trials", "drop_vain_ensemble", "close_arms"):
            await self._session.write(step, run_id=run_id)
        is_written = bool(await self._session.write("finish_run", run_id=run_id))
        if is_written:
            await self._session.write("note_serving", run_id=run_id)
            await self._session.write("note_summary", run_id=run_id)
        return await self._has_ended(run_id, is_written)

    async def _has_ended(self, run_id: int, is_written: bool) -> bool:
        return is_written or not await self._session.rows("is_open", run_id=run_id)

    async def note(self, run_id: int, trial_id: int | None, kind: str, message: str) -> None:
        """Add an event to the run's history."""
        await self._session.write("note", run_id=run_id, trial_id=trial_id, kind=kind, message=_text(message))


def _text(message: str) -> str:
    """Return a message that a column can hold: shortened, without NUL and lone surrogates."""
    return message[:MAX_MESSAGE].replace("\0", "").encode(errors="replace").decode()
