"""Entries of a dump are restored with the rights of their owners, each after what it needs."""

from __future__ import annotations

from easeml_db.local.by_owner.archive import Entry, Section
from easeml_db.local.by_owner.order import batches

PRE, ROWS, POST, NONE = Section.PRE_DATA, Section.DATA, Section.POST_DATA, Section.NONE


def entry(number: int, kind: str, owner: str, *needs: int, section: Section = PRE, tag: str = "x") -> Entry:
    return Entry(number, kind, tag, section, "s", owner, frozenset(needs))


def order(*entries: Entry) -> list[tuple[str | None, list[int]]]:
    """Whose batches come in which order, by numbers of entries."""
    return [(batch.owner, [each.number for each in batch.entries]) for batch in batches(entries, {"root"})]


def test_an_owners_entries_are_restored_as_the_owner_and_the_rest_as_the_superuser() -> None:
    made = order(entry(1, "SCHEMA", "anna"), entry(2, "TABLE", "root"), entry(3, "TABLE", "easeml_owner"),
                 entry(4, "TABLE", "anna", 1), entry(5, "CAST", "", 4), entry(6, "VIEW", "ben"))  # fmt: skip
    assert made == [(None, [1, 2, 3]), ("anna", [4]), (None, [5]), ("ben", [6])]


def test_an_entry_waits_for_what_it_needs_of_another_owner() -> None:
    made = order(entry(1, "VIEW", "anna", 2), entry(2, "TABLE", "ben"), entry(3, "TABLE", "anna"))
    assert made == [("anna", [3]), ("ben", [2]), ("anna", [1])]


def test_entries_that_need_one_another_come_in_the_order_of_the_dump() -> None:
    assert order(entry(1, "TABLE", "anna", 2), entry(2, "TABLE", "ben", 1)) == [("anna", [1]), ("ben", [2])]


def test_rows_come_before_rights_on_tables_and_these_before_rules_about_rows() -> None:
    made = order(entry(1, "TABLE", "anna"), entry(2, "ACL", "anna", 1, section=NONE, tag="TABLE x"),
                 entry(3, "ACL", "anna", section=NONE, tag="SCHEMA s"), entry(4, "TABLE DATA", "anna", 1, section=ROWS),
                 entry(5, "TRIGGER", "anna", 1, section=POST),
                 entry(6, "EVENT TRIGGER", "root", section=POST))  # fmt: skip
    assert made == [(None, [3]), ("anna", [1]), ("anna", [4]), (None, [2]), ("anna", [5]), (None, [6])]
