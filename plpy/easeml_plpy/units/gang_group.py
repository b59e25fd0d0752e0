"""The process group of a gang: sessions that train one trial together find one another and exchange tensors.

They meet in a folder of their own below the server's temporary files, which only the server's user may enter and which
the server clears when it starts. A group lasts as long as its session: destroying one while a peer does the same
sometimes aborts the process, and an aborted process restarts the whole server. A group that is no longer needed is
broken instead: its connections are shut down, and peers that wait for this rank raise at once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from easeml_plpy.server.errors import InvalidArgument, NotAllowed, SlotLost
from easeml_plpy.server.value_types import Pause
from easeml_plpy.trainers.networks.torch_private import Exchange

TEMPORARY_FILES = Path("base/pgsql_tmp")  # below the data directory, where a server process works
FOLDER_PREFIX = "pgsql_tmp_easeml_"  # the server removes what begins so when it starts, and no backup contains it
MEETING_SECONDS = 60.0
STALE_SECONDS = 600.0  # the age at which what others have left behind is removed
NAP_SECONDS = (0.0001, 0.005)  # between looks, first and longest
WORDS_OF_LOST_PEERS = ("gloo", "NCCL", "ncclUniqueId", "FileStore")

KEPT: list[object] = []  # never emptied: see above


class Group:
    """One rank's end of a process group. `device` holds the tensors that are exchanged."""

    def __init__(
        self,
        exchange: Exchange,
        rank: int,
        n_ranks: int,
        device: torch.device,
        sockets: Sequence[int],
    ) -> None:
        self.exchange, self.rank, self.n_ranks, self.device = exchange, rank, n_ranks, device
        self.is_broken = False
        self._sockets = tuple(sockets)
        KEPT.append(self)

    def gather(self, value: object, pause: Pause) -> list[Any]:
        """Return the values of all ranks, in their order and as JSON gives them back.

        Wait however long, and let a cancel through.
        """
        payload = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=self.device)
        lengths = [int(length) for length in self._gathered(torch.tensor([len(payload)], device=self.device), pause)]
        padded = torch.zeros(max(lengths), dtype=torch.uint8, device=self.device)
        padded[: len(payload)] = payload
        parts = self._gathered(padded, pause)
        return [json.loads(bytes(part[:n].tolist())) for part, n in zip(parts, lengths, strict=True)]

    def take_from_first(self, tensors: Sequence[torch.Tensor], pause: Pause) -> None:
        """Overwrite tensors with those of rank 0."""
        for tensor in tensors:
            self._finish(self.exchange.broadcast(tensor), pause)

    def break_off(self) -> None:
        """Shut the connections down, so that peers raise instead of waiting. The group cannot be used afterwards."""
        self.is_broken = True
        for number in self._sockets:
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
                connection.shutdown(socket.SHUT_RDWR)
        if self.device.type == "cuda":
            self.exchange.gradients.abort()  # kernels on the device wait for peers, too

    def _gathered(self, tensor: torch.Tensor, pause: Pause) -> list[torch.Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.n_ranks)]
        self._finish(self.exchange.gather(parts, tensor), pause)
        return parts

    def _finish(self, work: distributed.Work, pause: Pause) -> None:
        for _ in naps():
            if work.is_completed():
                break
            pause()
        work.wait()


def join(token: str, rank: int, n_ranks: int, device: str, timeout_seconds: float, pause: Pause) -> Group:
    """Meet the other ranks under this token and connect. SlotLost when one of them does not come or goes away.

    `timeout_seconds` is how long an exchange that cannot be interrupted waits for a peer that is there and silent.
    """
    folder = TEMPORARY_FILES / (FOLDER_PREFIX + _checked(token))
    group = None
    try:
        with _folder_gone_as_lost():
            devices = _meet(folder, rank, n_ranks, device, pause)
        is_nccl = len(set(devices)) == n_ranks and all(name.startswith("cuda") for name in devices)
        with threads_without_signals():
            place = torch.device(device if is_nccl else "cpu")
            group = _connect(folder / "store", rank, n_ranks, place, timeout_seconds)
        with peers_lost():
            group.gather(rank, pause)
    except BaseException:  # also a cancel: the others see by this that it failed
        shutil.rmtree(folder, ignore_errors=True)
        if group is not None:
            group.break_off()
        raise
    if rank == 0:  # all are connected
        shutil.rmtree(folder, ignore_errors=True)
    return group


@contextmanager
def peers_lost() -> Iterator[None]:
    """Raise SlotLost for what the library raises when a peer is gone or silent."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).partition("\n")[0]
        is_library = isinstance(error, distributed.DistError) or any(word in text for word in WORDS_OF_LOST_PEERS)
        if not is_library:
            raise
        raise SlotLost("another slot of the gang was lost", detail=text) from error


@contextmanager
def threads_without_signals() -> Iterator[None]:
    """Keep the server's signals from threads that begin in here: they are for the session's own thread."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def naps() -> Iterator[None]:
    """Sleep between checks of a condition, longer each time; the first check comes at once."""
    seconds, longest = NAP_SECONDS
    while True:
        yield
        time.sleep(seconds)
        seconds = min(2 * seconds, longest)


def _meet(folder: Path, rank: int, n_ranks: int, device: str, pause: Pause) -> list[str]:
    """Wait until every rank has said that it is there, and with which device; return the devices."""
    _enter(folder)
    arriving = folder / f"arriving_{rank}"
    arriving.write_text(device)
    arriving.rename(folder / f"here_{rank}")
    deadline = time.monotonic() + MEETING_SECONDS
    for _ in naps():
        missing = [other for other in range(n_ranks) if not (folder / f"here_{other}").exists()]
        if not missing:
            break
        if time.monotonic() > deadline or not folder.exists():
            raise SlotLost(f"rank {missing[0]} of the gang did not come")
        pause()
    return [(folder / f"here_{other}").read_text() for other in range(n_ranks)]


def _enter(folder: Path) -> None:
    """Make the folder, unless another rank has, and remove old ones, which terminated sessions could not."""
    TEMPORARY_FILES.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_private(folder)
    now = folder.stat().st_mtime
    for old in TEMPORARY_FILES.glob(FOLDER_PREFIX + "*"):
        with suppress(OSError):
            if now - old.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _folder_gone_as_lost() -> Iterator[None]:
    """Raise SlotLost if another rank has removed the folder meanwhile."""
    try:
        yield
    except FileNotFoundError as error:
        raise SlotLost("another slot of the gang was lost before it began", detail=str(error)) from error


def _check_private(folder: Path) -> None:
    """Raise NotAllowed unless the folder is a real one that belongs to this user and is closed to all others."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise NotAllowed(f"the folder in which a gang meets is not private: {folder}")


def _connect(store_file: Path, rank: int, n_ranks: int, device: torch.device, timeout_seconds: float) -> Group:
    before = set(os.listdir("/proc/self/fd"))
    with peers_lost():
        exchange = Exchange.over(store_file, rank, n_ranks, device, timeout_seconds)
    opened = [int(number) for number in set(os.listdir("/proc/self/fd")) - before]
    return Group(exchange, rank, n_ranks, device, [number for number in opened if _is_connection(number)])


def _is_connection(number: int) -> bool:
    """Return whether a file descriptor is a connected socket. A listening one is left alone: its loop would spin."""
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as candidate:
        candidate.getpeername()
        return True
    return False


def _checked(token: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{8,64}", token):
        raise InvalidArgument(f"gang token: expected 8 to 64 hexadecimal digits, got {token!r}")
    return token
