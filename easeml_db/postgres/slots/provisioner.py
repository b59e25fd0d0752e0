"""Provisioners: this server's own slots, and programs that an administrator has registered.

A program is called without a shell, as the coordinator's user, with the request in its environment; nothing that a
tenant wrote reaches it. It prints one JSON object. Each call has a timeout, after which the program and all that it has
started are killed; what it printed is kept, up to a bound.

    start   starts an instance for EASEML_REQUEST_ID, or finds the one that it has started for it already
    probe   {"status": "starting"}, {"status": "ready", "n_slots": 4, "device": "cuda:0"} or {"status": "gone"}
    stop    stops it; one that is gone is no error
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from easeml_db.coordinator.ports.messages import (
    InstanceBilled,
    InstanceDown,
    InstanceFailed,
    InstanceUp,
    Message,
    ProgramSaid,
)
from easeml_db.postgres import background
from easeml_db.words.instance import LOCAL, Instance, Programs

MAX_OUTPUT = 4000
CLOSE_SECONDS = 2.0
PROBE_SECONDS, WATCH_SECONDS = 1.0, 15.0  # between probes, of an instance that starts, and of one that is ready
MISSED_PROBES = 3  # in a row, until a ready instance counts as dead
DEVICE = re.compile(r"^(cpu(:[0-9]+)?|cuda:[0-9]+)$")
GONE = "its provisioner is gone from the tables: it cannot be stopped until there is one of that name again"
STATUSES = ("starting", "ready", "gone")


class ProgramFailed(Exception):
    """A program timed out, ended with an error, or printed unreadable output. The tenant of the run also sees the
    message; `output` is for administrators, because it may hold secrets.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True)
class Answer:
    """A program's answer about an instance."""

    status: str
    n_slots: int | None = None
    device: str | None = None


class Provisioners:
    """Provisioner on this machine; outcomes are delivered as messages."""

    def __init__(self, deliver: Callable[[Message], None], *, watch_seconds: float = WATCH_SECONDS) -> None:
        self._deliver, self._watch_seconds = deliver, watch_seconds
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def start(self, instance: Instance) -> None:
        """Start an instance, or find it, and watch it until it is stopped."""
        if instance.provisioner == LOCAL:
            self._deliver(InstanceBilled(instance.instance_id))
            self._deliver(InstanceUp(instance.instance_id))
            return
        programs = instance.programs
        if programs is None:
            self._deliver(InstanceFailed(instance.instance_id, GONE, is_stopping=True))
        else:
            self._run(instance, lambda: self._live(instance, programs))

    async def stop(self, instance: Instance) -> None:
        """Stop an instance, whether it is ready or not."""
        if instance.provisioner == LOCAL:
            self._deliver(InstanceDown(instance.instance_id))
            return
        programs = instance.programs
        if programs is None:
            self._deliver(InstanceFailed(instance.instance_id, GONE, is_stopping=True))
        else:
            self._run(instance, lambda: self._stop(instance, programs))

    async def close(self) -> None:
        """Stop watching; instances stay as they are."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _run(self, instance: Instance, work: Callable[[], Awaitable[None]]) -> None:
        """Do one thing at a time about an instance: whatever was under way ends first."""
        before = self._tasks.get(instance.instance_id)

        async def after() -> None:
            if before is not None:
                before.cancel()
                await asyncio.wait([before])
            await work()

        self._tasks[instance.instance_id] = background.begin(after())

    # The life of an instance

    async def _live(self, instance: Instance, programs: Programs) -> None:
        try:
            answer = await self._started(instance, programs)
        except ProgramFailed as error:
            await self._give_up(instance, programs, str(error))
            return
        if answer.n_slots != instance.n_slots:
            said = f"it has {answer.n_slots} slots, and was to have {instance.n_slots}"
            await self._give_up(instance, programs, said)
            return
        self._deliver(InstanceUp(instance.instance_id, answer.device))
        await self._give_up(instance, programs, await self._watched(instance, programs))

    async def _started(self, instance: Instance, programs: Programs) -> Answer:
        """Return the answer of a ready instance. An instance already started for this request is not started again."""
        end = time.monotonic() + programs.ready_seconds
        answer = await self._call(instance, "probe", programs)
        if answer.status == "gone":
            answer = await self._call(instance, "start", programs)
        self._deliver(InstanceBilled(instance.instance_id))
        while answer.status != "ready":
            if answer.status == "gone":
                raise ProgramFailed("it was started, and is gone")
            if time.monotonic() > end:
                raise ProgramFailed(f"it is not ready after {programs.ready_seconds:g} s")
            await asyncio.sleep(PROBE_SECONDS)
            answer = await self._call(instance, "probe", programs)
        return answer

    async def _watched(self, instance: Instance, programs: Programs) -> str:
        """Probe a ready instance for as long as it lives; return what became of it."""
        n_missed = 0
        while n_missed < MISSED_PROBES:
            await asyncio.sleep(self._watch_seconds)
            try:
                answer = await self._call(instance, "probe", programs)
                n_missed = 0
                if answer.status != "ready":
                    return f"it died: a probe says {answer.status}"
            except ProgramFailed as error:
                n_missed, last = n_missed + 1, str(error)
        return f"it died: {last}"

    async def _give_up(self, instance: Instance, programs: Programs, reason: str) -> None:
        """Stop an instance that does not do its work: it must not be paid for nothing."""
        try:
            await self._call(instance, "stop", programs)
        except ProgramFailed as error:
            said = f"{reason}; it cannot be stopped: {error}"
            self._deliver(InstanceFailed(instance.instance_id, said, is_stopping=True))
        else:
            self._deliver(InstanceFailed(instance.instance_id, reason))

    async def _stop(self, instance: Instance, programs: Programs) -> None:
        try:
            await self._call(instance, "stop", programs)
        except ProgramFailed as error:
            self._deliver(InstanceFailed(instance.instance_id, f"it cannot be stopped: {error}", is_stopping=True))
        else:
            self._deliver(InstanceDown(instance.instance_id))

    # Programs

    async def _call(self, instance: Instance, program: str, programs: Programs) -> Answer:
        """Call a program, and deliver its output. Raises ProgramFailed."""
        try:
            command = {"start": programs.start, "probe": programs.probe, "stop": programs.stop}[program]
            output = await call_program(command, _environment(instance), programs.timeout_seconds)
            answer = Answer("gone") if program == "stop" else read_answer(output)
        except ProgramFailed as error:
            self._deliver(ProgramSaid(instance.instance_id, program, str(error), error.output[-MAX_OUTPUT:]))
            raise ProgramFailed(f"{program}: {error}") from error
        if program != "probe":
            self._deliver(ProgramSaid(instance.instance_id, program, answer.status, output[-MAX_OUTPUT:]))
        return answer


def _environment(instance: Instance) -> dict[str, str]:
    """Return the environment of a program: numbers, and names that administrators chose."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": os.environ.get("HOME", "/"),
        "EASEML_REQUEST_ID": instance.request_id, "EASEML_INSTANCE_TYPE": instance.instance_type,
        "EASEML_N_SLOTS": str(instance.n_slots), "EASEML_DEVICE_KIND": instance.device_kind,
        "EASEML_PROVISIONER": instance.provisioner,
    }  # fmt: skip


