"""The package of a released version trains half a run; then server and package are updated under its coordinator."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

import easeml_plpy
from easeml_db import __version__
from easeml_db.local.preparation import SERVICE_ROLE, prepare_database
from easeml_db.local.processes import coordinator_environment
from easeml_db.local.server import Embedded
from tests.disks import open_folder
from tests.fixtures.servers import set_for_speed
from tests.fixtures.sessions import Session
from tests.integration.catalogue.test_upgrades import RELEASED, finished, start
from tests.released_package import unpack

if TYPE_CHECKING:
    Coordinator = Callable[[Session], AbstractContextManager[Any]]

N_SLOTS = 1
PACKAGES = ("easeml_db", "easeml_plpy", "easeml_loaders", "easeml_model")
N_HALF, N_ALL = 64, 128
# From half of the run on, no unit is recorded before the update waits for it: so it is the former package that has
# trained one half, and never the other, whoever is faster.
GATE = f"""
CREATE FUNCTION public.wait_for_the_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM easeml.training_units) >= {N_HALF} THEN
        WHILE NOT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE NOT granted) LOOP
            PERFORM pg_catalog.pg_sleep(0.01);
        END LOOP;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER gate BEFORE INSERT ON easeml.training_units FOR EACH ROW EXECUTE FUNCTION public.wait_for_the_update();
"""


class Former(Embedded):
    """A server that finds the packages in a folder of its own, as on a machine that has this version or another."""

    @property
    def packages(self) -> Path:
        """Where they are."""
        return self.folder / "packages"

    def environment(self) -> dict[str, str]:
        """Look there first."""
        return self.with_packages(super().environment())

    def with_packages(self, environment: dict[str, str]) -> dict[str, str]:
        """An environment that looks there first."""
        return environment | {"PYTHONPATH": f"{self.packages}:{environment['PYTHONPATH']}"}

    def install_released(self, version: str) -> None:
        """Put a released version there."""
        unpack(version, self.packages)
        subprocess.run(["chmod", "-R", "a+rX", self.packages], check=True)

    def install_present(self) -> None:
        """Put this version in its place."""
        installed = Path(easeml_plpy.__file__).resolve().parent.parent
        for name in PACKAGES:
            shutil.rmtree(self.packages / name)
            shutil.copytree(installed / name, self.packages / name)

    @contextmanager
    def coordinator(self, log: IO[str]) -> Iterator[subprocess.Popen[str]]:
        """A coordinator of the packages that are there now, killed at the end."""
        command = [sys.executable, "-c", "import easeml_db.__main__", "coordinator", "--dsn", self.dsn(SERVICE_ROLE)]
        environment = self.with_packages(coordinator_environment())
        process = subprocess.Popen(command, cwd="/", env=environment, stdout=log, stderr=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def former() -> Iterator[Former]:
    """An empty server."""
    server = Former(open_folder())
    try:
        server.start()
        set_for_speed(server)
        yield server
    finally:
        server.remove()


def prepare_released(server: Former, version: str) -> None:
    """Do by hand what `easeml up` of a released version did."""
    server.install_released(version)
    with Session.open(server.dsn(database="postgres")) as root:
        root.execute("CREATE DATABASE easeml")
    with Session.open(server.dsn()) as session:
        session.execute(f"CREATE EXTENSION easeml VERSION '{version}' CASCADE")
        session.execute(f"CREATE ROLE {SERVICE_ROLE} LOGIN IN ROLE easeml_coordinator")


@pytest.mark.parametrize("version", RELEASED)
def test_half_a_run_of_a_released_package_goes_on_to_the_same_bytes(
    former: Former, version: str, module_database: Session, coordinator: Coordinator, tmp_path: Path
) -> None:
    start(module_database)
    with coordinator(module_database):
        undisturbed = finished(module_database)
    assert len(undisturbed) == N_ALL
    prepare_released(former, version)
    with (tmp_path / "log").open("w+") as log, Session.open(former.dsn()) as session:
        start(session)
        session.execute(GATE)
        with former.coordinator(log) as released:
            session.wait_until("SELECT count(*) >= %s FROM easeml.training_units", N_HALF)
            former.install_present()
            prepare_database(session)
            n_released = session.value("SELECT count(*) FROM easeml.training_units")
            session.execute("DROP FUNCTION public.wait_for_the_update() CASCADE")
            assert N_HALF <= n_released < N_ALL
            with former.coordinator(log), Session.open(former.dsn()) as updated:
                assert finished(updated) == undisturbed
                by = updated.values("SELECT DISTINCT version FROM easeml.coordinators")
                assert sorted(by) == sorted([version, __version__])
                assert released.wait() == 1, "it cannot go on, and says so"
