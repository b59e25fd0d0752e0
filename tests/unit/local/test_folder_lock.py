"""The lock of a private server's folder: one command at a time, also where the folder is removed meanwhile."""

from __future__ import annotations

import fcntl
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from easeml_db.cli import commands
from easeml_db.cli.server import backup
from easeml_db.errors import NotAllowed, NotReady
from easeml_db.local.dump_files import Dump
from easeml_db.local.folder_contents import LOCK, remove_entries
from easeml_db.local.folder_lock import alone
from easeml_db.local.restores import Restored


def nothing() -> None:
    """Check nothing, tell nothing."""


def test_who_waits_begins_when_the_first_has_ended_even_if_it_removed_the_folder(tmp_path: Path) -> None:
    folder, seen, is_waiting = tmp_path / "server", [], threading.Event()

    def second() -> None:
        with alone(folder, lambda: folder.mkdir(exist_ok=True), is_waiting.set):
            seen.append("second")
            assert (folder / LOCK).stat().st_mode & 0o777 == 0o600

    other = threading.Thread(target=second)
    with alone(folder, folder.mkdir, nothing):
        other.start()
        assert is_waiting.wait(30)
        seen.append("first")
        remove_entries(folder)
        assert not folder.exists()
    other.join(30)
    assert seen == ["first", "second"]
    assert (folder / LOCK).exists()


def test_a_folder_that_is_gone_is_told_after_the_wait(tmp_path: Path) -> None:
    def check() -> None:
        raise NotReady("there is no private server")

    with pytest.raises(NotReady), alone(tmp_path / "server", check, nothing):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotAllowed), alone(tmp_path, nothing, nothing):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_the_lock_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []
    names = ["coordinator.log", LOCK, "server.log", "password"]
    for name in names:
        (tmp_path / name).touch()
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: (gone.append(path.name), unlink(path)))
    remove_entries(tmp_path)
    assert sorted(gone) == sorted(names)
    assert gone[-1] == LOCK


def test_a_restore_has_the_lock_from_before_the_coordinator_stops_until_it_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []

    def note(what: str) -> None:
        with (tmp_path / LOCK).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                seen.append((what, True))
            else:
                seen.append((what, False))

    class Server:
        folder, facts = tmp_path, {"binaries": "/nowhere"}
        dsn, is_running, coordinator_pid = staticmethod(lambda: "host=/nowhere"), lambda _: True, lambda _: 1
        stop_coordinator, start_coordinator = lambda _: note("stop"), lambda _: note("start")
        prepare = staticmethod(nothing)

    def restore(*_: object, **__: object) -> Restored:
        note("restore")
        return Restored("easeml", Dump(tmp_path, "0.2.0"), "all there", (), ())

    for name, instead in (
        ("embedded", lambda _: Server()), ("restore_file", restore), ("check", lambda *_: note("check")),
        ("wait_for_coordinator", lambda _: note("wait")),
        ("connect_now", lambda _: nullcontext()), ("close_private", lambda _: note("rights")),
    ):  # fmt: skip
        monkeypatch.setattr(backup, name, instead)
    file = tmp_path / "file"
    file.touch()
    result = CliRunner().invoke(commands, ["restore", str(file), "--data", str(tmp_path)], env={"EASEML_DSN": None})
    assert result.exit_code == 0, result.output
    note("end")
    held = [(what, True) for what in ("stop", "restore", "rights", "start", "wait")]
    assert seen == [("check", False), *held, ("end", False)]
