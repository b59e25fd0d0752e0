"""Libraries that the tests' servers import once, before they have any session; every Python in them runs this file.

A server forks its sessions, which then find the libraries in memory: importing torch takes them milliseconds instead
of two seconds. Nothing else differs: what is imported here is put aside, and is no module of a session's Python until
the session imports it.

Servers themselves fork from one process, where the environment says so. Each connection of its socket asks for them:
a JSON object, the environment of the server, with a file for what it prints; the answer is its process number.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import select
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

# Each with those of them that its own import brings along.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "numpy": (),
    "safetensors.numpy": ("numpy",),
    "torch": ("numpy",),
    "sklearn.linear_model": ("numpy",),
    "lightgbm": ("sklearn.linear_model",),
}
# LightGBM takes pandas where it is there, and pandas pyarrow, which starts a thread; a server has neither.
MISSING = ("pandas", "pyarrow")
LARGE_PAGE_BYTES, MADV_COLLAPSE = 2 << 20, 25
ASKED_AT = "EASEML_TEST_SOCKET"  # the environment variable with the number of the socket that asks for servers
MESSAGE_BYTES = 1 << 16


class Shelf(MetaPathFinder, Loader):
    """Modules that were put aside; it is asked for a module before the disk is."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[str, ModuleType]] = {}
        self._library_of: dict[str, str] = {}
        self._spec_of: dict[str, ModuleSpec | None] = {}

    def fill(self) -> None:
        """Import all libraries, then put them aside; modules of the standard library may stay."""
        for library in LIBRARIES:
            before = set(sys.modules)
            import_module(library)
            fresh = {name for name in sys.modules if name not in before}
            ours = {name for name in fresh if name.partition(".")[0] not in sys.stdlib_module_names}
            self._modules[library] = {name: sys.modules[name] for name in ours}
            self._library_of |= dict.fromkeys(ours, library)
        for name in self._library_of:
            self._spec_of[name] = getattr(sys.modules.pop(name), "__spec__", None)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that was put aside; it says where it came from, as some look for the files beside it."""
        if fullname not in self._library_of:
            return None
        found, known = ModuleSpec(fullname, self), self._spec_of[fullname]
        if known is not None:
            found.origin, found.submodule_search_locations = known.origin, known.submodule_search_locations
        return found

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Take the module from the shelf."""
        return self._modules[self._library_of[spec.name]][spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Bring back the rest of its library, and what that one needs; the module has been executed before."""
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = self._spec_of[spec.name]
        self._bring_back(self._library_of[spec.name])

    def _bring_back(self, library: str) -> None:
        for name, module in self._modules[library].items():
            sys.modules.setdefault(name, module)
        for needed in LIBRARIES[library]:
            self._bring_back(needed)


def join_pages() -> None:
    """Ask the kernel to join pages of this memory into large ones: every session copies the table of all pages, and
    clears it at its end. A kernel that cannot (before 6.1) leaves them as they are."""
    advise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if private := re.match("([0-9a-f]+)-([0-9a-f]+) rw-p [0-9a-f]+ 00:00 0 ", line):
            first = -(-int(private[1], 16) // LARGE_PAGE_BYTES) * LARGE_PAGE_BYTES
            n_bytes = int(private[2], 16) // LARGE_PAGE_BYTES * LARGE_PAGE_BYTES - first
            if n_bytes > 0:
                advise(ctypes.c_void_p(first), ctypes.c_size_t(n_bytes), MADV_COLLAPSE)


def fork_servers(listener: socket.socket) -> None:
    """Answer until nobody is connected any more; return in each server."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    clients: list[socket.socket] = []
    while True:
        for ready in select.select([listener, *clients], [], [])[0]:
            if ready is listener:
                clients.append(listener.accept()[0])
                continue
            message, files, _, _ = socket.recv_fds(ready, MESSAGE_BYTES, 1)
            if not message:
                clients.remove(ready)
                ready.close()
                if not clients:
                    os._exit(0)
                continue
            server = os.fork()
            if not server:
                for each in (listener, *clients):
                    each.close()
                become(json.loads(message), files[0])
                return
            os.close(files[0])
            ready.send(str(server).encode())


def become(environment: dict[str, str], log: int) -> None:
    """Take on an environment, print into a file, and leave the session of the parent."""
    for each in (signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT):  # a shell has what it starts ignore the latter two
        signal.signal(each, signal.SIG_DFL)
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


sys.modules.update(dict.fromkeys(MISSING))  # type: ignore[arg-type]
shelf = Shelf()
shelf.fill()
for name in MISSING:
    del sys.modules[name]
sys.meta_path.insert(0, shelf)
gc.freeze()
join_pages()
if ASKED_AT in os.environ:
    fork_servers(socket.socket(fileno=int(os.environ[ASKED_AT])))
