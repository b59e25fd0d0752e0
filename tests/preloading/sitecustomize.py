"""Libraries that the tests' servers import once, before they have any session; every Python in them runs this file.

A server forks its sessions, which then find the libraries in memory: importing torch takes them milliseconds instead
of two seconds, and what they need of easeml_plpy two instead of a hundred. Nothing else differs: what is imported here
is put aside, and is no module of a session's Python until the session imports it. A library comes back as a whole,
easeml_plpy module by module, each with those that it imports itself.

Servers themselves fork from one process, where the environment says so. Each connection of its socket asks for them:
a JSON object, the environment of the server, with a file for what it prints; the answer is its process number.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import json
import os
import pkgutil
import re
import select
import signal
import socket
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

# Each with those of them that its own import brings along.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "numpy": (),
    "safetensors.numpy": ("numpy",),
    "torch": ("numpy",),
    "sklearn.linear_model": ("numpy",),
    "lightgbm": ("sklearn.linear_model",),
}
PRODUCT = "easeml_plpy"
# LightGBM takes pandas where it is there, and pandas pyarrow, which starts a thread; a server has neither.
MISSING = ("pandas", "pyarrow")
LARGE_PAGE_BYTES, MADV_COLLAPSE = 2 << 20, 25
ASKED_AT = "EASEML_TEST_SOCKET"  # the environment variable with the number of the socket that asks for servers
MESSAGE_BYTES = 1 << 16


class Shelf(MetaPathFinder, Loader):
    """Modules that were put aside; it is asked for a module before the disk is."""

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._spec_of: dict[str, ModuleSpec | None] = {}
        # Modules that come back with a module.
        self._brought_by: dict[str, Sequence[str]] = {}

    def fill(self) -> None:
        """Import all, then put it aside; modules of the standard library may stay."""
        for library, needed in LIBRARIES.items():
            before = set(sys.modules)
            import_module(library)
            own = _imported_since(before)
            others = (name for each in needed for name in self._brought_by[each])
            self._brought_by |= dict.fromkeys(own, (*own, *others))
        before = set(sys.modules)
        with _imports_of_product() as imports:
            product = import_module(PRODUCT)
            for module in pkgutil.walk_packages(product.__path__, f"{PRODUCT}."):
                import_module(module.name)
        self._brought_by |= {name: imports[name] for name in _imported_since(before)}
        self._modules = {name: sys.modules.pop(name) for name in self._brought_by}
        for name, module in self._modules.items():
            self._spec_of[name] = getattr(module, "__spec__", None)
            parent, _, child = name.rpartition(".")
            # Else `from package import module` would find it there, and import nothing.
            if name.startswith(f"{PRODUCT}.") and getattr(self._modules[parent], child, None) is module:
                delattr(self._modules[parent], child)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that was put aside; it says where it came from, as some look for the files beside it."""
        if fullname not in self._modules:
            return None
        found, known = ModuleSpec(fullname, self), self._spec_of[fullname]
        if known is not None:
            found.origin, found.submodule_search_locations = known.origin, known.submodule_search_locations
        return found

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Take the module from the shelf."""
        return self._modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Bring back what came with it; the module has been executed before."""
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = self._spec_of[spec.name]
        is_product = spec.name.partition(".")[0] == PRODUCT
        for name in self._brought_by[spec.name]:
            if name not in sys.modules:
                sys.modules[name] = import_module(name) if is_product else self._modules[name]


def _imported_since(before: set[str]) -> list[str]:
    """Modules that were imported since, without those of the standard library."""
    return [
        name for name in sys.modules if name not in before and name.partition(".")[0] not in sys.stdlib_module_names
    ]


@contextmanager
def _imports_of_product() -> Iterator[Mapping[str, Sequence[str]]]:
    """What each of the product's modules imports while it is executed."""
    imports: dict[str, list[str]] = defaultdict(list)
    plain = builtins.__import__

    def recorded(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
        found = plain(name, globals, locals, fromlist, level)
        importer = (globals or {}).get("__name__", "")
        if importer.partition(".")[0] == PRODUCT:
            whole = resolve_name("." * level + name, globals["__package__"])
            children = [f"{whole}.{child}" for child in fromlist or ()]
            imports[importer] += [whole, *(child for child in children if child in sys.modules)]
        return found

    builtins.__import__ = recorded
    try:
        yield imports
    finally:
        builtins.__import__ = plain


def join_pages() -> None:
    """Ask the kernel to join pages of this memory into large ones: every session copies the table of all pages, and
    clears it at its end. A kernel that cannot (before 6.1) leaves them as they are. A fork that writes to a large page
    has small ones in its place, so each server asks again."""
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
    join_pages()
