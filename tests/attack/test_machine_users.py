"""Other users of the machine: what they can read of a private server, and what they can prepare for it."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.errors import NotAllowed
from easeml_db.local import cluster, coordinator_process, server
from easeml_db.local.cluster import initialise
from easeml_db.local.facts_file import remember
from easeml_db.local.private_files import (
    check_folder,
    make_private_folder,
    open_to_append,
    own_target,
    write_private,
)
from easeml_db.local.server import Embedded
from easeml_db.postgres.chores.refreshes import advance_as

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

NOBODY = 65534


@pytest.fixture
def everybody_reads() -> Iterator[None]:
    """A umask that takes nothing away, as some machines have it."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("everybody_reads")
def test_the_password_is_nobody_elses_from_its_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[int, int]] = []
    open_file = os.open

    def watched(path: object, flags: int, mode: int = 0o777, **named: object) -> int:
        opened.append((flags, mode))
        return open_file(path, flags, mode, **named)  # type: ignore[arg-type]

    class Made:
        returncode = 0

    def initdb(command: list[str | Path], **_: object) -> type[Made]:
        Path(command[command.index("-D") + 1]).mkdir()
        return Made

    monkeypatch.setattr(os, "open", watched)
    monkeypatch.setattr(cluster, "run_as_server", initdb)
    cluster.initialise(tmp_path / "cluster", tmp_path)
    assert opened
    assert all(flags & os.O_EXCL and flags & os.O_NOFOLLOW and mode == 0o600 for flags, mode in opened)
    assert mode_of(tmp_path / "password") == 0o600
    assert len((tmp_path / "password").read_text()) > 20


def test_a_prepared_password_file_is_replaced_and_not_written_to(tmp_path: Path) -> None:
    prey = tmp_path / "prey"
    prey.write_text("mine")
    (tmp_path / "password").symlink_to(prey)
    write_private(tmp_path / "password", "secret")
    assert prey.read_text() == "mine"
    assert not (tmp_path / "password").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["password", "prey"]


def test_a_folder_that_is_made_is_closed_to_others(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "socket")
    make_private_folder(tmp_path / "socket")
    assert mode_of(tmp_path / "socket") == 0o700


@pytest.mark.parametrize("prepared", ["link", "link to a folder of ours", "open folder", "file"])
def test_a_prepared_folder_is_refused(tmp_path: Path, prepared: str) -> None:
    place, other = tmp_path / "easeml-0123", tmp_path / "other"
    if prepared == "file":
        place.write_text("")
    elif prepared == "open folder":
        place.mkdir()
        place.chmod(0o777)
    else:
        other.mkdir(mode=0o700)
        place.symlink_to(other if prepared == "link to a folder of ours" else tmp_path / "nowhere")
    with pytest.raises(NotAllowed, match="easeml-0123 is ") as refused:
        make_private_folder(place)
    assert refused.value.hint
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    place.mkdir(mode=0o700)
    os.chown(place, NOBODY, NOBODY)
    with pytest.raises(NotAllowed, match="belongs to user number 65534"):
        make_private_folder(place)


def test_the_short_folder_of_a_long_path_is_looked_at_before_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.tempfile, "gettempdir", lambda: str(tmp_path))
    embedded = Embedded(tmp_path / ("long" * 30))
    assert embedded.socket_folder.parent == tmp_path
    embedded.socket_folder.symlink_to(tmp_path / "prey")
    with pytest.raises(NotAllowed, match="symbolic link"):
        embedded.prepare_folders()


def test_a_data_folder_into_which_others_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(NotAllowed, match=r"open to others \(mode 777\)"):
        check_folder(tmp_path)


@pytest.mark.usefixtures("everybody_reads")
def test_the_coordinators_log_and_what_is_remembered_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Process:
        pid = 1

    monkeypatch.setattr(coordinator_process.subprocess, "Popen", lambda *_, **__: Process)
    monkeypatch.setattr(coordinator_process, "_children", [])
    coordinator_process.launch_coordinator(tmp_path, "host=nowhere")
    remember(tmp_path, port=1)
    assert {path.name: mode_of(path) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("coordinator.log", "coordinator.pid", "easeml.json"), 0o600
    )


def test_a_log_from_before_is_closed_and_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    log, prey = tmp_path / "coordinator.log", tmp_path / "prey"
    log.write_text("earlier\n")
    log.chmod(0o644)
    os.close(open_to_append(log))
    assert (mode_of(log), log.read_text()) == (0o600, "earlier\n")
    log.unlink()
    log.symlink_to(prey)
    with pytest.raises(NotAllowed, match="cannot be opened"):
        open_to_append(log)
    assert not prey.exists()


def test_a_hard_link_in_the_place_of_the_log_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "prey").write_text("")
    os.link(tmp_path / "prey", tmp_path / "coordinator.log")
    with pytest.raises(NotAllowed, match="no file of the server's alone"):
        open_to_append(tmp_path / "coordinator.log")


