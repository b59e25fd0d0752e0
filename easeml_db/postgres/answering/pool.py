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
from typing import Any

from easeml_db.coordinator.ports.answering import Answered
from easeml_db.errors import EasemlError
from easeml_db.postgres.answering.fair_queue import FairQueue
from easeml_db.postgres.answering.worker import receive, send

N_PROCESSES = 2
# An answer within this time is waited for: the loop would lose as much by looking for other work.
SHORT_SECONDS = 0.002
CLOCK_SHARE = 6.0  # of the processor time: a question that has not ended by then on the clock is killed
COMMAND = (sys.executable, "-m", "easeml_db.postgres.answering.worker")
# One thread of linear algebra each: more would reserve address space, and take the slots' processors.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_Asked = tuple[Callable[[], Any], float, "Future[Any]"]


class AnsweringProcesses:
    """Answering by processes of this machine. They start when they are needed first, and again after a death."""

    def __init__(self, n_processes: int = N_PROCESSES) -> None:
        self._queue: FairQueue[_Asked] = FairQueue()
        self._n_processes = n_processes
        self._threads: list[_AnsweringThread] = []

    def ask(self, tenant: str, question: Callable[[], Answered], seconds: float) -> Future[Answered]:
        """Queue a question; return once it is answered, or after 2 ms."""
        while len(self._threads) < self._n_processes:
            self._threads.append(_AnsweringThread(self._queue))
            self._threads[-1].start()
        pending: Future[Answered] = Future()
        self._queue.put(tenant, (question, seconds, pending))
        wait([pending], SHORT_SECONDS)
        return pending

    def close(self) -> None:
        """End the processes; what is not answered is cancelled."""
        for _, _, pending in self._queue.close():
            pending.cancel()
        for thread in self._threads:
            thread.end()
        for thread in self._threads:
            thread.join()


class _AnsweringThread(threading.Thread):
    """Waits for one process, which it starts anew after a death."""

    def __init__(self, queue: FairQueue[_Asked]) -> None:
        super().__init__(name="answering", daemon=True)
        self._queue, self._process = queue, _Process()

    def run(self) -> None:
        while (taken := self._queue.take()) is not None:
            tenant, (question, seconds, pending) = taken
            if pending.set_running_or_notify_cancel():
                self._answer(question, seconds, pending)
            self._queue.done(tenant)
        self._process.close()

    def end(self) -> None:
        """Kill the process, whatever it does."""
        self._process.end()

    def _answer(self, question: Callable[[], Any], seconds: float, pending: Future[Any]) -> None:
        try:
            asked = pickle.dumps((seconds, question))
            is_error, answer = self._process.answer(asked, CLOCK_SHARE * seconds)
        except Exception as error:  # noqa: BLE001 - whoever waits for it raises it
            is_error, answer = True, error
        if is_error:
            pending.set_exception(answer)
        else:
            pending.set_result(answer)


class _Process:
    """A process that answers, and that is killed where it does not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._is_ended = False

    def answer(self, asked: bytes, clock_seconds: float) -> tuple[bool, Any]:
        """Return whether the answer is an error, and the answer. Raises EasemlError where the process dies of it."""
        process = self._started()
        killing = threading.Timer(clock_seconds, process.kill)
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
        if answered is None:
            self._forget(process)
            raise EasemlError("the process that computed it was killed: it took too long, or too much memory")
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
                raise EasemlError("the coordinator is stopping")
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
