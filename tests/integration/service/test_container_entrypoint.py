"""The image's entrypoint on real servers, without a container: it prepares once, updates, guards and ends well."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from easeml_db import __version__
from easeml_db.local.binaries import find_binaries
from easeml_db.local.cluster import SUPERUSER, is_initialised
from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.processes import server_identity, server_ids
from tests.containers.places import Place, down
from tests.disks import copy_folder, open_folder
from tests.fixtures.sessions import PATIENCE_SECONDS

SLOTS = "SELECT slot_id FROM easeml.slots ORDER BY slot_id"
POINTS = """CREATE TABLE public.points AS
    SELECT i AS id, sin(i) AS x, (sin(i) > 0)::int AS label FROM generate_series(1, 200) i"""
INITIALISE = """import sys
from pathlib import Path
from easeml_db.local.cluster import initialise
initialise(Path(sys.argv[1]) / "cluster", Path(sys.argv[2]))"""


@pytest.fixture
def empty() -> Iterator[Place]:
    """Empty volumes."""
    folder = open_folder()
    try:
        yield Place(folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def place(empty: Place) -> Place:
    """Volumes with passwords in them."""
    assert empty.run("passwords") == 0, empty.said
    return empty


@pytest.fixture(scope="module")
def prepared_once() -> Iterator[Path]:
    """Volumes of a server that has prepared itself and ended well."""
    folder = open_folder()
    try:
        place = Place(folder)
        assert place.run("passwords") == 0, place.said
        assert down(place.up()) == 0
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def prepared(prepared_once: Path, empty: Place) -> Place:
    """A copy of them: making a cluster and the extension takes longer than what a test of later starts does."""
    copy_folder(prepared_once, empty.folder)
    return empty


def state_of(place: Place) -> str:
    """How the server ended, as PostgreSQL wrote it down."""
    command = [find_binaries() / "pg_controldata", place.folder / "data" / "cluster"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env={"LC_ALL": "C"}).stdout
    return next(line.split(":")[1].strip() for line in told.splitlines() if line.startswith("Database cluster state"))


def change_secret(place: Place, name: str, text: str) -> None:
    """Put another secret in the place of one."""
    path = place.folder / "secrets" / name
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")
    os.chown(path, *server_ids())


def begin(place: Place) -> subprocess.Popen[bytes]:
    """Start a server and wait until it has begun to prepare itself."""
    lock = place.folder / "data" / "lock"
    lock.unlink(missing_ok=True)
    process = place.start("server")
    while not lock.exists():
        assert process.poll() is None, place.said
    return process


def begin_cluster(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start making a cluster and wait until its first folders stand; return the process and that of initdb."""
    others = set(folder.glob("*/pg_wal"))
    process = subprocess.Popen(
        [sys.executable, "-c", INITIALISE, folder, find_binaries()], cwd=folder, **server_identity()
    )
    while set(folder.glob("*/pg_wal")) <= others:
        assert process.poll() is None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii")
    return process, int(children.split()[0])


def train(place: Place) -> None:
    """Have a coordinator train a model of a table, as a user asks for it."""
    anna = "*:*:*:anna:known\n"
    change_secret(place, "pgpass", anna)
    with place.session() as session:
        session.execute(POINTS)
        session.execute("SELECT easeml.create_dataset('points', source => 'public.points', target => 'label')")
        coordinator = place.start(
            "coordinator", EASEML_DSN=place.dsn(SERVICE_ROLE, ""), PGPASSFILE=f"{place.folder}/secrets/.pgpass"
        )
        try:
            session.wait_until("SELECT easeml.has_live_coordinator()")
            session.execute("SELECT easeml.select_models('points', '{linear}', n_configs => 1, max_epochs => 1)")
            session.wait_until("SELECT bool_and(status = 'finished') FROM easeml.run_status")
            assert place.run("health", "coordinator") == 0, place.said
            passwords = place.folder / "secrets" / ".pgpass"
            assert stat.S_IMODE(passwords.stat().st_mode) == 0o600
            assert passwords.read_text(encoding="utf-8").endswith(f":{SERVICE_ROLE}:{place.secret('service')}\n{anna}")
        finally:
            assert down(coordinator) == 0
        session.wait_until("SELECT NOT easeml.has_live_coordinator()")  # a busy one ends before it has said so
        assert place.run("health", "coordinator") == 1


