"""Differences between the servers of Greenplum's line.

Greenplum 6 and Greengage 6 are PostgreSQL 9.4, Greenplum 7 and its successors are 12, Cloudberry is 14. Each
product numbers its versions differently, so the version of PostgreSQL decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from easeml_db.errors import NotReady

PRODUCTS = ("Greenplum Database", "Greengage Database", "Cloudberry Database", "Apache Cloudberry")
SAID = re.compile(rf"PostgreSQL (\d+)(?:\.(\d+))?\S* \((?:{'|'.join(PRODUCTS)}) ([^ )]+)")


@dataclass(frozen=True)
class Dialect:
    """What servers understand from a version of PostgreSQL on: major and minor.

    `is_distributed`: the file in sql/greenplum with the condition that a relation is a table whose segments each have
    rows of their own; it is about the row c of pg_class and its row p of gp_distribution_policy.
    """

    since: tuple[int, int]
    is_distributed: str


DIALECTS = (Dialect((12, 0), "is_distributed_12.sql"), Dialect((9, 4), "is_distributed_9_4.sql"))


class Server(NamedTuple):
    """A coordinator of a cluster: the version of its product, and what it understands."""

    version: str
    dialect: Dialect


def server_of(said: str) -> Server:
    """Return what a server is that says this as version(). Raises NotReady.

    >>> server_of("PostgreSQL 9.4.26 (Greenplum Database 6.24.3 build commit:25d3) on x86_64").version
    '6.24.3'
    """
    if match := SAID.search(said):
        base = int(match[1]), int(match[2] or 0)
        for dialect in DIALECTS:
            if base >= dialect.since:
                return Server(match[3], dialect)
    raise NotReady(
        f"its server is {said[:60]!r}, expected Greenplum 6 or newer, or Cloudberry",
        hint="Name the coordinator of a cluster.",
    )
