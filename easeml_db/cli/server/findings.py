"""The judgements of the doctor: facts in, findings out."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from easeml_db import __version__
from easeml_db.cli.terminal.statements import Row
from easeml_db.local.binaries import MIN_MAJOR
from easeml_db.local.processes import WAITING_THREADS

REQUIRED = ("numpy", "torch", "safetensors", "easeml_plpy", "easeml_db")
OWN = ("easeml_plpy", "easeml_db")
LONGEST_VACUUM_PAUSE = 10  # seconds


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: its subject, its result (ok, warn, fault), a message, a remedy."""

    check: str
    status: Literal["ok", "warn", "fault"]
    message: str
    todo: str = ""


@dataclass(frozen=True)
class Environment:
    """The environment of this very command: its Python and the folder its packages are in."""

    python: str
    libraries: str
    closed_folder: str | None


def this_environment() -> Environment:
    """Return where the running package is installed, and which folder keeps other users out of it."""
    import easeml_plpy

    libraries = Path(easeml_plpy.__file__).resolve().parent.parent
    closed = next(
        (str(folder) for folder in (libraries, *libraries.parents) if not folder.stat().st_mode & 0o001), None
    )
    return Environment(sys.version.split()[0], str(libraries), closed)


def server_finding(server: Row) -> Finding:
    """Check the server's version."""
    message = f"PostgreSQL {server['version']}, database {server['database']}"
    if server["major"] < MIN_MAJOR:
        return Finding("server", "fault", message, f"Use PostgreSQL {MIN_MAJOR} or newer.")
    return Finding("server", "ok", message)


def vacuum_finding(server: Row) -> Finding:
    """Check that what pruned states leave is freed soon: before PostgreSQL 17 the coordinator may not vacuum."""
    seconds = server["autovacuum_seconds"]
    if server["major"] >= 17 or (seconds is not None and seconds <= LONGEST_VACUUM_PAUSE):
        return Finding("vacuum", "ok", "states that are pruned make room")
    message = "autovacuum is off" if seconds is None else f"autovacuum looks only every {seconds} s"
    todo = (
        "Pruned states take disk until then. As a superuser: ALTER SYSTEM SET autovacuum_naptime = '1s', and"
        " autovacuum = on; SELECT pg_reload_conf();"
    )
    return Finding("vacuum", "warn", message, todo)


def plpython_finding(server: Row) -> Finding:
    """Check that the server has PL/Python."""
    if server["has_plpython3u"]:
        return Finding("plpython3u", "ok", "available")
    todo = f"On the server's machine: apt-get install postgresql-plpython3-{server['major']}"
    return Finding("plpython3u", "fault", "the server has no PL/Python", todo)


def extension_finding(server: Row) -> Finding:
    """Check that the extension is there in the version of this package."""
    installed, available = server["installed_version"], server["available_version"]
    files = "" if available == __version__ else "On the server's machine, as root: easeml install --files-only\n"
    if installed is None:
        todo = f"{files}As a superuser in this database: CREATE EXTENSION easeml CASCADE;"
        return Finding("extension", "fault", f"easeml is not installed in database {server['database']}", todo)
    if installed != __version__:
        message = f"easeml {installed} is installed, this package is {__version__}"
        return Finding(
            "extension", "fault", message, f"{files}As a superuser: ALTER EXTENSION easeml UPDATE TO '{__version__}';"
        )
    return Finding("extension", "ok", f"easeml {installed}")


def python_finding(facts: Row, here: Environment) -> Finding:
    """Check that the server's Python can load this environment's compiled packages."""
    theirs, ours = _minor(facts["python"]), _minor(here.python)
    message = f"the server runs Python {facts['python']}"
    if theirs == ours:
        return Finding("python", "ok", message)
    message += f", this environment is of {here.python}"
    todo = f"Make the environment with the server's Python: python{theirs} -m venv ..."
    return Finding("python", "fault" if facts["faults"] else "warn", message, todo)


def module_findings(facts: Row, here: Environment, server: Row, *, is_private: bool) -> Iterator[Finding]:
    """Check each package that the server needs: found, in the right version, from the right place."""
    how = how_to_find_packages(here, server, is_private=is_private)
    package = facts["modules"].get("easeml_plpy")
    for name in (*REQUIRED, "sklearn"):
        if name in facts["faults"]:
            status: Literal["warn", "fault"] = "fault" if name in REQUIRED else "warn"
            yield Finding(name, status, facts["faults"][name], how)
        elif name in facts["modules"]:
            yield _module_finding(name, facts["modules"][name], package, how)


def _module_finding(name: str, module: Row, package: Row | None, how: str) -> Finding:
    message = f"{module['version']} in {_folder(module)}"
    if name in OWN and module["version"] != __version__:
        message = f"the server has {message}, this package is {__version__}"
        return Finding(name, "fault", message, f"{how}\nThen restart coordinators and reconnect open sessions.")
    if name == "numpy" and package and _folder(module) != _folder(package):
        message += f", not beside easeml_plpy in {_folder(package)}"
        return Finding(
            name, "warn", message, f"Packages of two places break each other: name the environment first.\n{how}"
        )
    return Finding(name, "ok", message)


def how_to_find_packages(here: Environment, server: Row, *, is_private: bool) -> str:
    """Return the setting that makes the server find this environment's packages."""
    closed = f"Let the server's user into {here.closed_folder} (chmod o+x), or move the environment.\n"
    prefix = closed if here.closed_folder else ""
    if is_private:
        return f"{prefix}Start the private server from this environment: easeml down; easeml up"
    settings = {"PYTHONPATH": here.libraries, **WAITING_THREADS}
    lines = "\n".join(f"{name} = '{value}'" for name, value in settings.items())
    return f"{prefix}{_where_to_set(server)}\n{lines}"