def test_a_server_is_prepared_once_and_trains(place: Place) -> None:
    place.settings["EASEML_SLOTS"] = "2"
    server = place.up()
    try:
        with place.session() as session:
            assert session.value("SELECT easeml.version()") == __version__
            assert len(session.rows(SLOTS)) == 2
            session.execute("SELECT easeml.set_slots(1)")
        train(place)
        assert down(server) == 0
        assert state_of(place) == "shut down"
        made = (place.folder / "data" / "cluster" / "PG_VERSION").stat()
        server = place.up()
        with place.session() as session:
            assert len(session.rows(SLOTS)) == 1, "slots are those that administrators set"
            assert session.value("SELECT count(*) FROM easeml.leaderboard") == 1
            assert session.value("SELECT label FROM public.points LIMIT 1") in (0, 1)
        assert (place.folder / "data" / "cluster" / "PG_VERSION").stat() == made
        assert place.run("health", "server") == 0, place.said
    finally:
        assert down(server) == 0


def test_only_who_says_the_password_comes_in_and_a_new_one_holds_from_the_next_start(place: Place) -> None:
    secrets = place.folder / "secrets"
    before = {name: place.secret(name) for name in ("superuser", "service")}
    assert {name: stat.S_IMODE((secrets / name).stat().st_mode) for name in before} == {
        "superuser": 0o400, "service": 0o440,
    }  # fmt: skip
    assert place.run("passwords") == 0
    assert place.run("passwords", "superuser") == place.run("passwords", "moon", told="x\n") == 1
    assert {name: place.secret(name) for name in before} == before
    server = place.up()
    try:
        for user, password in ((SUPERUSER, ""), (SUPERUSER, before["service"]), (SERVICE_ROLE, before["superuser"])):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(place.dsn(user, password))
        local = f"host={place.folder}/sockets port={place.port} dbname=easeml user={SERVICE_ROLE} passfile=/dev/null"
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(local)
        with place.session() as session:
            stored = session.values("SELECT rolpassword FROM pg_authid WHERE rolpassword IS NOT NULL")
        assert len(stored) == 2
        assert all(password.startswith("SCRAM-SHA-256$") for password in stored)
        assert down(server) == 0
        assert not (place.folder / "data" / "password").exists()
        assert place.run("passwords", "superuser", told="a new one\n") == 0, place.said
        assert stat.S_IMODE((secrets / "superuser").stat().st_mode) == 0o400
        server = place.up()
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(place.dsn(SUPERUSER, before["superuser"]))
        psycopg.connect(place.dsn(SUPERUSER, "a new one")).close()
    finally:
        assert down(server) == 0
    logs = "".join(path.read_text(encoding="utf-8") for path in place.folder.glob("*.log"))
    logs += (place.folder / "data" / "server.log").read_text(encoding="utf-8")
    assert not [password for password in (*before.values(), "a new one") if password in logs]


def test_a_newer_image_updates_the_extension_and_an_older_one_is_refused(prepared: Place) -> None:
    server = prepared.up()
    with prepared.session() as session:
        session.execute("DROP EXTENSION easeml CASCADE")
        session.execute("CREATE EXTENSION easeml VERSION '0.1.0' CASCADE")
    assert down(server) == 0
    facts = prepared.folder / "data" / "easeml.json"
    known = json.loads(facts.read_text(encoding="utf-8"))
    facts.write_text(json.dumps(known | {"extension_version": "0.1.0"}), encoding="utf-8")
    server = prepared.up()
    with prepared.session() as session:
        assert session.value("SELECT easeml.version()") == __version__
    assert down(server) == 0
    facts.write_text(json.dumps(known | {"extension_build": "of another clone"}), encoding="utf-8")
    assert prepared.run("server") == 1
    assert "another build" in prepared.said
    assert state_of(prepared) == "shut down"
    facts.write_text(json.dumps(known), encoding="utf-8")
    (prepared.folder / "data" / "cluster" / "PG_VERSION").write_text("9\n", encoding="ascii")
    assert prepared.run("server") == 1
    assert "made by PostgreSQL 9" in prepared.said


