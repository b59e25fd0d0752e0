"""The scripts that create and update the extensions, built from the SQL sources.

A source is plain SQL. Functions that differ in a few words are written once, under a table in comments. Each row of the
table gives a copy, in which the row's cells replace the {names} of the table's first line:

    -- for each
    --  type  | as_text
    --  jsonb | inputs::text
    --  text  | inputs
    CREATE OR REPLACE FUNCTION easeml.f(inputs {type}) ... easeml.g({as_text}) ...;
    -- end for each

Nothing here needs a package: `python3 -m easeml_db.postgres.extension_scripts FOLDER SCRIPT` is for sql/Makefile.
"""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

SOURCES = {"easeml": "sources.txt", "easeml_segment": "segment/sources.txt"}
BLOCK = re.compile(r"^-- for each\n((?:--  [^\n]+\n)+)(.*?)^-- end for each\n", re.MULTILINE | re.DOTALL)

HEAD = r'\echo Use "ALTER EXTENSION easeml UPDATE" to load this file. \quit'
PIN = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);"
# An open transaction of a tenant may hold one of them for hours, and all others would wait for the locks that the
# update has already: so it gives them back after two seconds, and tries again.
# Sessions of the service lock tables in an order of their own while the update runs, and the server ends one of those
# that wait in a circle. So the update takes all locks before it changes anything, and takes them anew if it was the one
# that ended. A view is locked alone by an ALTER that changes nothing; LOCK would lock the catalogs in it as well.
LOCK = """\
DO $locks$
DECLARE
    relation record;
    former text := pg_catalog.current_setting('lock_timeout');
BEGIN
    FOR attempt IN 1..20 LOOP
        BEGIN
            PERFORM pg_catalog.set_config('lock_timeout', '2s', true);
            FOR relation IN
                SELECT c.oid::pg_catalog.regclass AS name, c.relkind, c.relowner::pg_catalog.regrole AS owner
                FROM pg_catalog.pg_class c
                WHERE c.relnamespace = 'easeml'::pg_catalog.regnamespace AND c.relkind IN ('r', 'v')
                ORDER BY c.relkind DESC, c.oid
            LOOP
                IF relation.relkind = 'v' THEN
                    EXECUTE pg_catalog.format('ALTER VIEW %s OWNER TO %s', relation.name, relation.owner);
                ELSE
                    EXECUTE pg_catalog.format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', relation.name);
                END IF;
            END LOOP;
            PERFORM pg_catalog.set_config('lock_timeout', former, true);
            RETURN;
        EXCEPTION WHEN deadlock_detected OR lock_not_available THEN
            CONTINUE;
        END;
    END LOOP;
    RAISE EXCEPTION USING errcode = 'lock_not_available',
        message = 'the tables of easeml could not be locked: 20 times others held some of them',
        hint = 'Nothing was changed. End open transactions (pg_stat_activity), or stop the coordinator, and try again.';
END
$locks$;"""
# It checks that the schema is empty, which holds only for a fresh installation.
ONLY_FRESH = "security/install.sql"
# Of a table's source: rows are inserted when the table is made, and not again.
REPEATABLE = re.compile(r"CREATE (TABLE|INDEX|UNIQUE INDEX)|COMMENT ON|ALTER TABLE")
STATEMENT_END = re.compile(r";[ \t]*(?:--[^\n]*)?$", re.MULTILINE)
LEADING_COMMENTS = re.compile(r"(?:\s*--[^\n]*\n)*\s*")
REPLACING = (
    (re.compile(r"^CREATE (TABLE|INDEX|UNIQUE INDEX) ", re.MULTILINE), r"CREATE \1 IF NOT EXISTS "),
    (re.compile(r"^CREATE (FUNCTION|PROCEDURE|VIEW) ", re.MULTILINE), r"CREATE OR REPLACE \1 "),
    (
        re.compile(r"^(CREATE (?:CONSTRAINT )?TRIGGER (\w+)\s[^;]*?\sON (easeml\.\w+))", re.MULTILINE),
        r"DROP TRIGGER IF EXISTS \2 ON \3;" + "\n" + r"\1",
    ),
    (
        re.compile(r"^(CREATE POLICY (\w+) ON (easeml\.\w+))", re.MULTILINE),
        r"DROP POLICY IF EXISTS \2 ON \3;" + "\n" + r"\1",
    ),
)


def source(path: Path) -> str:
    """Return the SQL of a source, with its repeated blocks written out."""
    return BLOCK.sub(lambda block: _copies(*block.groups()), path.read_text(encoding="utf-8"))


def _copies(table: str, body: str) -> str:
    """Return the body once for each row. Raises ValueError if a row has too few or too many cells."""
    names, *rows = [[cell.strip() for cell in line[2:].split(" | ")] for line in table.splitlines()]
    return "".join(_filled(body, dict(zip(names, row, strict=True))) for row in rows)


def _filled(body: str, cells: dict[str, str]) -> str:
    """Return the body with cells for names. Raises KeyError for a name that the table lacks."""
    return re.sub(r"\{([a-z]\w*)\}", lambda name: cells[name[1]], body)


def sources(folder: Path, extension: str = "easeml") -> dict[str, str]:
    """Return the SQL of an extension's sources by name, in the order of the build. folder: that of the SQL sources."""
    names = (folder / SOURCES[extension]).read_text(encoding="utf-8").split()
    return {name: source(folder / name) for name in names}


def fresh_script(folder: Path, extension: str) -> str:
    """Return the script of CREATE EXTENSION."""
    parts = [f"-- {name}\n{text}" for name, text in sources(folder, extension).items()]
    return "\n".join([f'\\echo Use "CREATE EXTENSION {extension} CASCADE" to load this file. \\quit', *parts])


def upgrades(folder: Path) -> list[str]:
    """Return the names OLD--NEW of the existing upgrades."""
    return sorted(path.stem for path in (folder / "upgrades").glob("[0-9]*--*.sql"))


def update_script(folder: Path, name: str) -> str:
    """Return the text of easeml--OLD--NEW.sql. folder: that of the SQL sources."""
    by_hand = (folder / "upgrades" / f"{name}.sql").read_text(encoding="utf-8")
    parts = [f"-- {name}\n{_again(name, text)}" for name, text in sources(folder).items() if name != ONLY_FRESH]
    return "\n".join([HEAD, PIN, LOCK, by_hand, *parts])


def _again(name: str, text: str) -> str:
    """Return the statements of a source, changed so that they can run when all or some of their objects exist."""
    if name.endswith("tables.sql"):
        text = "".join(each for each in _statements(text) if REPEATABLE.match(each))
    for pattern, replacement in REPLACING:
        text = pattern.sub(replacement, text)
    return text


def _statements(text: str) -> list[str]:
    """Cut the source of tables into statements, without the comments before them."""
    ends = [0, *(match.end() for match in STATEMENT_END.finditer(text))]
    parts = [text[first:last] for first, last in pairwise(ends)]
    return [part[LEADING_COMMENTS.match(part).end() :] + "\n" for part in parts]  # type: ignore[union-attr]


if __name__ == "__main__":
    folder, script = Path(sys.argv[1]), sys.argv[2]
    print(fresh_script(folder, script) if script in SOURCES else update_script(folder, script), end="")
