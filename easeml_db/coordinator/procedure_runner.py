"""Queries of each arm's procedure at the end of every epoch, and records of its decisions.

The coordinator's loop reports each event to the runner; the runner tells the dispatcher what the tables then hold. A
procedure decides from the recorded trials in the tables, so the runner remembers only which arms it still has to ask
about. All other knowledge of a run is the dispatcher's.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from easeml_db.coordinator.effects import HandleMessages, Work
from easeml_db.coordinator.faults import NOT_THE_RUNS_FAULT, faults_of
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.pauses import Pauses
from easeml_db.coordinator.ports.answering import Answering
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.searches import SearchStore
from easeml_db.coordinator.questions import Answer, Question, covers_all_arms
from easeml_db.coordinator.trial_histories import TrialHistories
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.decisions.retry import QUESTION_PAUSE
from easeml_db.errors import EasemlError, NotFound, StaleLease
from easeml_db.words.run import Arm, Run
from easeml_db.words.training_unit import TrainingUnit

LOOK_SECONDS = 0.01  # between two looks whether a long question is answered
ANSWER_SECONDS = 60.0  # of processor time that a procedure may take: then its run ends with what it has
DECISIONS_AT_ONCE = 200  # in one transaction, which takes tens of milliseconds


@dataclass(frozen=True)
class Asked:
    """A question under way, to the procedure of an arm or of all `arms` of a run."""

    run: Run
    arm_id: int
    arms: Sequence[Arm]
    pending: Future[Answer]


class ProcedureRunner:
    """One procedure inside every open arm of the runs that have a search, or one for all arms of a run."""

    def __init__(
        self, searches: SearchStore, answering: Answering, runs: RunStore, lease: Lease, dispatcher: Dispatcher
    ) -> None:
        self._searches, self._answering, self._run_store = searches, answering, runs
        self._lease, self._dispatcher = lease, dispatcher
        self._histories = TrialHistories(searches)
        self._asked: dict[tuple[int, int], Asked] = {}  # by run and arm
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
            self._due.pop((run_id, arm.arm_id), None)
            if (asked := self._asked.pop((run_id, arm.arm_id), None)) is not None:
                asked.pending.cancel()
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
        """Carry out what procedures have answered, and ask that of every arm that has news, until none has; return
        early where much had to be read, so that others get their turn. A question that takes long stays under way.
        """
        self._pauses.take_ended(now_seconds)
        for key in [key for key, asked in self._asked.items() if asked.pending.done()]:
            if key in self._asked:  # its run may end while another answer is carried out
                async for effect in self._attributed(key, self._carry_out(self._asked.pop(key)), now_seconds):
                    yield effect
        while due := next((key for key in self._due if self._is_free(key, now_seconds)), None):
            del self._due[due]
            run_id, arm_id = due
            run = self._searched(run_id)
            if run is None or self._dispatcher.runs[run_id].is_over:
                continue
            n_effects = 0
            async for effect in self._attributed(due, self._ask(run, arm_id), now_seconds):
                n_effects += 1
                yield effect
            if n_effects > 1:
                break

    def _is_free(self, key: tuple[int, int], now_seconds: float) -> bool:
        return key not in self._asked and not self._pauses.is_paused(key, now_seconds)

    async def _attributed(self, key: tuple[int, int], work: Work, now_seconds: float) -> Work:
        """Do work about an arm; an error in it ends its run only."""
        run_id = key[0]
        try:
            with faults_of(run_id):
                async for effect in work:
                    yield effect
        except (NotFound, StaleLease):  # the tables may be ahead of the histories here
            run = self._searched(run_id)
            self._histories.forget(arm.arm_id for arm in (run.arms if run is not None else ()))
            # Ask about the arm later: its rows may be locked.
            self._due[key] = None
            self._pauses.begin(key, now_seconds, QUESTION_PAUSE.seconds(self._pauses.n_in_a_row(key)))
        except NOT_THE_RUNS_FAULT:
            raise
        except EasemlError as error:
            self._dispatcher.runs.end_budget(run_id)
            self._failed[run_id] = f"its procedure cannot go on: {error}"
        else:
            self._pauses.went_well(key)
            yield HandleMessages()

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
        return self._pauses.first_end(key for key in self._due if key not in self._asked)

    def look_seconds(self) -> float:
        """Return after how many seconds to look whether a question is answered; infinity without one."""
        return LOOK_SECONDS if self._asked else math.inf

    async def _ask(self, run: Run, arm_id: int) -> Work:
        """Ask the procedure of one arm, and carry out its decisions unless it takes long. Other runs continue while
        much is read or recorded.
        """
        arms = [arm for arm in run.arms if arm.arm_id == arm_id or covers_all_arms(run)]
        trials: dict[int, Mapping[int, TrialHistory]] = {}
        for arm in arms:
            async for effect in self._histories.read(run, arm.arm_id):
                yield effect
            trials[arm.arm_id] = self._histories.of_arm(arm.arm_id)
        is_open = self._dispatcher.runs[run.run_id].arms.is_open
        held = {arm.arm_id for arm in arms if not is_open(arm.arm_id)}
        assert run.search is not None
        ids = [arm.arm_id for arm in run.arms]
        question = Question(run.search, run.max_seconds, ids, arm_id, arms, trials, held)
        asked = Asked(run, arm_id, arms, self._answering.ask(run.tenant, question.answer, ANSWER_SECONDS))
        if not asked.pending.done():
            self._asked[run.run_id, arm_id] = asked
            return
        async for effect in self._carry_out(asked):
            yield effect

    async def _carry_out(self, asked: Asked) -> Work:
        run, arm_id, answer = asked.run, asked.arm_id, asked.pending.result()
        if self._searched(run.run_id) is None:  # it ended meanwhile
            return
        (self._waiting.add if answer.is_waiting else self._waiting.discard)(run.run_id)
        for arm in asked.arms if answer.is_end else ():
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