def _where_to_set(server: Row) -> str:
    """Return the files to set: Debian has them in /etc/postgresql/VERSION/CLUSTER, with the environment beside them."""
    parts = Path(server["config_file"] or f"/etc/postgresql/{server['major']}/main/postgresql.conf").parts
    if len(parts) < 5 or parts[:3] != ("/", "etc", "postgresql"):
        return "Set these in the environment of whatever starts the server, then restart it:"
    version, cluster = parts[3:5]
    folder = f"/etc/postgresql/{version}/{cluster}"
    return f"Put these lines into {folder}/environment, then: pg_ctlcluster {version} {cluster} restart"


def device_finding(facts: Row) -> Finding:
    """Report the devices that torch sees in the server."""
    devices = facts.get("devices")
    if not devices:
        return Finding("devices", "fault", "unknown without torch", "See torch above.")
    return Finding("devices", "ok", ", ".join(devices))


def segment_findings(segments: Sequence[Row]) -> Iterator[Finding]:
    """Report the segments that are other servers, and what the last check had against each."""
    nodes = [segment for segment in segments if segment["service"] is not None]
    able = [node["segment_name"] for node in nodes if node["refusal"] is None]
    if able:
        yield Finding("segments", "ok", f"nothing is known against {', '.join(able[:8])}")
    for node in nodes:
        if node["refusal"] is not None:
            todo = f"easeml segment check {node['segment_name']}"
            yield Finding("segments", "fault", f"{node['segment_name']} trains nothing: {node['refusal']}", todo)


def service_findings(name: str, facts: Row, readers: Mapping[str, str]) -> Iterator[Finding]:
    """Report what the role of the service may do on a node beyond its work, and which readers are missing. `readers`:
    the role that each of them reads for.
    """
    service = facts.get("service")
    if service is None:
        return
    role, on_node = service["role"], f"On the server of {name}, as an administrator: "
    if service["is_superuser"]:
        yield Finding("service", "fault", f"{name}: its role {role} is a superuser", f"{on_node}another role for it.")
    if service["groups"]:
        groups = ", ".join(service["groups"])
        todo = f"{on_node}REVOKE {groups} FROM {role};"
        yield Finding("service", "fault", f"{name}: role {role} of the service is a member of {groups}", todo)
    if service["tables"]:
        tables = ", ".join(service["tables"][:8])
        message = f"{name}: role {role} of the service may read {tables}; rows are read through readers alone"
        yield Finding("service", "warn", message, f"{on_node}REVOKE ALL ON {tables} FROM {role};")
    for reader, tenant in readers.items():
        if reader not in service["readers"]:
            todo = (
                f"easeml segment install SERVICE --reader {tenant}, by a service of a superuser there; then the owners"
                f" of the tables: GRANT SELECT ON ... TO {reader};"
            )
            message = (
                f"{name}: no role {reader} that the service is a member of: {tenant} cannot refresh datasets there"
            )
            yield Finding("service", "warn", message, todo)


def slot_findings(
    slots: Sequence[Row], facts: Row | None, n_cores: int | None, nodes: Collection[str] = ()
) -> Iterator[Finding]:
    """Check that there are slots, and that this machine has what they are bound to.

    Slots of `nodes`, segments that are other servers, name devices and use cores of those.
    """
    if not slots:
        yield Finding("slots", "fault", "there are none", "SELECT easeml.set_slots(2);")
        return
    yield Finding(
        "slots", "ok", ", ".join(f"{slot['slot_name']} ({slot['device']}, {slot['status']})" for slot in slots[:8])
    )
    slots = [slot for slot in slots if slot["segment_name"] not in nodes]
    devices = (facts or {}).get("devices")
    for slot in slots:
        if devices and slot["device"] not in devices and not slot["device"].startswith("cpu:"):
            message = f"{slot['slot_name']} is bound to {slot['device']}, the server sees {', '.join(devices)}"
            todo = f"SELECT easeml.set_slots({len(slots)}, device => 'cpu');"
            yield Finding("slots", "fault", message, todo)
    threads = {  # of a named share of the CPU, those of one of its slots
        slot["device"] if slot["device"] != "cpu" else slot["slot_name"]: slot["n_threads"]
        for slot in slots
        if slot["device"].startswith("cpu")
    }
    n_threads = sum(threads.values())
    if n_cores and n_threads > n_cores:
        message = f"{n_threads} threads on {n_cores} cores stand in each other's way"
        n_slots = min(len(slots), n_cores)
        yield Finding(
            "slots", "warn", message, f"SELECT easeml.set_slots({n_slots}, n_threads => {n_cores // n_slots});"
        )


def coordinator_finding(last: Row | None, *, is_private: bool) -> Finding:
    """Check that a coordinator is alive, and of this version."""
    todo = "easeml up" if is_private else "easeml coordinator --dsn ... (as a member of easeml_coordinator)"
    if last is None:
        return Finding("coordinator", "fault", "there has never been one", f"Start one: {todo}")
    who = f"process {last['process_id']} on {last['host']}"
    if not last["is_alive"]:
        message = f"{who}: last sign of life {last['heartbeat_age_seconds']:.0f} s ago" + (
            ", stopped in good order" if last["stopped_at"] else ""
        )
        return Finding("coordinator", "fault", message, f"Start one: {todo}. Open runs go on by themselves.")
    message = f"{who}, heartbeat {last['heartbeat_age_seconds']:.1f} s ago"
    if last["version"] != __version__:
        return Finding(
            "coordinator", "warn", f"{message}, version {last['version']}", f"Restart it with {__version__}."
        )
    return Finding("coordinator", "ok", message)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _folder(module: Row) -> str:
    """Return the folder on the path in which a package was found."""
    return str(Path(module["file"]).parent.parent)
