"""Reads a compose file strictly: keys that it does not know are refused, variables and merges resolved."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TOP = {"name", "services", "volumes"}
SERVICE = {
    "build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image", "mem_limit", "network_mode",
    "ports", "profiles", "pull_policy", "read_only", "restart", "security_opt", "shm_size", "stop_grace_period",
    "tmpfs", "user", "volumes",
}  # fmt: skip
BUILD = {"context", "dockerfile", "target", "args"}
HEALTHCHECK = {"test", "interval", "timeout", "retries", "start_period"}
CONDITIONS = {"service_healthy", "service_completed_successfully", "service_started"}
UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
VARIABLE = re.compile(r"\$\{(\w+)(:-([^}]*))?\}|(\$\$)|(\$)")


@dataclass(frozen=True)
class Mount:
    """What a service sees at a path: a named volume, or a file of this machine."""

    source: str
    target: str
    is_read_only: bool

    @property
    def is_file(self) -> bool:
        """Whether it is a file beside the compose file, and no volume."""
        return self.source.startswith(".")


@dataclass(frozen=True)
class Service:
    """One service, as the file has it."""

    name: str
    told: Mapping[str, Any]

    @property
    def command(self) -> list[str]:
        """The words of the command."""
        return [str(word) for word in self.told.get("command", [])]

    @property
    def environment(self) -> dict[str, str]:
        """Its variables."""
        return {name: str(value) for name, value in self.told.get("environment", {}).items()}

    @property
    def mounts(self) -> list[Mount]:
        """What it sees, of volumes and of this machine."""
        found = [text.split(":") for text in self.told.get("volumes", [])]
        return [Mount(source, target, options == ["ro"]) for source, target, *options in found]

    @property
    def depends_on(self) -> dict[str, str]:
        """Services that come first, and what is waited for."""
        return {name: str(of["condition"]) for name, of in self.told.get("depends_on", {}).items()}

    @property
    def tmpfs(self) -> dict[str, dict[str, str]]:
        """Folders in memory with their options."""
        found = {}
        for text in self.told.get("tmpfs", []):
            path, _, options = text.partition(":")
            found[path] = dict(each.split("=", 1) for each in options.split(",") if each)
        return found

    @property
    def ports(self) -> list[tuple[str, int, int]]:
        """Address and port of this machine, and the port of the service."""
        parts = [text.split(":") for text in self.told.get("ports", [])]
        return [(address, int(published), int(own)) for address, published, own in parts]

    @property
    def dsn(self) -> dict[str, str]:
        """The parts of its connection string."""
        return dict(part.split("=", 1) for part in shlex.split(self.environment.get("EASEML_DSN", "")))


@dataclass(frozen=True)
class Project:
    """A compose file: its name, its services in their order, its volumes."""

    path: Path
    name: str
    services: Mapping[str, Service]
    volumes: frozenset[str]

    def running(self, command: str) -> list[Service]:
        """Return the services whose command begins with a word."""
        return [service for service in self.services.values() if service.command[:1] == [command]]


def read_compose(path: Path, environment: Mapping[str, str] | None = None) -> Project:
    """Read a compose file, with the variables of an environment. Raises ValueError at what it does not know."""
    told = _resolved(yaml.safe_load(path.read_text(encoding="utf-8")), environment or {})
    _check("file", {key for key in told if not key.startswith("x-")}, TOP)
    services = {name: _service(name, value) for name, value in told["services"].items()}
    volumes = frozenset(told.get("volumes", {}))
    for service in services.values():
        _check(f"{service.name}: depends_on", set(service.depends_on), set(services))
        _check(f"{service.name}: condition", set(service.depends_on.values()), CONDITIONS)
        named = {mount.source for mount in service.mounts if not mount.is_file}
        _check(f"{service.name}: volumes", named, set(volumes))
    return Project(path, told["name"], services, volumes)


def _resolved(told: Any, environment: Mapping[str, str]) -> Any:
    """Put variables into every text of a document: after it is parsed, as Compose does."""
    if isinstance(told, dict):
        return {key: _resolved(value, environment) for key, value in told.items()}
    if isinstance(told, list):
        return [_resolved(value, environment) for value in told]
    return interpolated(told, environment) if isinstance(told, str) else told


def _service(name: str, told: dict[str, Any]) -> Service:
    _check(name, set(told), SERVICE)
    _check(f"{name}: build", set(told.get("build", {})), BUILD)
    _check(f"{name}: healthcheck", set(told.get("healthcheck", {})), HEALTHCHECK)
    for key in ("interval", "timeout", "start_period"):
        if key in told.get("healthcheck", {}):
            seconds(told["healthcheck"][key])
    for key in ("mem_limit", "shm_size"):
        n_bytes(told.get(key, 0))
    return Service(name, told)


def _check(what: str, found: set[str], known: set[str]) -> None:
    if unknown := found - known:
        raise ValueError(f"{what}: expected of {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")


def variables(text: str) -> set[str]:
    """Return the names of the variables that a file reads."""
    return {found[1] for found in VARIABLE.finditer(text) if found[1]}


def interpolated(text: str, environment: Mapping[str, str]) -> str:
    """Put values in place of ${NAME} and ${NAME:-default}. Raises ValueError at another $, and where there is none."""

    def value(found: re.Match[str]) -> str:
        if found[4]:
            return "$"
        if found[5] or (not found[2] and found[1] not in environment):
            raise ValueError(
                f"expected ${{NAME:-default}}, got {found[0]}, at {text[found.start() : found.end() + 20]!r}"
            )
        return environment.get(found[1]) or found[3] or ""

    return VARIABLE.sub(value, text)


def seconds(text: str) -> float:
    """Return a time like 5s, 2m or 1h in seconds."""
    found = re.fullmatch(r"(\d+)(s|m|h)", str(text))
    if not found:
        raise ValueError(f"expected a time like 5s, got {text!r}")
    return int(found[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0}[found[2]]


def n_bytes(text: str | int) -> int:
    """Return a size like 1gb in bytes."""
    found = re.fullmatch(r"(\d+)([a-z]*)", str(text).lower())
    if not found or found[2] not in UNITS:
        raise ValueError(f"expected a size like 8g, got {text!r}")
    return int(found[1]) * UNITS[found[2]]
