"""Runs a compose file without a container runtime: each service in namespaces of its own, on the layers of the image.

A service has its own processes (the entrypoint is number 1), network, host name, mounts, user, no capabilities, and a
root that is read-only but for its volumes. What is not here: control groups (a limit of memory is told, not enforced),
the filter of system calls, and Docker's own parser of compose files.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.containers.building import overlaid
from tests.containers.compose import Mount, Project, Service, n_bytes, seconds
from tests.containers.dockerfile import Stage

NETWORK = "10.91.0"
CLOSED = "noexec,nosuid,nodev"  # as Docker mounts folders in memory
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@dataclass
class Running:
    """One service that runs: its first process, as this machine numbers it, and what it is."""

    service: Service
    process: subprocess.Popen[bytes]
    root: Path
    address: str
    log: Path

    @property
    def pid(self) -> int:
        """The number of the process that is number 1 in there."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text(encoding="ascii").split()[0])

    @property
    def said(self) -> str:
        """What it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@dataclass
class Machine:
    """The services of one compose file, over the layers of an image; it lives in a network and mounts of its own."""

    project: Project
    image: Stage
    layers: Sequence[Path]
    folder: Path
    running: dict[str, Running] = field(default_factory=dict)

    def open(self) -> None:
        """Make the network; volumes of the project stay from one machine to the next."""
        for command in ("link set lo up", "link add easeml0 type bridge", "link set easeml0 up"):
            _ip(command)
        _ip(f"addr add {NETWORK}.1/24 dev easeml0")
        self.folder.mkdir(parents=True, exist_ok=True)
        names = [f"{self._address(name)} {name}" for name in self.project.services]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]), encoding="utf-8")

    def up(self, profiles: Sequence[str] = ()) -> None:
        """Start every service once what it depends on is as it should be, and wait until all are healthy."""
        for service in self.project.services.values():
            if set(service.told.get("profiles", [])) <= set(profiles):
                self.start(service)
        for name in self.running:
            self.wait(name, "service_healthy")

    def start(self, service: Service) -> Running:
        """Start one service."""
        for name, condition in service.depends_on.items():
            self.wait(name, condition)
        root, log = self._root(service), self.folder / f"{service.name}.log"
        has_network = service.told.get("network_mode") != "host"
        script = self._script(service, root)
        command = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            "--uts",
            "--ipc",
        ]
        command += ["--net"] if has_network else []
        with log.open("ab") as file:
            process = subprocess.Popen([*command, "sh", "-c", script], stdin=subprocess.PIPE, stdout=file, stderr=file)
        found = Running(service, process, root, self._address(service.name), log)
        if has_network:
            self._connect(found)
        assert process.stdin
        process.stdin.close()  # it waits for the end of its input
        for address, port, own in service.ports:
            threading.Thread(target=_forward, args=(address, port, found.address, own), daemon=True).start()
        self.running[service.name] = found
        return found

    def wait(self, name: str, condition: str) -> None:
        """Wait until a service has ended well, or until its health check passes; one without is healthy as it runs."""
        found = self.running[name]
        if condition == "service_completed_successfully" or found.service.command == ["passwords"]:
            if code := found.process.wait(60):
                raise RuntimeError(f"{name} ended with {code}: {found.said}")
            return
        check = found.service.told.get("healthcheck")
        while check and self.execute(name, check["test"][1:], timeout=seconds(check["timeout"])).returncode:
            if found.process.poll() is not None:
                raise RuntimeError(f"{name} ended with {found.process.returncode}: {found.said}")
            time.sleep(0.5)

    def execute(self, name: str, command: Sequence[str], timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a command in a running service as its user, with its variables, as `docker compose exec` does."""
        found = self.running[name]
        try:
            kinds = ["--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd"]
            inside = ["nsenter", "--target", str(found.pid), *kinds]
            return subprocess.run(
                [*inside, *self._as_user(found.service), *command], capture_output=True, text=True, check=False,
                timeout=timeout,
            )  # fmt: skip
        except (subprocess.TimeoutExpired, IndexError, OSError) as error:
            return subprocess.CompletedProcess(command, 1, "", str(error))

    def stop(self, name: str) -> tuple[int, float]:
        """Send a service its stop signal, and kill it after its grace; return its exit status and how long it took."""
        found, began = self.running.pop(name), time.monotonic()
        if found.process.poll() is None:
            os.kill(found.pid, signal.Signals[self.image.last("STOPSIGNAL")[0]])
        try:
            found.process.wait(seconds(found.service.told.get("stop_grace_period", "10s")))
        except subprocess.TimeoutExpired:
            found.process.kill()
        return found.process.wait(), time.monotonic() - began

    def kill(self, name: str) -> None:
        """Kill a service and all its processes, as a machine that loses power does."""
        found = self.running.pop(name)
        os.kill(found.pid, signal.SIGKILL)
        found.process.wait()

    def down(self) -> dict[str, tuple[int, float]]:
        """Stop every service, those before others that these depend on."""
        return {name: self.stop(name) for name in reversed(self.project.services) if name in self.running}

    # Details

    def _address(self, name: str) -> str:
        return f"{NETWORK}.{list(self.project.services).index(name) + 2}"

    def _root(self, service: Service) -> Path:
        """Return a fresh folder in which the service's root is mounted."""
        root = self.folder / "roots" / service.name
        shutil.rmtree(root, ignore_errors=True)
        for name in ("files", "work", "seen"):
            (root / name).mkdir(parents=True)
        return root

    def _script(self, service: Service, root: Path) -> str:
        """Return what the first process does before it becomes the service's: mounts, name, user."""
        seen = root / "seen"
        lines = [
            "cat", f"hostname {service.name}",
            f"mount -t overlay overlay -o lowerdir={':'.join(map(str, self.layers))},upperdir={root}/files,"
            f"workdir={root}/work {seen}",
            f"mkdir -p {seen}/proc {seen}/sys {seen}/dev",
            *(self._volume(mount, seen) for mount in service.mounts),
            *(f"mkdir -p {seen}{path}" for path in service.tmpfs),
            f"touch {seen}/etc/hosts {seen}/etc/hostname",
        ]  # fmt: skip
        lines += [f"mount --bind {self.folder}/hosts {seen}/etc/hosts"]
        lines += self._late_mounts(service, seen)
        command = [*self._as_user(service), *self.image.last("ENTRYPOINT"), *service.command]
        return " && ".join([*lines, f"exec chroot {seen} {_quoted(command)}"])

    def _late_mounts(self, service: Service, seen: Path) -> list[str]:
        """Return mounts over the root; it is made read-only before, for mounts within it stay as they are."""
        shm, memory = n_bytes(service.told.get("shm_size", "64m")), n_bytes(service.told.get("mem_limit", 0))
        lines = [f"mount -o remount,ro {seen}"] if service.told.get("read_only") else []
        lines += [f"mount -t proc proc {seen}/proc", f"mount -t tmpfs -o mode=755 tmpfs {seen}/dev"]
        lines += [f"touch {seen}/dev/{name} && mount --bind /dev/{name} {seen}/dev/{name}" for name in DEVICES]
        lines += [f"mkdir {seen}/dev/shm && mount -t tmpfs -o {CLOSED},size={shm},mode=1777 tmpfs {seen}/dev/shm"]
        lines += [f"mount -t tmpfs tmpfs {seen}/sys && mkdir -p {seen}/sys/fs/cgroup"]
        lines += [f"echo {memory or 'max'} >{seen}/sys/fs/cgroup/memory.max"]
        for path, options in service.tmpfs.items():
            told = {"mode": "1777", **options}
            options = ",".join([CLOSED, *(f"{key}={value}" for key, value in told.items())])
            lines.append(f"mount -t tmpfs -o {options} tmpfs {seen}{path}")
        return lines

    def _volume(self, mount: Mount, seen: Path) -> str:
        """Return the command that mounts a volume or a file; an empty volume gets what the image has there."""
        at = f"{seen}{mount.target}"
        made = f"mkdir -p {Path(at).parent} && touch {at}"
        source = (self.project.path.parent / mount.source).resolve()
        if not mount.is_file:
            source, made = self.folder / "volumes" / mount.source, f"mkdir -p {at}"
            if not source.exists():
                source.mkdir(parents=True)
                self._fill(source, mount.target)
        bound = f"{made} && mount --bind {source} {at}"
        return f"{bound} && mount -o remount,bind,ro {at}" if mount.is_read_only else bound

    def _fill(self, volume: Path, target: str) -> None:
        with overlaid(self.folder / "image", self.layers) as image:
            if (image / target.lstrip("/")).exists():
                subprocess.run(["cp", "-a", "-T", f"{image}{target}", volume], check=True)

    def _as_user(self, service: Service) -> list[str]:
        """Return what makes a command the service's: its user, no capability, no further rights, its variables."""
        user = service.told.get("user") or self.image.last("USER")[0]
        told = {**self.image.environment(), **service.environment, "HOME": self._home(user)}
        return [
            "/usr/bin/setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--no-new-privs",
            "--bounding-set=-all", "--inh-caps=-all", "/usr/bin/env", "-i", *(f"{k}={v}" for k, v in told.items()),
        ]  # fmt: skip

    def _home(self, user: str) -> str:
        users = next(path for layer in self.layers if (path := layer / "etc" / "passwd").exists())
        lines = [line.split(":") for line in users.read_text(encoding="utf-8").splitlines()]
        return next(parts[5] for parts in lines if parts[0] == user)

    def _connect(self, found: Running) -> None:
        """Give a service's network an address and a cable to the bridge; one without a network has its loopback."""
        deadline = time.monotonic() + 10
        while not Path(f"/proc/{found.process.pid}/task/{found.process.pid}/children").read_text().split():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found.service.name} did not start: {found.said}")
            time.sleep(0.01)
        inside = f"--net=/proc/{found.pid}/ns/net"
        subprocess.run(["nsenter", inside, "ip", "link", "set", "lo", "up"], check=True)
        if found.service.told.get("network_mode") == "none":
            return
        name = f"e{found.address.rpartition('.')[2]}x{os.urandom(2).hex()}"
        # The same address has the same card, as with Docker: others remember it.
        card = f"02:00:{':'.join(f'{int(part):02x}' for part in found.address.split('.'))}"
        _ip(f"link add {name} type veth peer name eth0 address {card} netns {found.pid}")
        _ip(f"link set {name} master easeml0 up")
        for command in (f"addr add {found.address}/24 dev eth0", "link set eth0 up"):
            subprocess.run(["nsenter", inside, "ip", *command.split()], check=True)


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


def _quoted(words: Sequence[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


# A published port


def _forward(address: str, port: int, to: str, own: int) -> None:
    """Pass what comes to a port of this machine on to a service, as Docker's own proxy does."""
    with socket.create_server((address, port), reuse_port=True) as listening:
        while True:
            caller, _ = listening.accept()
            try:
                called = socket.create_connection((to, own))
            except OSError:
                caller.close()
                continue
            for source, target in ((caller, called), (called, caller)):
                threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()
