"""The files of the extensions: found beside the package, built from their sources, put where a server looks for them.

easeml is the extension of the control server, easeml_segment that of other servers.
"""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

from easeml_db import __version__
from easeml_db.errors import NotAllowed, NotFound
from easeml_db.postgres.extension_scripts import SOURCES, fresh_script, update_script, upgrades


def sql_folder() -> Path:
    """Return the folder of the SQL sources: inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "extension", package.parent / "sql"):
        if (folder / "sources.txt").exists():
            return folder
    raise NotFound("the SQL files of the extension are not installed", hint="Install easeml-db again.")


def build(extension: str = "easeml") -> str:
    """Return the script that creates an extension."""
    return fresh_script(sql_folder(), extension)


def texts() -> dict[str, str]:
    """Return the extension's files by name: this version, the released ones, and the updates from each to this one."""
    folder = sql_folder()
    controls = [folder / "easeml.control", folder / "segment" / "easeml_segment.control"]
    released = [*controls, *sorted((folder / "upgrades").glob("easeml--*.sql"))]
    return {
        **{path.name: path.read_text(encoding="utf-8") for path in released},
        **{f"{extension}--{__version__}.sql": build(extension) for extension in SOURCES},
        **{f"easeml--{name}.sql": update_script(folder, name) for name in upgrades(folder)},
    }


def fingerprint() -> str:
    """Return a hash of the built extensions, to tell builds of one version apart."""
    return sha256("".join(build(extension) for extension in SOURCES).encode()).hexdigest()


def install(binaries: Path) -> list[Path]:
    """Write the extension's files into the server's share folder; return those that changed.

    binaries: the folder of the server's pg_config or postgres. Raises NotFound if it is none, NotAllowed without the
    right to write there.
    """
    target = share_folder(binaries) / "extension"
    if not target.is_dir():
        raise NotFound(
            f"expected the folder of a server's pg_config, found none in {binaries}, and no folder {target}",
            hint="Name the folder of the server's own programs, for example --bindir /usr/lib/postgresql/15/bin.",
        )
    files = {target / name: text for name, text in texts().items()}
    changed = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        try:
            path.write_text(files[path], encoding="utf-8")
            path.chmod(0o644)
        except PermissionError as error:
            raise NotAllowed(
                f"no right to write {path}", hint="Run once as root: sudo $(command -v easeml) install --files-only"
            ) from error
    return changed


def share_folder(binaries: Path) -> Path:
    """Return the server's share folder: what pg_config says, else Debian's place for this major version."""
    pg_config = binaries / "pg_config"
    if pg_config.exists():
        said = subprocess.run([pg_config, "--sharedir"], capture_output=True, text=True, check=True)
        return Path(said.stdout.strip())
    return Path("/usr/share/postgresql") / binaries.parent.name