def test_two_containers_do_not_share_a_volume(prepared: Place) -> None:
    server = prepared.up()
    try:
        assert prepared.run("server") == 1
        assert "another container works on" in prepared.said
        assert prepared.run("health", "server") == 0
    finally:
        server.kill()
        server.wait()
    # All processes of a container end at once, these do not.
    with (prepared.folder / "data" / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    again = prepared.up()  # a server that was killed keeps nobody away, and recovers
    assert down(again) == 0
    assert state_of(prepared) == "shut down"


def test_whoever_is_stopped_while_it_prepares_goes_on_at_the_next_start(place: Place) -> None:
    password = place.secret("service")
    (place.folder / "secrets" / "service").unlink()
    os.mkfifo(place.folder / "secrets" / "service", 0o666)  # whoever reads it waits
    for number in (signal.SIGTERM, signal.SIGINT):
        assert down(begin(place), number) == 128 + number
    change_secret(place, "service", password)
    for number in (signal.SIGTERM, signal.SIGINT):
        down(begin(place), number)  # at any moment of its work
    server = place.up()
    with place.session() as session:
        assert session.value("SELECT easeml.version()") == __version__
    assert down(server) == 0


def test_a_node_serves_the_coordinator_and_control_knows_its_segments(place: Place) -> None:
    node = place.up("node")
    try:
        with psycopg.connect(place.dsn(SERVICE_ROLE)) as connection:
            assert connection.execute("SELECT easeml_segment.version()").fetchall() == [(__version__,)]
        assert place.run("health", "node") == 0, place.said
        assert place.run("health", "server") == 1
    finally:
        assert down(node) == 0
    node = place.up("node")
    assert down(node) == 0


def test_control_has_each_segment_once(prepared: Place) -> None:
    prepared.settings.update({"EASEML_SEGMENTS": "east:2 west:1", "EASEML_ENGINE": "citus"})
    for _ in range(2):
        server = prepared.up()
        with prepared.session() as session:
            found = session.rows(
                "SELECT segment_name, service, engine, n_slots FROM easeml.segment_status WHERE service IS NOT NULL"
                " ORDER BY 1"
            )
        assert down(server) == 0
        assert [tuple(row.values()) for row in found] == [
            ("east", "pg_east", "citus", 2), ("west", "pg_west", "citus", 1),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"EASEML_SLOTS": "many"}, "EASEML_SLOTS: expected a number from 1 to 1000, got 'many'"),
        ({"EASEML_SLOTS": "0"}, "EASEML_SLOTS"),
        ({"EASEML_PORT": "80"}, "EASEML_PORT: expected a number from 1024 to 65535, got '80'"),
        ({"EASEML_SEGMENTS": "east"}, "EASEML_SEGMENTS"),
        ({"EASEML_SEGMENTS": "east:1 east:2"}, "EASEML_SEGMENTS: expected each segment once as NAME:SLOTS"),
        ({"EASEML_ENGINE": "moon"}, "EASEML_ENGINE: expected postgres or citus, got 'moon'"),
        ({"kind": "citus"}, "EASEML_CLUSTER: expected the hosts of coordinator and workers, got ''"),
        ({"kind": "citus", "EASEML_CLUSTER": "citus"}, "EASEML_CLUSTER"),
        ({}, "secret superuser"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(empty: Place, settings: dict[str, str], said: str) -> None:
    kind = settings.get("kind", "server")
    empty.settings.update({name: value for name, value in settings.items() if name != "kind"})
    assert empty.run(kind) == 1
    assert said in empty.said
    assert not (empty.folder / "data" / "cluster").exists()


def test_root_is_refused_and_other_commands_run_as_they_are(empty: Place) -> None:
    if os.geteuid() == 0:
        done = subprocess.run(
            ["python3", empty.folder / "entrypoint.py", "server"], capture_output=True, text=True, check=False,
            env=empty.environment(), cwd="/",
        )  # fmt: skip
        assert (done.returncode, "PostgreSQL refuses to run as root" in done.stderr) == (1, True)
    assert empty.run("easeml", "--version") == 0
    assert __version__ in empty.said
    assert empty.run("health", "moon") == 1
    assert "expected one of server, node, worker, citus, coordinator" in empty.said


def test_a_cluster_is_made_beside_an_interrupted_attempt_that_is_still_at_work(empty: Place) -> None:
    folder = empty.folder / "data"
    first, initdb = begin_cluster(folder)
    os.kill(initdb, signal.SIGSTOP)
    first.kill()
    first.wait()
    second, _ = begin_cluster(folder)
    os.kill(initdb, signal.SIGCONT)
    assert second.wait(PATIENCE_SECONDS) == 0
    assert is_initialised(folder / "cluster")
    assert (folder / "cluster" / "postgresql.conf").stat().st_size > 0
