"""Dockerfile, compose files, entrypoint and guide agree: what one of them names is there, and is called the same."""

from __future__ import annotations

import importlib.util
import re
import sys
from configparser import ConfigParser
from pathlib import Path
from types import ModuleType

import pytest
import tomllib

from easeml_db import __version__
from easeml_db.errors import InvalidArgument
from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.processes import available_cores
from easeml_db.local.server import DATABASE
from tests.containers.building import seen_files, variables
from tests.containers.compose import Project, Service, read_compose
from tests.containers.compose import variables as compose_variables
from tests.containers.dockerfile import Ignored, read_dockerfile

CLONE = Path(__file__).resolve().parents[2]
DOCKER = CLONE / "docker"
DOCKERFILE = read_dockerfile(DOCKER / "Dockerfile")
TEXT = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
FILES = ("compose.yaml", "compose.cluster.yaml", "compose.citus.yaml")
SERVICE_FILES = ("pg_service.conf", "pg_service.citus.conf")
PROJECTS = [read_compose(DOCKER / name) for name in FILES]
ONE, CLUSTER, CITUS = PROJECTS
KINDS = ("server", "node", "worker", "citus")
SERVICES = [pytest.param(project, service, id=f"{project.name}-{service.name}")
            for project in PROJECTS for service in project.services.values()]  # fmt: skip
