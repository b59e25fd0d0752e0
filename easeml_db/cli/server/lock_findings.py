"""The judgements of the doctor about the lock table: who may fill it, how large it is, and who has filled it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from easeml_db.cli.server.findings import Finding
from easeml_db.cli.terminal.statements import Row
from easeml_db.local.lock_rights import MAX_LOCKS, OpenRight

MOST_HOLDERS = 8
SEEN_TO = "Then: DELETE FROM easeml.lock_holders;"


def lock_findings(server: Row, rights: Sequence[OpenRight], holders: Sequence[Row]) -> Iterator[Finding]:
    """Check that no role without rights can fill the lock table; report whose sessions were ended for that."""
    if rights:
        message = f"every role may fill the server's lock table: {', '.join(right.what for right in rights)}"
        statements = "\n".join(right.statement for right in rights)
        todo = f"If no other program needs these, as a superuser in this database:\n{statements}"
        yield Finding("locks", "warn", message, todo)
    if server["max_locks"] < MAX_LOCKS:
        message = f"the lock table has {server['max_locks']} places for each session, and is soon full"
        todo = f"As a superuser: ALTER SYSTEM SET max_locks_per_transaction = {MAX_LOCKS}; then restart the server."
        yield Finding("locks", "warn", message, todo)
    elif not rights:
        yield Finding("locks", "ok", f"{server['max_locks']} for each session")
    for holder in holders[:MOST_HOLDERS]:
        yield _holder_finding(holder)


def _holder_finding(holder: Row) -> Finding:
    held = f"{holder['most_locks']} locks; the table is made for {holder['capacity']}"
    if not holder["role_name"]:
        todo = f"See pg_prepared_xacts, and ROLLBACK PREPARED 'gid'. {SEEN_TO}"
        return Finding("locks", "warn", f"prepared transactions held {held}", todo)
    who = f"{holder['n_ended']} session(s) of role {holder['role_name']} were ended"
    if not holder["n_ended"]:
        who = f"a session of role {holder['role_name']} in database {holder['database_name']} was only reported"
    return Finding(
        "locks",
        "warn",
        f"{who}, last at {holder['last_at']:%F %T}: one held {held}",
        f"Ask whose it is, or ALTER ROLE ... NOLOGIN. {SEEN_TO}",
    )
