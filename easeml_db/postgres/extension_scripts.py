"""The scripts that create and update the extensions, built from the SQL sources.

A source is plain SQL. Functions that differ in a few words are written once, under a table in comments. Each row of the
table gives a copy, in which the row's cells replace the {names} of the table's first line:

    -- for each
    --  type  | as_text
    --  jsonb | inputs::text
    --  text  | inputs
    CREATE OR REPLACE FUNCTION easeml.f(inputs {type}) ... easeml.g({as_text}) ...;
    -- end for each

Every source can run again on what it made before: CREATE OR REPLACE, CREATE ... IF NOT EXISTS, ON CONFLICT DO NOTHING.
A column that a released table lacked is added below the table (ADD COLUMN IF NOT EXISTS), so that it is written once.
An update is all sources again, and sql/upgrades/OLD--NEW.sql for what must run once.

Nothing here needs a package: `python3 -m easeml_db.postgres.extension_scripts FOLDER SCRIPT` is for sql/Makefile.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCES = {"easeml": "sources.txt", "easeml_segment": "segment/sources.txt"}
BLOCK = re.compile(r"^-- for each\n((?:--  [^\n]+\n)+)(.*?)^-- end for each\n", re.MULTILINE | re.DOTALL)
# It checks that the schema is empty, which holds only for a fresh installation.
ONLY_FRESH = "security/install.sql"
ONLY_UPDATES = "security/update.sql"
DEPENDENTS = "security/dependents.sql"
DROPS = re.compile(r"^DROP (?:VIEW|FUNCTION) IF EXISTS (.*?);$", re.MULTILINE | re.DOTALL)
BETWEEN = re.compile(r",\s+(?![^(]*\))")
"""A comma between two functions, not between two arguments of one."""
TABLES = "-- (tables)\n"
"""Where in the file of an update the sources of tables run."""


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


def dependents(folder: Path, name: str) -> str:
    """Return the query for objects of others that are in the way of the update OLD--NEW."""
    script = (folder / "upgrades" / f"{name}.sql").read_text(encoding="utf-8")
    dropped = [" ".join(each.split()) for drop in DROPS.findall(script) for each in BETWEEN.split(drop)]
    names = ", ".join(f"'{each}'" for each in dropped)
    return (folder / DEPENDENTS).read_text(encoding="utf-8").replace("{dropped}", f"ARRAY[{names}]::text[]")


def update_script(folder: Path, name: str) -> str:
    """Return the text of easeml--OLD--NEW.sql: what runs once, and every source again."""
    before, after = (folder / "upgrades" / f"{name}.sql").read_text(encoding="utf-8").split(TABLES)
    again = {name: text for name, text in sources(folder).items() if name != ONLY_FRESH}
    n_first = 1 + max(place for place, name in enumerate(again) if name.endswith("tables.sql"))
    parts = [f"-- {name}\n{text}" for name, text in again.items()]
    begin = (folder / ONLY_UPDATES).read_text(encoding="utf-8").replace("{dependents}", dependents(folder, name))
    head = r'\echo Use "ALTER EXTENSION easeml UPDATE" to load this file. \quit'
    return "\n".join([head, begin, before, *parts[:n_first], after, *parts[n_first:]])


if __name__ == "__main__":
    folder, script = Path(sys.argv[1]), sys.argv[2]
    print(fresh_script(folder, script) if script in SOURCES else update_script(folder, script), end="")
