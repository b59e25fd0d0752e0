"""What a user does with the compose files, step by step, and what has to be true after each."""

from __future__ import annotations

import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.containers.compose import read_compose
from tests.containers.dockerfile import read_dockerfile
from tests.containers.running import Machine

CLONE = Path(__file__).resolve().parents[2]
MEMORY = 6 << 30
SHARE_OF_SLOTS = 0.75
LIMITS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'easeml slot 1'"


class Scene:
    """A machine, and a user at its shell."""

    def __init__(self, name: str, layers: Sequence[Path], folder: Path, **environment: str) -> None:
        project = read_compose(CLONE / "docker" / name, environment)
        self.machine = Machine(project, read_dockerfile(CLONE / "docker" / "Dockerfile").final, layers, folder)
        self.server = project.running("server")[0].name

    def step(self, what: str, act: Callable[[], object]) -> None:
        """Do something, and say what it was and how long it took."""
        began = time.monotonic()
        told = act()
        print(f"{time.monotonic() - began:7.1f} s  {what}{f': {told}' if told is not None else ''}", flush=True)

    def inside(self, service: str, *command: str) -> str:
        """Run a command in a service, which has to succeed."""
        done = self.machine.execute(service, command)
        assert done.returncode == 0, f"{service}: {' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def password(self) -> str:
        """Return the superuser's password, as the guide gets it."""
        return self.inside(self.server, "cat", "/var/lib/easeml/secrets/superuser")

    def psql(self, text: str, password: str | None = None, *, fails: bool = False) -> str:
        """Run SQL by psql of this machine, at the published port."""
        told = {**os.environ, "PGPASSWORD": self.password() if password is None else password}
        command = ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-qAt", "-h", "127.0.0.1", "-p", "5432", "-U", "postgres"]
        done = subprocess.run(
            [*command, "-c", text, "easeml"], env=told, capture_output=True, text=True, check=False, timeout=600
        )
        assert (done.returncode != 0) == fails, f"{text}: {done.stdout}{done.stderr}"
        return (done.stderr if fails else done.stdout).strip()

    def until(self, text: str, patience: float = 300) -> None:
        """Wait until a query says true."""
        deadline = time.monotonic() + patience
        while self.psql(text) != "t":
            assert time.monotonic() < deadline, f"not within {patience:.0f} s: {text}\n{self.logs()}"
            time.sleep(0.5)

    def logs(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(f"== {name}\n{found.said[-2000:]}" for name, found in self.machine.running.items())

    def rights(self, service: str) -> tuple[str, ...]:
        """Return user, effective capabilities and whether further rights are barred, of the first process."""
        status = (Path("/proc") / str(self.machine.running[service].pid) / "status").read_text(encoding="ascii")
        found = [
            re.search(rf"^{key}:\s+(\w+)", status, re.MULTILINE) for key in ("Uid", "CapEff", "CapBnd", "NoNewPrivs")
        ]
        return tuple(each[1] for each in found if each)

    def close(self) -> str:
        """Stop all services; each has to end by itself and well."""
        ended = self.machine.down()
        assert all(code == 0 for code, _ in ended.values()), ended
        return ", ".join(f"{name} {took:.1f} s" for name, (_, took) in ended.items())


def readme_statements() -> list[str]:
    """Return the SQL that the README begins with."""
    block = (CLONE / "README.md").read_text(encoding="utf-8").split("```sql\n")[1].split("```")[0]
    return [statement.strip() for statement in re.sub(r"--.*", "", block).split(";") if statement.strip()]


def one_server(layers: Sequence[Path], folder: Path) -> None:
    """compose.yaml: the README's SQL, rights, memory, a crash, a second start, stops."""
    scene = Scene("compose.yaml", layers, folder, EASEML_MEMORY=str(MEMORY), EASEML_SLOTS="2")
    scene.machine.open()
    scene.step("one server: up, until all are healthy", scene.machine.up)
    _check_rights(scene)
    scene.step("easeml load digits, in the container", lambda: scene.inside("db", "easeml", "load", "digits"))
    scene.step("psql from the host without the right password", lambda: _refused(scene))
    dataset, select, *answers = readme_statements()
    scene.step(f"psql from the host: {dataset[:60]}", lambda: scene.psql(dataset))
    scene.step(f"psql from the host: {select}", lambda: scene.psql(select))
    scene.step(
        "until the leaderboard fills",
        lambda: scene.until("SELECT count(validation_metric) > 0 FROM easeml.leaderboard"),
    )
    for statement in answers:
        scene.step(f"psql from the host: {statement[:60]}", partial(_n_rows, scene, statement))
    scene.step("the limit of a slot's memory", lambda: _limit(scene))
    scene.step("easeml doctor, in the container", lambda: scene.inside("db", "easeml", "doctor").count("\n"))
    recorded = "SELECT count(*) FROM easeml.training_timeline"
    goes_on = "SELECT count(*) > {} FROM easeml.training_timeline"
    scene.step("db killed while it trains", lambda: scene.machine.kill("db"))
    scene.step("db started again", lambda: scene.machine.start(scene.machine.project.services["db"]).log.name)
    scene.step("until it is healthy", lambda: scene.machine.wait("db", "service_healthy"))
    before = scene.psql(recorded)
    scene.step("until its run goes on", lambda: scene.until(goes_on.format(before)))
    scene.step("until the run ends", lambda: scene.until("SELECT bool_and(status = 'finished') FROM easeml.run_status"))
    told = scene.psql("SELECT count(*) FROM easeml.leaderboard"), scene.psql("SELECT count(*) FROM easeml.slots")
    scene.step("stop", scene.close)
    _check_stopped(folder / "db.log")
    scene.step("up again, with the console", lambda: scene.machine.up(["console"]))
    again = scene.psql("SELECT count(*) FROM easeml.leaderboard"), scene.psql("SELECT count(*) FROM easeml.slots")
    assert told == again, (told, again)
    assert folder.joinpath("db.log").read_text(encoding="utf-8").count("database system was interrupted") == 1
    scene.step("psql from the host: predict", lambda: scene.psql(answers[1]).count("\n") + 1)
    scene.step("the console at the host's port", lambda: _console(scene))
    scene.step("stop", scene.close)


def three_servers(layers: Sequence[Path], folder: Path) -> None:
    """compose.cluster.yaml: units on both nodes, hops between them, a node that is killed, a second start."""
    scene = Scene("compose.cluster.yaml", layers, folder)
    scene.machine.open()
    scene.step("three servers: up, until all are healthy", scene.machine.up)
    scene.step("easeml load digits", lambda: scene.inside("control", "easeml", "load", "digits"))
    scene.step("easeml segment", lambda: scene.inside("control", "easeml", "segment").replace("\n", " | "))
    scene.psql(
        "SELECT easeml.create_dataset('spread', 'public.digits', '{pixels}', 'label', n_partitions => 4,"
        " placement => 'bound')"
    )
    scene.psql("SELECT easeml.replicate_dataset('spread', 1)")
    scene.psql("SELECT easeml.select_models('spread', '{mlp}', n_configs => 8, max_epochs => 8)")
    scene.step("until the first unit of a node", lambda: scene.until(f"SELECT count(*) > 0 FROM ({PLACES}) p"))
    scene.step("east killed while it trains", lambda: scene.machine.kill("east"))
    scene.step("east started again", lambda: scene.machine.start(scene.machine.project.services["east"]).log.name)
    scene.step("until the run ends", lambda: scene.until("SELECT bool_and(status = 'finished') FROM easeml.run_status"))
    places = scene.psql(f"SELECT string_agg(segment_name || ' ' || n, ', ') FROM ({PLACES}) p")
    assert "east" in places, places
    assert "west" in places, places
    scene.step("units by segment", lambda: places)
    scene.step("hops", lambda: scene.psql("SELECT n_units, n_hops, bytes_hopped FROM easeml.run_traffic"))
    told = scene.psql("SELECT count(*), max(validation_metric) FROM easeml.leaderboard")
    scene.step("stop", scene.close)
    scene.step("up again", scene.machine.up)
    assert scene.psql("SELECT count(*), max(validation_metric) FROM easeml.leaderboard") == told
    assert scene.psql("SELECT count(*) FROM easeml.segment_status WHERE service IS NOT NULL") == "2"
    scene.step(
        "predict", lambda: scene.psql("SELECT easeml.predict('spread', pixels) FROM public.digits LIMIT 5").split()
    )
    scene.step("stop", scene.close)


PLACES = """SELECT g.segment_name, count(*) AS n FROM easeml.training_timeline u JOIN easeml.slots s USING (slot_id)
    JOIN easeml.segments g USING (segment_id) WHERE g.service IS NOT NULL GROUP BY 1 ORDER BY 1"""


def _check_rights(scene: Scene) -> None:
    none = "0" * 16
    assert scene.rights("db") == ("999", none, none, "1"), scene.rights("db")
    assert scene.rights("coordinator") == ("998", none, none, "1"), scene.rights("coordinator")
    assert scene.machine.execute("db", ["touch", "/new"]).returncode != 0
    assert scene.machine.execute("db", ["touch", "/var/lib/easeml/secrets/new"]).returncode != 0
    assert scene.machine.execute("coordinator", ["cat", "/var/lib/easeml/secrets/superuser"]).returncode != 0
    assert scene.machine.execute("coordinator", ["ls", "/var/lib/easeml/data"]).returncode != 0
    assert scene.inside("db", "stat", "-f", "-c", "%b %S", "/dev/shm") == f"{(1 << 30) // 4096} 4096"


def _n_rows(scene: Scene, statement: str) -> str:
    return f"{len(scene.psql(statement).splitlines())} rows"


def _refused(scene: Scene) -> str:
    said = [scene.psql("SELECT 1", password, fails=True) for password in ("", "another")]
    assert all("password" in each for each in said), said
    return "refused"


def _limit(scene: Scene) -> str:
    (pid,) = scene.psql(LIMITS).splitlines()
    text = scene.inside("db", "cat", f"/proc/{pid}/limits")
    found = re.search(r"Max data size\s+(\d+)", text)
    assert found, text
    assert int(found[1]) == int(SHARE_OF_SLOTS * MEMORY) // 2, text
    return f"{found[1]} bytes of {MEMORY} for two slots"


def _check_stopped(log: Path) -> None:
    text = log.read_text(encoding="utf-8")
    assert "received fast shutdown request" in text
    assert text.rstrip().endswith("database system is shut down"), text[-500:]


def _console(scene: Scene) -> str:
    deadline = time.monotonic() + 60
    while not (found := re.search(r"http://127\.0\.0\.1:8642\S+", scene.machine.running["console"].said)):
        assert time.monotonic() < deadline, scene.machine.running["console"].said
        time.sleep(0.2)
    with urllib.request.urlopen(found[0]) as page:
        assert page.status == 200
    try:
        urllib.request.urlopen("http://127.0.0.1:8642/login")
    except urllib.error.HTTPError as error:
        return f"200 with the key, {error.code} without"
    raise AssertionError("the console let somebody in without its key")
