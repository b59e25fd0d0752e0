"""Processes that compute for the loop: a thread for each waits for it, so the loop's thread never computes.

A thread alone would share the interpreter with the loop, and nothing could end it or bound its memory.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from easeml_db.coordinator.ports.answering import Answered
from easeml_db.errors import EasemlError
from easeml_db.postgres.answering.fair_queue import FairQueue
from easeml_db.postgres.answering.outcomes import AskAgain
from easeml_db.postgres.answering.worker import receive, send

N_PROCESSES = 2  # the first for questions at first, the second for those that are known to take long
# An answer within this time is waited for: the loop would lose as much by looking for other work.
SHORT_SECONDS = 0.002
FIRST_SECONDS = 2.0  # of processor time; a question that takes longer is asked again where only such wait for it
CLOCK_SHARE = 6.0  # of the processor time: a question that has not ended by then on the clock is killed
STOPPING = "the coordinator is stopping"
KILLED = "the process that computed it was killed: it took too long, or too much memory"
COMMAND = (sys.executable, "-m", "easeml_db.postgres.answering.worker")
# One thread of linear algebra each: more would reserve address space, and take the slots' processors.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass
class _Asked:
    """A question; `is_blamed`: a process died of it, or lacked memory."""

    question: Callable[[], Any]
    seconds: float
    pending: Future[Any]
    is_blamed: bool = False


class AnsweringProcesses:
    """Answering by processes of this machine. They start when they are needed first, and again after a death."""

    def __init__(self) -> None:
        self._queue: FairQueue[_Asked] = FairQueue()
        self._threads: list[_AnsweringThread] = []

    def ask(self, tenant: str, question: Callable[[], Answered], seconds: float) -> Future[Answered]:
        """Queue a question; return once it is answered, or after 2 ms."""
        while len(self._threads) < N_PROCESSES:
            self._threads.append(_AnsweringThread(self._queue, is_long=bool(self._threads)))
            self._threads[-1].start()
        pending: Future[Answered] = Future()
        self._queue.put(tenant, _Asked(question, seconds, pending))
        wait([pending], SHORT_SECONDS)
        return pending

    def close(self) -> None:
        """End the processes; what is not answered is cancelled."""
        for thread in self._threads:
            thread.is_ending = True
        for asked in self._queue.close():
            if not asked.pending.cancel():
                asked.pending.set_exception(EasemlError(STOPPING))
        for thread in self._threads:
            thread.end()
        for thread in self._threads:
            thread.join()


class _AnsweringThread(threading.Thread):
    """Waits for one process, which it starts anew after a death."""

    def __init__(self, queue: FairQueue[_Asked], *, is_long: bool) -> None:
        super().__init__(name="answering", daemon=True)
        self._queue, self._process, self._is_long = queue, _Process(), is_long
        self.is_ending = False

    def run(self) -> None:
        while (taken := self._queue.take(is_long=self._is_long)) is not None:
            tenant, asked = taken
            if asked.pending.running() or asked.pending.set_running_or_notify_cancel():
                try:
                    answer = self._answer(asked)
                except AskAgain as error:
                    if self._is_put_back(tenant, asked, error):
                        continue
                    asked.pending.set_exception(EasemlError(str(error)))
                except Exception as error:  # noqa: BLE001 - whoever waits for it raises it
                    asked.pending.set_exception(error)
                else:
                    asked.pending.set_result(answer)
            self._queue.done(tenant)
        self._process.close()

    def end(self) -> None:
        """Kill the process, whatever it does."""
        self._process.end()

    def _is_put_back(self, tenant: str, asked: _Asked, error: AskAgain) -> bool:
        """Ask it once more, in a fresh process: it was slow, or met what it may not be to blame for. Return whether."""
        if self.is_ending or asked.is_blamed or (error.is_slow and (self._is_long or asked.seconds <= FIRST_SECONDS)):
            return False
        asked.is_blamed = not error.is_slow
        return self._queue.put_back(tenant, asked)

    def _answer(self, asked: _Asked) -> Any:
        seconds = asked.seconds if self._is_long else min(asked.seconds, FIRST_SECONDS)
        body = pickle.dumps((seconds, asked.question))
        if asked.is_blamed:
            self._process.close()
        is_error, answer = self._process.answer(body, CLOCK_SHARE * seconds)
        if not is_error:
            return answer
        if isinstance(answer, AskAgain) and not answer.is_slow:
            self._process.close()  # its memory is full
        raise answer


class _Process:
    """A process that answers, and that is killed where it does not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._is_ended = False

    def answer(self, asked: bytes, clock_seconds: float) -> tuple[bool, Any]:
        """Return whether the answer is an error, and the answer. Raises AskAgain where the process dies."""
        process = self._started()
        is_late, is_answered = threading.Event(), threading.Lock()

        def kill() -> None:
            if is_answered.acquire(blocking=False):  # whoever has it first: the next question meets no dying process
                is_late.set()
                process.kill()

        killing = threading.Timer(clock_seconds, kill)
        killing.daemon = True
        killing.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            send(process.stdin, asked)
            answered = receive(process.stdout)
        except OSError:
            answered = None
        finally:
            killing.cancel()
        if answered is None or not is_answered.acquire(blocking=False):
            self._forget(process)
            raise AskAgain(KILLED, is_slow=is_late.is_set())
        return pickle.loads(answered)  # type: ignore[no-any-return]  # noqa: S301 - our own process wrote it

    def end(self) -> None:
        """Kill it for good; whoever waits for its answer hears of it."""
        with self._lock:
            self._is_ended = True
            if self._running is not None:
                self._running.kill()

    def close(self) -> None:
        """Free what it had, once nobody waits for an answer."""
        if self._running is not None:
            self._forget(self._running)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_ended:
                raise EasemlError(STOPPING)
            if self._running is None or self._running.poll() is not None:
                environment = os.environ | dict.fromkeys(THREADS, "1")
                self._running = subprocess.Popen(
                    COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", env=environment,
                    start_new_session=True,
                )  # fmt: skip
            return self._running

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what it did not take any more
                    pipe.close()
        with self._lock:
            self._running = None
