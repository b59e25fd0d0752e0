"""Prints what the package requires, with the extras that are named: for the image, before the package is there."""

from __future__ import annotations

import sys
from pathlib import Path

import tomllib


def main() -> None:
    """Print one requirement a line. Ends with 1 where an extra is unknown."""
    here = Path(__file__).resolve().parent
    path = next(folder / "pyproject.toml" for folder in (here, here.parent) if (folder / "pyproject.toml").exists())
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    if unknown := [name for name in sys.argv[1:] if name not in extras]:
        sys.exit(f"expected extras of {', '.join(extras)}, got {', '.join(unknown)}")
    lines = [*project["dependencies"], *(line for name in sys.argv[1:] for line in extras[name])]
    print("\n".join(lines))


main()
