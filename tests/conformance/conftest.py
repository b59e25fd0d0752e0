"""Worlds that must keep what the coordinator's ports promise: one in memory, and one on a real PostgreSQL.

A test is a coroutine that is given a `world`; it runs on every world. A further engine adds a class and an entry of
WORLDS. `covers` names the port methods that a test is about; test_coverage.py finds methods that no test names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import make_conninfo

from tests import citus, greenplum
from tests.conformance.worlds.in_memory import InMemory
from tests.conformance.worlds.on_nodes import WarmOnCitus, WarmOnCitusCoordinator, WarmOnGreenplum, WarmOnNodes
from tests.conformance.worlds.on_postgres import OnPostgres, WarmOnPostgres
from tests.conformance.worlds.world import World
from tests.fixtures.databases import temporary_session
from tests.nodes import NODE_ROLE, service_file, two_nodes

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session


@pytest.fixture(scope="module")
def warm_on_postgres(module_database: Session) -> Iterator[WarmOnPostgres]:
    """One world for the tests of a module that are marked as warm."""
    world = WarmOnPostgres(module_database)
    yield world
    world.end()


def on_postgres(request: pytest.FixtureRequest) -> World:
    """Return a world with a database of its own, or that of the module's tests."""
    if request.node.get_closest_marker("warm"):
        world: World = request.getfixturevalue("warm_on_postgres")
        return world
    return OnPostgres(request.getfixturevalue("database"))


@pytest.fixture(scope="module")
def warm_on_nodes(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmOnNodes]:
    """One world for the tests of a module that run on nodes: the control server is a database, and so is each node."""
    with ExitStack() as stack:
        control = stack.enter_context(temporary_session(private_server))
        nodes = stack.enter_context(two_nodes(private_server, tmp_path_factory.mktemp("services")))
        world = WarmOnNodes(control, nodes)
        stack.callback(world.end)
        yield world


@pytest.fixture(scope="module")
def warm_on_citus(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmOnNodes]:
    """The same on two workers of a Citus cluster, a real one, by the same names."""
    folder = tmp_path_factory.mktemp("services")
    with ExitStack() as stack:
        control = stack.enter_context(temporary_session(private_server))
        cluster = stack.enter_context(citus.cluster_of(("real", "direct"), private_server, folder))
        workers = dict(zip(("east", "west"), cluster.workers.values(), strict=True))
        dsns = {name: make_conninfo(worker.dsn, user=NODE_ROLE) for name, worker in workers.items()}
        services = {f"{WarmOnCitus.services}{name}": dsn for name, dsn in dsns.items()}
        stack.enter_context(service_file(folder, services))
        world = WarmOnCitus(control, workers, "citus")
        stack.callback(world.end)
        yield world


@pytest.fixture(scope="module")
def warm_on_citus_coordinator(
    private_server: Embedded, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WarmOnCitusCoordinator]:
    """One world for the tests of a module whose units Citus delegates: a real cluster, or what looks like one."""
    with ExitStack() as stack:
        control = stack.enter_context(temporary_session(private_server))
        cluster = stack.enter_context(citus.coordinator_of(private_server))
        folder = tmp_path_factory.mktemp("services")
        dsns = {f"pg_cluster_{name}": dsn for name, dsn in zip(("east", "west"), cluster.dsns.values(), strict=True)}
        stack.enter_context(service_file(folder, dsns))
        world = WarmOnCitusCoordinator(control, cluster)
        stack.callback(world.end)
        yield world


@pytest.fixture(scope="module")
def warm_on_greenplum(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmOnGreenplum]:
    """One world for the tests of a module that run on a Greenplum cluster: a real one, or what looks like one."""
    with ExitStack() as stack:
        control = stack.enter_context(temporary_session(private_server))
        cluster = stack.enter_context(greenplum.cluster_of(private_server))
        dsn = make_conninfo(cluster.dsn, user=NODE_ROLE)
        stack.enter_context(service_file(tmp_path_factory.mktemp("services"), {"pg_cluster": dsn}))
        world = WarmOnGreenplum(control, cluster)
        stack.callback(world.end)
        yield world


# The worlds of a test that does not name its own by the marker `worlds`.
USUAL = ("simulated", "postgres")
WORLDS: dict[str, Callable[[pytest.FixtureRequest], World]] = {
    "simulated": lambda request: InMemory(),
    "postgres": on_postgres,
    "nodes": lambda request: request.getfixturevalue("warm_on_nodes"),
    "citus": lambda request: request.getfixturevalue("warm_on_citus"),
    "citus_coordinator": lambda request: request.getfixturevalue("warm_on_citus_coordinator"),
    "greenplum": lambda request: request.getfixturevalue("warm_on_greenplum"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on its worlds."""
    if "world" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("worlds")
        metafunc.parametrize("world", marker.args if marker else USUAL, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """One of the worlds, its ports not yet open."""
    return WORLDS[request.param](request)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Let the world of a test that is a coroutine run it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    arguments["world"].play(pyfuncitem.obj(**arguments))
    return True