def test_a_data_folder_behind_a_link_of_ones_own_is_fine_and_is_looked_at(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.mkdir(mode=0o755)
    link.symlink_to(target)
    assert own_target(link) == target.resolve()
    assert own_target(target) == target


@pytest.mark.skipif(os.geteuid() != 0, reason="only root keeps its environment where others could have been first")
@pytest.mark.parametrize("prepared", ["link", "open", "theirs"])
def test_a_prepared_environment_is_refused(tmp_path: Path, prepared: str) -> None:
    venv = tmp_path / "easeml" / "venv"
    venv.parent.mkdir(mode=0o755)
    if prepared == "link":
        venv.symlink_to(tmp_path)
    else:
        venv.mkdir(mode=0o755)
        venv.chmod(0o777 if prepared == "open" else 0o755)
        os.chown(venv, NOBODY if prepared == "theirs" else 0, 0)
    command = ["bash", str(Path(__file__).parents[2] / "docker" / "bootstrap.sh"), str(venv), "environment"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is a link, belongs to somebody else or is open to others" in done.stderr


# On a running server


def test_files_of_a_running_server_are_its_users_alone(private_server: Embedded) -> None:
    folder = private_server.folder
    assert mode_of(private_server.socket_folder) == mode_of(private_server.cluster) == 0o700
    for name in ("password", "easeml.json", "server.log"):
        assert mode_of(folder / name) == 0o600, name
    assert mode_of(private_server.socket_folder / f".s.PGSQL.{private_server.facts['port']}") == 0o700


EXPECTED_SETTINGS = {
    "password_encryption": "scram-sha-256",
    "listen_addresses": "127.0.0.1",
    "idle_in_transaction_session_timeout": "10min",
    "temp_file_limit": "20GB",
    "log_connections": "on",
    "log_disconnections": "on",
    "log_lock_waits": "on",
    "client_connection_check_interval": "1s",
    "unix_socket_permissions": "0700",
}


def test_settings_are_those_of_a_server_that_others_reach(module_database: Session) -> None:
    found = {name: module_database.value("SELECT current_setting(%s)", name) for name in EXPECTED_SETTINGS}
    assert found == EXPECTED_SETTINGS


def test_nobody_comes_in_over_tcp_without_a_password(module_database: Session) -> None:
    rules = module_database.rows("SELECT type, auth_method FROM pg_hba_file_rules")
    assert {rule["auth_method"] for rule in rules if rule["type"].startswith("host")} == {"scram-sha-256"}
    assert module_database.value("SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'").startswith("SCRAM-SHA")
    info = conninfo_to_dict(module_database.dsn) | {"host": "127.0.0.1", "password": "", "passfile": "/nonexistent"}
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(make_conninfo(**info))


def test_sessions_of_the_service_trust_no_schema_of_tenants(module_database: Session) -> None:
    service = module_database.as_role("easeml_service")
    assert service.value("SHOW search_path") == "pg_catalog, pg_temp"
    assert service.value("SHOW idle_in_transaction_session_timeout") == "1min"
    assert not module_database.value("SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = 'easeml_service'")


def test_a_folder_in_which_a_coordinator_was_started_has_nothing_that_its_processes_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever serves a server of one's own may stand in /tmp; a tenant's refresh begins a process there."""
    for name in ("easeml_db", "json", "click"):
        (tmp_path / f"{name}.py").write_text("open('was-run', 'w').close()\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    said = asyncio.run(advance_as(f"host={tmp_path}/nowhere dbname=easeml user=service", "anna", "houses"))
    assert said is not None
    assert not (tmp_path / "was-run").exists()
    assert f"{tmp_path}/nowhere" in said, "it came as far as the server that is not there"


def test_a_folder_that_holds_something_else_is_taken_over_by_no_server(tmp_path: Path) -> None:
    """The server's user would own it, and `easeml destroy` would remove it."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(NotAllowed, match=r"holds thesis\.tex"):
        Embedded(tmp_path).prepare_folders()
    assert tmp_path.stat().st_uid == os.geteuid()
    (tmp_path / "thesis.tex").rename(tmp_path / "lost+found")
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "of-cats.png").write_text("meow")
    with pytest.raises(NotAllowed, match="no data directory of PostgreSQL"):
        initialise(tmp_path / "cluster", Path("/nowhere"))
    assert (tmp_path / "cluster" / "of-cats.png").exists()


def test_a_server_removes_what_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "easeml.json").write_text("{}")
    (tmp_path / "socket").mkdir()
    (tmp_path / "notes.txt").write_text("put here later")
    Embedded(tmp_path).remove()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "notes.txt").unlink()
    Embedded(tmp_path).remove()
    assert not tmp_path.exists()
