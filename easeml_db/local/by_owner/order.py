"""In which order, and with whose rights, the entries of a dump are restored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from easeml_db.local.by_owner.archive import Entry, Section

OURS = "easeml_owner"
"""Nobody can become this role, so what it owns is as the extension made it."""
# Statements that evaluate nothing of an owner's. Many have no owner, or need a superuser; what they make is then given
# to its owner.
HARMLESS = frozenset({
    "ACCESS METHOD", "ACL", "BLOB", "BLOB METADATA", "BLOBS", "CAST", "COMMENT", "DATABASE",
    "DATABASE PROPERTIES", "DEFAULT ACL", "ENCODING", "EVENT TRIGGER", "EXTENSION", "FOREIGN DATA WRAPPER",
    "OPERATOR CLASS", "OPERATOR FAMILY", "PROCEDURAL LANGUAGE", "PUBLICATION", "SCHEMA", "SEARCHPATH",
    "SECURITY LABEL", "SERVER", "STDSTRINGS", "SUBSCRIPTION", "TEXT SEARCH PARSER", "TEXT SEARCH TEMPLATE",
    "TRANSFORM", "USER MAPPING",
})  # fmt: skip
ROWS = ("TABLE DATA", "SEQUENCE SET")
RELATIONS = ("TABLE ", "COLUMN ", "SEQUENCE ")
"""So begin the tags of rights on what holds rows. Its owner may have none, but must load the rows."""
LAST = frozenset({"COMMENT", "DEFAULT ACL", "EVENT TRIGGER", "SECURITY LABEL"})


@dataclass(frozen=True)
class Batch:
    """Entries that one program restores, with one role's rights."""

    owner: str | None
    """None: the superuser who restores."""
    entries: tuple[Entry, ...]


def owner_of(entry: Entry, superusers: Set[str]) -> str | None:
    """Return the role whose rights an entry needs; None for those of the superuser who restores."""
    if entry.kind in HARMLESS or entry.owner in superusers or entry.owner in ("", OURS):
        return None
    if entry.schema == "easeml" and entry.kind in ROWS:
        return None  # rows of the extension, whichever of its roles owns the table
    return entry.owner


def batches(entries: Iterable[Entry], superusers: Set[str]) -> Iterator[Batch]:
    """Yield the entries of a dump, each after what it needs, in few batches."""
    phases: list[list[Entry]] = [[], [], [], [], []]
    for entry in entries:
        phases[_phase(entry)].append(entry)
    for phase in phases:
        yield from _within(phase, superusers)


def _phase(entry: Entry) -> int:
    """Return when an entry is restored: objects, rows, rights on tables, rules about rows, and the rest.

    Rights come early, since views and foreign keys of one owner need those on objects of another.
    """
    if entry.kind in LAST:
        return 4
    if entry.kind == "ACL":
        return 2 if entry.tag.startswith(RELATIONS) else 0
    return {Section.PRE_DATA: 0, Section.DATA: 1, Section.POST_DATA: 3, Section.NONE: 4}[entry.section]


def _within(phase: list[Entry], superusers: Set[str]) -> Iterator[Batch]:
    """Yield the batches of a phase: the superuser's whenever there is one, then those of the owners in turn."""
    queues: dict[str | None, list[Entry]] = {None: []}
    for entry in phase:
        queues.setdefault(owner_of(entry, superusers), []).append(entry)
    waiting = {entry.number for entry in phase}
    while waiting:
        n_before = len(waiting)
        for turn in list(queues):
            for owner in dict.fromkeys((None, turn)):
                if ready := _ready(queues[owner], waiting):
                    yield Batch(owner, ready)
        if len(waiting) == n_before:  # objects that need one another: the order of pg_dump is all there is
            owner, queue = next((owner, queue) for owner, queue in queues.items() if queue)
            waiting.discard(queue[0].number)
            yield Batch(owner, (queue.pop(0),))


def _ready(queue: list[Entry], waiting: set[int]) -> tuple[Entry, ...]:
    """Take the entries of a queue that need nothing which still waits in another."""
    taken: dict[int, Entry] = {}
    for entry in queue:
        if not entry.needs & waiting - {entry.number}:
            taken[entry.number] = entry
            waiting.discard(entry.number)
    queue[:] = [entry for entry in queue if entry.number not in taken]
    return tuple(taken.values())