GUIDE = (CLONE / "docs" / "guide.md").read_text(encoding="utf-8").split("### In containers")[1].split("\n## ")[0]
PROJECT = tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))
PASSWORDS = "/var/lib/easeml/secrets"
NODES = Path("/var/lib/easeml/nodes")
DATA = "/var/lib/easeml/data"
LIBPQ = {"PGPASSFILE", "PGSERVICEFILE"}


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    """docker/entrypoint.py as a module."""
    spec = importlib.util.spec_from_file_location("easeml_entrypoint", DOCKER / "entrypoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


ENTRYPOINT = (DOCKER / "entrypoint.py").read_text(encoding="utf-8")
READ = set(re.findall(r'environment\.get\("(\w+)"|environ\["(\w+)"\]', ENTRYPOINT))
READ = {name for pair in READ for name in pair if name}


# The image


def test_the_build_sees_every_file_that_it_copies_and_nothing_secret_or_large() -> None:
    seen = seen_files(CLONE, Ignored(CLONE / ".dockerignore"))
    for stage in DOCKERFILE.stages:
        for each in stage.all_of("COPY"):
            for source in each.words[:-1]:
                if "from" in each.flags:
                    assert DOCKERFILE.stage(each.flags["from"]).instructions
                else:
                    assert [path for path in seen if path == source or path.startswith(f"{source}/")], source
    assert {path.split("/")[0] for path in seen} == {
        "pyproject.toml", "README.md", "LICENSE", "easeml_db", "plpy", "loaders", "reader", "sql", "docker",
    }  # fmt: skip
    assert not [path for path in seen if path.endswith(".pyc") or "__pycache__" in path]


def test_the_wheel_is_made_of_all_that_the_package_consists_of() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    parts = {name.split("/")[0] for name in [*wheel["packages"], *wheel["force-include"]]}
    copied = {word for each in DOCKERFILE.stage("wheel").all_of("COPY") for word in each.words[:-1]}
    assert parts | {PROJECT["project"]["readme"], "pyproject.toml"} <= copied
    (tool,) = PROJECT["build-system"]["requires"]
    assert f"'{tool}'" in TEXT


def test_pytorch_and_the_extras_are_those_of_the_project() -> None:
    (default,) = {each.text for stage in DOCKERFILE.stages for each in stage.all_of("ARG") if "TORCH" in each.text}
    bootstrap = (DOCKER / "bootstrap.sh").read_text(encoding="utf-8")
    assert default == "TORCH=" + re.search(r"\$\{TORCH:-(\S+?)\}", bootstrap)[1]  # type: ignore[index]
    extras = re.search(r"requirements\.py ([a-z ]+) >", TEXT)
    assert extras
    assert set(extras[1].split()) == set(PROJECT["project"]["optional-dependencies"]) - {"test", "experiments"}
    assert re.search(r"install_packages\(\)", bootstrap)
    assert "bootstrap.sh /opt/easeml packages" in TEXT


def test_a_run_reads_only_variables_that_its_stage_has() -> None:
    for stage in DOCKERFILE.stages:
        known = {each.text.split("=")[0] for each in stage.all_of("ARG")} | set(stage.environment())
        for each in stage.all_of("RUN"):
            assert variables(each.text) <= known, each.text


def test_the_image_runs_as_the_servers_user_and_its_users_keep_their_numbers() -> None:
    assert DOCKERFILE.final.last("USER") == ["postgres"]
    assert DOCKERFILE.final.last("STOPSIGNAL") == ["SIGINT"]
    assert DOCKERFILE.final.last("EXPOSE") == ["5432"]
    assert DOCKERFILE.final.last("VOLUME") == [DATA]
    assert DOCKERFILE.final.last("ENTRYPOINT") == ["/usr/local/bin/easeml-entrypoint"]
    assert users() == {"postgres": "999", "easeml": "998"}
    for owner, group, mode, path in folders():
        assert {owner, group} <= set(users())
        assert mode[-1] == "0" or path == "/run/postgresql"
    assert {path for *_, path in folders()} == {DATA, PASSWORDS, "/run/postgresql"}


def users() -> dict[str, str]:
    """The users that the image makes, with their numbers; groups have the same."""
    made = re.findall(r"groupadd --system --gid (\d+) (\w+)", TEXT)
    useradd = re.findall(r"useradd --system --uid (\d+) .* (\w+)(?: \\)?\n", TEXT)
    found = {name: number for number, name in useradd}
    assert found == {name: number for number, name in made}
    return found


def folders() -> list[tuple[str, ...]]:
    """Owner, group, mode and path of the folders that the image makes."""
    return re.findall(r"install --directory --owner=(\w+) --group=(\w+) --mode=(\d+) (\S+)", TEXT)


# The compose files


@pytest.mark.parametrize(("project", "service"), SERVICES)
def test_a_service_is_of_the_image_and_has_no_more_rights_than_it_needs(project: Project, service: Service) -> None:
    told = service.told
    name = "easeml-db-citus" if project is CITUS else "easeml-db"
    assert told["image"] == f"{name}:{__version__}"
    assert told["pull_policy"] == "never"
    assert told["read_only"] is True
    assert told["cap_drop"] == ["ALL"]
    assert told["security_opt"] == ["no-new-privileges:true"]
    assert told.get("user", "postgres") in users()
    assert not any("password" in key.lower() for key in service.environment)


@pytest.mark.parametrize("project", PROJECTS, ids=FILES)
def test_one_service_builds_the_image_before_any_other_needs_it(project: Project) -> None:
    (builder,) = (service for service in project.services.values() if "build" in service.told)
    assert {service.told["image"] for service in project.services.values()} == {builder.told["image"]}
    assert all(builder.name in before(project, service) for service in project.services.values() if service != builder)
    assert not builder.told.get("profiles")
    build = builder.told["build"]
    assert build.get("target") == ("citus" if project is CITUS else None)
    assert (project.path.parent / build["context"] / build["dockerfile"]).resolve() == DOCKER / "Dockerfile"
    arguments = {each.text.split("=")[0] for stage in DOCKERFILE.stages for each in stage.all_of("ARG")}
    assert set(build["args"]) <= arguments
    defaults = {each.text for stage in DOCKERFILE.stages for each in stage.all_of("ARG")}
    assert {f"{name}={value}" for name, value in build["args"].items()} <= defaults


def before(project: Project, service: Service) -> set[str]:
    """The services that Compose starts before one, and so whenever somebody asks for that one alone."""
    return {name for each in service.depends_on for name in {each} | before(project, project.services[each])}


@pytest.mark.parametrize(("project", "service"), SERVICES)
def test_what_a_service_is_told_is_read_by_somebody(project: Project, service: Service, entrypoint: ModuleType) -> None:
    assert f'"{service.command[0]}"' in ENTRYPOINT
    assert set(service.environment) <= READ | LIBPQ
    entrypoint.settings_of(service.environment)
    test = service.told.get("healthcheck", {}).get("test", [])
    assert test == ["CMD", "easeml-entrypoint", "health", service.command[0]] or service.command[0] in (
        "passwords", "console",
    )  # fmt: skip
    assert not test or test[-1] in entrypoint.HEALTH


@pytest.mark.parametrize(("project", "service"), SERVICES)
def test_what_a_service_mounts_is_there_and_passwords_are_written_by_one_alone(
    project: Project, service: Service
) -> None:
    made = {path for *_, path in folders()}
    for mount in service.mounts:
        if mount.is_file:
            assert (project.path.parent / mount.source).is_file()
            assert mount.is_read_only
            assert mount.target in service.environment.values()
        else:
            assert mount.target in made or Path(mount.target).parent == NODES
            is_of_passwords = mount.target != DATA
            assert mount.is_read_only == (is_of_passwords and service.command != ["passwords"])
    for path, options in service.tmpfs.items():
        assert path == "/tmp" or {options["uid"], options["gid"]} == {users()["postgres"]}
        assert path == "/tmp" or path in made


@pytest.mark.parametrize("project", PROJECTS, ids=FILES)
def test_servers_have_volumes_of_their_own_and_start_after_the_passwords(project: Project) -> None:
    servers = [service for kind in KINDS for service in project.running(kind)]
    volumes = [mount.source for service in servers for mount in service.mounts if mount.target == DATA]
    assert len(volumes) == len(set(volumes)) == len(servers)
    drawn = {mount.source for drawer in project.running("passwords") for mount in drawer.mounts}
    assert project.volumes == {*volumes, *drawn}
    _passwords_are_known_where_they_are_needed(project, servers)
    workers = {service.name: "service_healthy" for service in project.running("worker")}
    for service in servers:
        others = workers if service.command == ["citus"] else {}
        (drawer,) = (each.name for each in project.running("passwords") if secrets_of(each) == secrets_of(service))
        assert service.depends_on == {drawer: "service_completed_successfully", **others}
        assert {"mem_limit", "shm_size", "stop_grace_period", "restart", "healthcheck"} <= set(service.told)
    (coordinator,) = project.running("coordinator")
    assert coordinator.depends_on == {service.name: "service_healthy" for service in servers}
    assert coordinator.told["user"] == "easeml"


def secrets_of(service: Service) -> str:
    """The volume with the passwords of a service."""
    (volume,) = (mount.source for mount in service.mounts if mount.target == PASSWORDS)
    return volume


def _passwords_are_known_where_they_are_needed(project: Project, servers: list[Service]) -> None:
    """No server has those of another, except within a Citus cluster; the coordinator has all, by the names of nodes."""
    alone = [secrets_of(server) for server in servers if server.command[0] in ("server", "node")]
    of_cluster = {secrets_of(server) for server in servers if server.command[0] in ("worker", "citus")}
    assert len({*alone, *of_cluster}) == len(alone) + len(of_cluster)
    assert len(of_cluster) <= 1
    (coordinator,) = project.running("coordinator")
    (control,) = project.running("server")
    nodes = {
        Path(mount.target).name: mount.source for mount in coordinator.mounts if Path(mount.target).parent == NODES
    }
    assert secrets_of(coordinator) == secrets_of(control)
    assert nodes == {server.name: secrets_of(server) for server in servers if server.command[0] in ("node", "worker")}


@pytest.mark.parametrize("project", PROJECTS, ids=FILES)
def test_connections_lead_to_the_server_on_its_port(project: Project) -> None:
    (server,) = project.running("server")
    (coordinator,) = project.running("coordinator")
    exposed = DOCKERFILE.final.last("EXPOSE")[0]
    told = {"host": server.name, "port": exposed, "dbname": DATABASE, "user": SERVICE_ROLE}
    assert coordinator.dsn == {**told, "connect_timeout": "5"}
    assert server.ports == [("127.0.0.1", 5432, int(exposed))]
    assert not [service.name for service in project.services.values() if service.ports and service is not server]
    for console in project.running("console"):
        assert console.dsn == {"host": "127.0.0.1", "port": "5432", "dbname": DATABASE}
        assert console.told["network_mode"] == "host"


@pytest.mark.parametrize(
    ("project", "kind", "engine", "path"),
    [(CLUSTER, "node", "postgres", SERVICE_FILES[0]), (CITUS, "worker", "citus", SERVICE_FILES[1])],
)
def test_segments_services_and_nodes_have_the_same_names(
    entrypoint: ModuleType, project: Project, kind: str, engine: str, path: str
) -> None:
    nodes = [service.name for service in project.running(kind)]
    (control,) = project.running("server")
    told = entrypoint.settings_of(control.environment)
    assert (told.segments, told.engine) == (dict.fromkeys(nodes, 1), engine)
    (coordinator,) = project.running("coordinator")
    assert f"./{path}" in {mount.source for mount in coordinator.mounts}
    services = ConfigParser()
    services.read(DOCKER / path, encoding="utf-8")
    assert services.sections() == [f"pg_{name}" for name in nodes]
    for name in nodes:
        assert dict(services[f"pg_{name}"]) == {
            "host": name, "port": DOCKERFILE.final.last("EXPOSE")[0], "dbname": DATABASE, "user": SERVICE_ROLE,
        }  # fmt: skip


def test_the_cluster_of_citus_is_made_of_its_coordinator_and_the_workers(entrypoint: ModuleType) -> None:
    (own,) = CITUS.running("citus")
    workers = [service.name for service in CITUS.running("worker")]
    assert entrypoint.settings_of(own.environment).cluster == (own.name, *workers)
    assert set(entrypoint.OF_CITUS) == {own.command[0], CITUS.services[workers[0]].command[0]}
    # The package is no part of the clone, and goes into no other image.
    assert [each.words[0] for each in DOCKERFILE.stage("citus").all_of("COPY")] == ["docker/packages"]
    assert "citus" not in {stage.name for stage in DOCKERFILE.needed(DOCKERFILE.final)}
    assert "docker/packages/*.deb" in (CLONE / ".gitignore").read_text(encoding="utf-8").splitlines()
    for stage in (DOCKERFILE.stage("citus"), DOCKERFILE.final):
        assert stage.last("USER") == ["postgres"]


# The guide, and secrets


def test_the_guide_names_what_there_is() -> None:
    asked = {name for path in FILES for name in compose_variables((DOCKER / path).read_text(encoding="utf-8"))}
    told = {
        name for row in re.findall(r"^\| (`[A-Z].*?`) \|", GUIDE, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert told == asked
    rows = re.findall(r"^\| `([a-z]+)` \|.*\| `(\w+)`", GUIDE, re.MULTILINE)
    assert dict(rows) == {service.name: service.told.get("user", "postgres") for service in ONE.services.values()}
    named = dict(zip(FILES, PROJECTS, strict=True))
    for options, service in re.findall(r"docker compose(.*?) exec (?:-T )?(\w+)", GUIDE):
        found = [project for name, project in named.items() if name in options] or [ONE]
        assert service in found[0].services
    for project, stanza in ((CLUSTER, "*Three servers.*"), (CITUS, "*A Citus cluster.*")):
        (told,) = [text for text in GUIDE.split("\n\n") if text.startswith(stanza)]
        servers = {service.name for kind in KINDS for service in project.running(kind)}
        assert servers <= set(re.findall(r"`(\w+)`", told)), servers
        assert {f"pg_{service.name}" for kind in ("node", "worker") for service in project.running(kind)} <= set(
            re.findall(r"`(pg_\w+)`", told)
        )
    for name in re.findall(r"compose\.[\w.]+", GUIDE):
        assert (DOCKER / name).is_file(), name
    for name in re.findall(r"--profile (\w+)", GUIDE):
        assert any(name in service.told.get("profiles", []) for service in ONE.services.values())
    for path in re.findall(r"/var/lib/easeml/[\w/]+", GUIDE):
        assert path.startswith(PASSWORDS), path
    assert f"easeml-db:{__version__}" in GUIDE


def test_paths_of_the_entrypoint_are_those_of_the_image(entrypoint: ModuleType) -> None:
    told = entrypoint.settings_of({})
    assert (str(told.data), str(told.secrets), str(told.sockets)) == (DATA, PASSWORDS, "/run/postgresql")
    assert str(told.port) == DOCKERFILE.final.last("EXPOSE")[0]
    assert DOCKERFILE.final.environment()["EASEML_DSN"] == f"host=/run/postgresql dbname={DATABASE} user=postgres"


@pytest.mark.parametrize("name", ["Dockerfile", *SERVICE_FILES, *FILES])
def test_no_file_has_a_secret_or_the_host_of_a_registry(name: str) -> None:
    text = (DOCKER / name).read_text(encoding="utf-8")
    assert not re.search(r"password\s*[=:]\s*\S|://", text, re.IGNORECASE)
    assert not re.search(r"\b[\w-]+\.(?:io|com|org|net|dev)\b", text)


def test_what_is_unknown_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("FROM a AS b\nADD x y\n", "FROM a AS b\nCOPY --chown=me x y\n", "RUN true\n", "FROM a\nCMD server\n"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"expected"):
            read_dockerfile(path)
    service = "services: {db: {image: x, %s}}\nvolumes: {data: }\nname: x\n"
    for text in (
        "privileged: true",
        "volumes: ['other:/x']",
        "mem_limit: much",
        "image: $HOME",
        "depends_on: {moon: {condition: service_healthy}}",
    ):
        path.write_text(service % text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"expected"):
            read_compose(path)


def test_variables_of_the_environment_take_the_place_of_defaults() -> None:
    project = read_compose(DOCKER / "compose.yaml", {"EASEML_PORT": "6000", "EASEML_MEMORY": "8g"})
    assert project.services["db"].ports == [("127.0.0.1", 6000, 5432)]
    assert project.services["db"].told["mem_limit"] == "8g"


def test_segments_that_are_not_told_as_they_should_be_are_refused(entrypoint: ModuleType) -> None:
    assert entrypoint.segments_of("") == {}
    assert entrypoint.segments_of("east:2 west:10") == {"east": 2, "west": 10}
    for text in ("east", "east:", ":1", "east:0", "east:1 east:1", "east:-1", "east:²"):
        with pytest.raises(InvalidArgument, match="EASEML_SEGMENTS"):
            entrypoint.segments_of(text)


def test_cores_are_those_that_the_time_of_a_container_fills(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    all_cores = available_cores(quota)
    for text, n_cores in (
        ("max 100000", all_cores),
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("99900000 100000", all_cores),
    ):
        quota.write_text(f"{text}\n", encoding="ascii")
        assert available_cores(quota) == n_cores
