"""The lock of a private server's folder: one command at a time, also where the folder is removed meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from easeml_db.errors import NotAllowed, NotReady
from easeml_db.local.folder_lock import alone
from easeml_db.local.own_entries import LOCK, remove_entries


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
