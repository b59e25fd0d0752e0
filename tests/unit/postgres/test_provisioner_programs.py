"""Programs that start and stop instances: what they may do wrong, and that each is called in bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from easeml_db.coordinator.ports.messages import (
    InstanceBilled,
    InstanceDown,
    InstanceFailed,
    InstanceUp,
    Message,
    ProgramSaid,
)
from easeml_db.postgres.slots.provisioner import MAX_OUTPUT, ProgramFailed, Provisioners, call_program, read_answer
from easeml_db.words.instance import Bill, Instance, Programs

READY = '{"status": "ready", "n_slots": 2}'
GOOD = f"""
case $1 in
start) echo started >> $0.there; echo '{READY}' ;;
probe) if [ -e $0.there ]; then echo '{READY}'; else echo '{{"status": "gone"}}'; fi ;;
stop) rm -f $0.there; echo stopped >> $0.stopped ;;
esac
"""


def instance_of(path: Path, text: str, *, timeout_seconds: float = 20.0) -> Instance:
    path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    path.chmod(0o755)
    calls = [(str(path), verb) for verb in ("start", "probe", "stop")]
    programs = Programs(*calls, timeout_seconds, 20.0)  # type: ignore[arg-type]
    return Instance(7, 1, "shelf", "small", 2, "requested", "r-7", Bill(1.0), programs=programs)


def told(instance: Instance, *, then_stop: bool = False) -> list[Message]:
    """What is heard of an instance up to InstanceUp, InstanceDown or InstanceFailed."""

    async def listen() -> list[Message]:
        heard: list[Message] = []
        news = asyncio.Event()

        def deliver(message: Message) -> None:
            heard.append(message)
            if isinstance(message, InstanceUp | InstanceDown | InstanceFailed):
                news.set()

        provisioners = Provisioners(deliver)
        await provisioners.start(instance)
        await news.wait()
        if then_stop:
            news.clear()
            await provisioners.stop(instance)
            await news.wait()
        await provisioners.close()
        return heard

    return asyncio.run(listen())


def test_an_instance_is_started_found_again_and_stopped(tmp_path: Path) -> None:
    instance = instance_of(tmp_path / "p", GOOD)
    first = told(instance)
    assert [type(message) for message in first] == [ProgramSaid, InstanceBilled, InstanceUp]
    again = told(instance, then_stop=True)  # as a successor does: it is there, and is not started again
    assert [type(message) for message in again] == [InstanceBilled, InstanceUp, ProgramSaid, InstanceDown]
    assert (tmp_path / "p.stopped").read_text(encoding="utf-8") == "stopped\n"
    assert not (tmp_path / "p.there").exists()


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("sleep 60", "start: no answer within 0.5 s"),
        ("echo no money >&2; exit 3", "start: it ended with status 3"),
        ("echo hello", 'expected a line of JSON with a "status"'),
        ("echo '[1]'", 'expected a line of JSON with a "status"'),
        ('echo \'{"status": "ready", "n_slots": "many"}\'', "expected n_slots of a ready instance as a whole number"),
        ('echo \'{"status": "ready", "n_slots": 2, "device": "tpu"}\'', "expected a device such as cpu or cuda:0"),
        ('echo \'{"status": "ready", "n_slots": 3}\'', "it has 3 slots, and was to have 2"),
        ('echo \'{"status": "gone"}\'', "it was started, and is gone"),
    ],
)
def test_what_a_program_does_wrong_fails_the_instance_which_is_stopped(tmp_path: Path, start: str, said: str) -> None:
    text = GOOD.replace(f"start) echo started >> $0.there; echo '{READY}'", f"start) {start}")
    is_slow = start.startswith("sleep")
    heard = told(instance_of(tmp_path / "p", text, timeout_seconds=0.5 if is_slow else 20.0))
    failed = heard[-1]
    assert isinstance(failed, InstanceFailed)
    assert said in failed.reason
    calls = {message.program: message for message in heard if isinstance(message, ProgramSaid)}
    for printed in ("no money", "hello", "many", "tpu"):  # for administrators, not for the tenant: it may hold secrets
        assert printed not in failed.reason
        assert (printed in calls["start"].output) == (printed in start)
    if not is_slow:  # on a busy machine, stopping may take longer than half a second, too
        assert not failed.is_stopping
        assert (tmp_path / "p.stopped").exists()


def test_an_instance_that_cannot_be_stopped_is_not_taken_for_gone(tmp_path: Path) -> None:
    text = GOOD.replace("stop) rm -f $0.there; echo stopped >> $0.stopped", "stop) exit 1")
    last = told(instance_of(tmp_path / "p", text), then_stop=True)[-1]
    assert isinstance(last, InstanceFailed)
    assert last.is_stopping


@pytest.mark.parametrize("then_stop", [False, True])
def test_an_instance_whose_provisioner_is_gone_is_not_taken_for_gone(then_stop: bool) -> None:
    """An administrator may delete rows: what runs goes on and is paid, so it must stay in the tables."""
    instance = Instance(7, 1, "shelf", "small", 2, "ready", "r-7", Bill(1.0))
    last = told(instance, then_stop=then_stop)[-1]
    assert isinstance(last, InstanceFailed)
    assert last.is_stopping


def test_a_program_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="it cannot be called"):
        asyncio.run(call_program((str(tmp_path / "none"),), {}, 5.0))


def test_output_is_bounded_and_what_a_program_leaves_behind_is_killed(tmp_path: Path) -> None:
    instance = instance_of(tmp_path / "p", "sleep 1000 & yes | head -c 2000000; exit 0", timeout_seconds=20.0)
    assert instance.programs is not None
    with pytest.raises(ProgramFailed, match="no answer within"):  # the child keeps the pipe open
        asyncio.run(call_program(instance.programs.start, {"PATH": "/usr/bin:/bin"}, 1.0))
    instance = instance_of(tmp_path / "q", "yes | head -c 2000000", timeout_seconds=20.0)
    assert instance.programs is not None
    assert len(asyncio.run(call_program(instance.programs.start, {"PATH": "/usr/bin:/bin"}, 20.0))) <= 4 * MAX_OUTPUT


def test_the_answer_of_a_program_that_talks_much_is_found_and_kept(tmp_path: Path) -> None:
    text = GOOD.replace("start) echo", "start) yes waiting | head -c 200000; echo", 1)
    heard = told(instance_of(tmp_path / "p", text))
    assert isinstance(heard[-1], InstanceUp)
    said = next(message for message in heard if isinstance(message, ProgramSaid))
    assert said.output.rstrip().endswith(READY)


def test_answers_are_read_from_the_last_line() -> None:
    answer = read_answer(f"starting up\n{READY}\n\n")
    assert (answer.status, answer.n_slots, answer.device) == ("ready", 2, None)
    with pytest.raises(ProgramFailed):
        read_answer("[" * 100_000)