async def call_program(command: tuple[str, ...], environment: dict[str, str], timeout_seconds: float) -> str:
    """Return the output of a program. One that takes too long is killed with everything that it has started.

    Raises ProgramFailed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise ProgramFailed(f"it cannot be called: {error}") from error
    try:
        output = await asyncio.wait_for(_read(process), timeout_seconds)
    except asyncio.TimeoutError:
        raise ProgramFailed(f"no answer within {timeout_seconds:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(asyncio.TimeoutError):  # the pipe closes with the last that holds it
            await asyncio.wait_for(_read(process), CLOSE_SECONDS)
    if process.returncode:
        raise ProgramFailed(f"it ended with status {process.returncode}", output)
    return output


async def _read(process: asyncio.subprocess.Process) -> str:
    """Return the end of a process's output, which holds its answer, once it has ended; the rest is thrown away."""
    kept = b""
    stream = process.stdout
    while stream is not None and (more := await stream.read(65536)):
        kept = (kept + more)[-4 * MAX_OUTPUT :]
    await process.wait()
    return kept.decode(errors="replace").replace("\0", "")


def read_answer(output: str) -> Answer:
    """Return the answer in the last line of a program's output. Raises ProgramFailed."""
    lines = [line for line in output.splitlines() if line.strip()]
    try:
        said = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or said.get("status") not in STATUSES:
        raise ProgramFailed(f'expected a line of JSON with a "status" of {", ".join(STATUSES)}, got another', output)
    n_slots, device = said.get("n_slots"), said.get("device")
    is_number = isinstance(n_slots, int) and not isinstance(n_slots, bool)
    if said["status"] == "ready" and not is_number:
        raise ProgramFailed("expected n_slots of a ready instance as a whole number, got something else", output)
    if device is not None and not (isinstance(device, str) and DEVICE.match(device)):
        raise ProgramFailed("expected a device such as cpu or cuda:0, got something else", output)
    return Answer(said["status"], n_slots if is_number else None, device)
