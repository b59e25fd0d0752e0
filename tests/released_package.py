"""The Python code of released versions, which a test puts beside the server as an installation would.

    python tests/released_package.py VERSION COMMIT

writes tests/released/VERSION.tar.xz from the history: the packages and the coordinator's queries. No index has these
versions, and a source archive has no history.
"""

from __future__ import annotations

import io
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path

RELEASED = Path(__file__).parent / "released"
# Where a wheel has what lies elsewhere in the tree.
PLACES = {
    "easeml_db/": "easeml_db/",
    "plpy/easeml_plpy/": "easeml_plpy/",
    "loaders/easeml_loaders/": "easeml_loaders/",
    "reader/easeml_model/": "easeml_model/",
    "sql/queries/": "easeml_db/extension/queries/",
}
NEEDED = {"sql/sources.txt": "easeml_db/extension/sources.txt"}  # by which the package knows its folder of SQL


def unpack(version: str, folder: Path) -> None:
    """Put the packages of a version into a folder."""
    with tarfile.open(RELEASED / f"{version}.tar.xz") as archive:
        for member in archive:
            if (content := archive.extractfile(member)) is not None:
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())


def pack(version: str, commit: str) -> None:
    """Write the archive of a version, the same bytes each time."""
    command = ["git", "archive", commit, *PLACES, *NEEDED]
    tree = subprocess.run(command, cwd=RELEASED.parent.parent, check=True, stdout=subprocess.PIPE).stdout
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(tree)) as found, tarfile.open(fileobj=packed, mode="w") as written:
        for member in found:
            if member.isfile() and (name := _installed(member.name)):
                kept = tarfile.TarInfo(name)
                kept.size, kept.mode = member.size, 0o644
                written.addfile(kept, found.extractfile(member))
    RELEASED.mkdir(exist_ok=True)
    (RELEASED / f"{version}.tar.xz").write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def _installed(name: str) -> str | None:
    """Return where an installation has a file of the tree; None for what no coordinator or session reads."""
    if name in NEEDED:
        return NEEDED[name]
    here = next((place for place in PLACES if name.startswith(place)), None)
    if here is None or not name.endswith((".py", ".sql")):
        return None
    return PLACES[here] + name.removeprefix(here)


if __name__ == "__main__":
    pack(*sys.argv[1:])
