"""Queries of each arm's procedure at the end of every epoch, and records of its decisions.

The coordinator's loop reports each event to the runner; the runner tells the dispatcher what the tables then hold. A
procedure decides from the recorded trials in the tables, so the runner remembers only which arms it still has to ask
about. All other knowledge of a run is the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from easeml_db.coordinator.effects import HandleMessages, Work
from easeml_db.coordinator.faults import NOT_THE_RUNS_FAULT, faults_of
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.pauses import Pauses
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.searches import SearchStore
from easeml_db.coordinator.questions import Answer, Question, covers_all_arms
from easeml_db.coordinator.trial_histories import TrialHistories
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.decisions.procedures.contract import Procedure, TrialHistory
from easeml_db.decisions.retry import QUESTION_PAUSE
from easeml_db.errors import EasemlError, NotFound, StaleLease
from easeml_db.words.run import Run
from easeml_db.words.training_unit import TrainingUnit

LOOK_SECONDS = 0.01  # between two looks whether a long question is answered
DECISIONS_AT_ONCE = 200  # in one transaction, which takes tens of milliseconds


class ProcedureRunner:
    """One procedure inside every open arm of the runs that have a search, or one for all arms of a run."""

    def __init__(self, searches: SearchStore, runs: RunStore, lease: Lease, dispatcher: Dispatcher) -> None:
        self._searches, self._run_store, self._lease, self._dispatcher = searches, runs, lease, dispatcher
        self._histories = TrialHistories(searches)
        self._procedures: dict[int, Procedure] = {}  # by arm
        self._due: dict[tuple[int, int], None] = {}  # run and arm, in the order in which something happened
        self._failed: dict[int, str] = {}  # runs whose procedure cannot continue, with the reason
        self._pauses: Pauses[tuple[int, int]] = Pauses()  # of arms whose rows another transaction holds
        self._waiting: set[int] = set()  # runs that train nothing until another of their arms is opened
        self._pruned_bytes = 0

    # What happens

    def put_run(self, run: Run) -> None:
        """Ask about the open arms of a run that is new or renewed."""
        if run.search is not None:
            self._histories.forget(arm.arm_id for arm in run.arms)
            self._due |= {(run.run_id, arm.arm_id): None for arm in run.arms if arm.is_open and not arm.is_closed}

    def drop_run(self, run_id: int) -> None:
        """Forget a run, before the dispatcher does."""
        run = self._searched(run_id)
        self._waiting.discard(run_id)
        for arm in run.arms if run is not None else ():
            self._histories.forget([arm.arm_id])
            self._procedures.pop(arm.arm_id, None)
            self._due.pop((run_id, arm.arm_id), None)
            self._pauses.forget((run_id, arm.arm_id))

    def arm_opened(self, run_id: int, arm_id: int) -> None:
        """Ask about an arm: its trials may run now."""
        self._waiting.discard(run_id)
        if self._searched(run_id) is not None:
            self._due[run_id, arm_id] = None

    def recorded(self, unit: TrainingUnit) -> None:
        """Note that a unit is recorded: the last validation of an epoch is a result."""
        run = self._searched(unit.run_id)
        if run is None or unit.trial_id not in run.arm_of:
            return
        self._histories.changed(run.arm_of[unit.trial_id], [unit.trial_id])
        if unit.kind != "train" and (unit.step + 1) % run.trials[0].n_partitions == 0:
            self.trial_changed(unit.run_id, unit.trial_id)

    def trial_changed(self, run_id: int, trial_id: int) -> None:
        """Ask about the arm of a trial that has a new result, or is over."""
        run = self._searched(run_id)
        if run is not None and trial_id in run.arm_of:
            self._histories.changed(run.arm_of[trial_id], [trial_id])
            self._due[run_id, run.arm_of[trial_id]] = None

    def _searched(self, run_id: int) -> Run | None:
        open_run = self._dispatcher.runs.get(run_id)
        return None if open_run is None or open_run.run.search is None else open_run.run

    # What follows

    async def decide(self, now_seconds: float) -> Work:
        """Ask the procedure of every arm that has news, until none has; return early after a slow one, so that others
        get their turn.
        """
        self._pauses.take_ended(now_seconds)
        while due := next((key for key in self._due if not self._pauses.is_paused(key, now_seconds)), None):
            del self._due[due]
            run_id, arm_id = due
            run = self._searched(run_id)
            if run is None or self._dispatcher.runs[run_id].is_over:
                continue
            has_waited = False
            try:
                with faults_of(run_id):
                    async for effect in self._decide(run, arm_id):
                        has_waited = True
                        yield effect
            except (NotFound, StaleLease):  # the tables may be ahead of the histories here
                self._histories.forget(arm.arm_id for arm in run.arms)
                # Ask about the arm later: its rows may be locked.
                self._due[due] = None
                self._pauses.begin(due, now_seconds, QUESTION_PAUSE.seconds(self._pauses.n_in_a_row(due)))
            except NOT_THE_RUNS_FAULT:
                raise
            except EasemlError as error:
                self._dispatcher.runs.end_budget(run_id)
                self._failed[run_id] = f"its procedure cannot go on: {error}"
            else:
                self._pauses.went_well(due)
                yield HandleMessages()
            if has_waited:
                break

    def take_pruned_bytes(self) -> int:
        """Return the bytes of states that decisions have pruned since the last call."""
        pruned_bytes, self._pruned_bytes = self._pruned_bytes, 0
        return pruned_bytes

    def take_failed(self) -> dict[int, str]:
        """Return the runs whose procedure cannot continue, with the reason, each once."""
        failed, self._failed = self._failed, {}
        return failed

    def runs_that_wait(self) -> Collection[int]:
        """Return the runs that train nothing until another of their arms is opened."""
        return self._waiting

    def held_until(self) -> float:
        """Return when to ask about an arm without a message: 0 for at once, infinity for never."""
        return self._pauses.first_end(self._due)

    async def _decide(self, run: Run, arm_id: int) -> Work:
        """Ask the procedure of one arm and carry out its decisions. Other runs continue while it thinks and while much
        is read or recorded.
        """
        arms = [arm for arm in run.arms if arm.arm_id == arm_id or covers_all_arms(run)]
        trials: dict[int, Mapping[int, TrialHistory]] = {}
        for arm in arms:
            async for effect in self._histories.read(run, arm.arm_id):
                yield effect
            trials[arm.arm_id] = self._histories.of_arm(arm.arm_id)
        is_open = self._dispatcher.runs[run.run_id].arms.is_open
        held = {arm.arm_id for arm in arms if not is_open(arm.arm_id)}
        pending = self._searches.ask(Question(run, arm_id, arms, trials, held, self._procedures.get(arm_id)).answer)
        while not pending.done():
            yield HandleMessages(LOOK_SECONDS)
        answer = pending.result()
        if self._searched(run.run_id) is None:  # it ended meanwhile
            return
        self._procedures[arm_id] = answer.procedure
        (self._waiting.add if answer.is_waiting else self._waiting.discard)(run.run_id)
        for arm in arms if answer.is_end else ():
            self._dispatcher.runs.end_search(run.run_id, arm.arm_id)
        async for effect in self._record(run, answer):
            yield effect
        if answer.rows and self._searched(run.run_id) is not None:
            await self._take_over(run.run_id, arm_id, answer)

    async def _record(self, run: Run, answer: Answer) -> Work:
        """Record decisions in parts, because others wait for each transaction. If the run ends meanwhile, the next
        question yields the rest.
        """
        parts = [
            (arm_id, rows[begin : begin + DECISIONS_AT_ONCE])
            for arm_id, rows in answer.rows
            for begin in range(0, len(rows), DECISIONS_AT_ONCE)
        ]
        for number, (arm_id, rows) in enumerate(parts):
            if number:
                yield HandleMessages()
            if self._searched(run.run_id) is None:
                return
            self._pruned_bytes += await self._lease.write(self._searches.apply_decisions(run, arm_id, rows))

    async def _take_over(self, run_id: int, arm_id: int, answer: Answer) -> None:
        """Tell the dispatcher what the tables hold after an answer, and ask again: what follows may be certain."""
        await self._run_store.note(run_id, None, "procedure", answer.words)
        latest = self._searched(run_id)
        renewed = None if latest is None else await self._run_store.read_again(latest)
        if renewed is not None:
            self._dispatcher.put_run(renewed)
            ids = {trial.trial_number: trial.trial_id for trial in renewed.trials}
            for of_arm, rows in answer.rows:
                numbers = (row["trial_number"] for row in rows)
                self._histories.changed(of_arm, [ids[number] for number in numbers if number in ids])
            self._due[run_id, arm_id] = None
