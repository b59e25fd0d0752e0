"""Results as files: a folder for each table and seed, a file for its split, for each rival and for ours.

A rival's result holds for one split, one form of the rows, one version of its library and, where it searches for a
time, for that time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easeml_db.errors import InvalidArgument, NotFound
from easeml_experiments.tables.rivals import Rival
from easeml_experiments.tables.sources import version_of
from easeml_experiments.tables.splitting import SPLITS, digest_of

Result = dict[str, Any]
OURS = "ours"
EARLIER_VIEWS = {"flaml": "codes"}  # of results from before they named their view, where it was another one


@dataclass(frozen=True)
class Kept:
    """A folder of results."""

    folder: Path

    def result(self, table: str, seed: int, name: str) -> Result | None:
        """Return what is known of a rival (or of `ours`) on a table, None where nothing is."""
        path = self._case(table, seed) / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def keep(self, table: str, seed: int, name: str, result: Mapping[str, Any]) -> None:
        """Write a result down, in place of an earlier one."""
        known = {"table": table, "seed": seed, **result}
        self._write(self._case(table, seed) / f"{name}.json", json.dumps(known, indent=1, default=float))

    def split(self, table: str, seed: int) -> NDArray[np.str_] | None:
        """Return the split of a table's rows, None where it is not known yet."""
        path = self._case(table, seed) / "split.npz"
        return np.array(SPLITS)[np.load(path)["codes"]] if path.exists() else None

    def keep_split(self, table: str, seed: int, splits: NDArray[np.str_]) -> None:
        """Write a split down."""
        codes = np.select([splits == name for name in SPLITS], range(len(SPLITS))).astype(np.uint8)
        self._made(self._case(table, seed))
        np.savez_compressed(self._case(table, seed) / "split.npz", codes=codes)

    def holds(self, table: str, seed: int, rival: Rival, splits: NDArray[np.str_], seconds: float) -> bool:
        """Say whether a rival's result is there, and still of this split, library and time."""
        known = self.result(table, seed, rival.name)
        if known is None or known["split"] != digest_of(splits) or known["version"] != version_of(rival.package):
            return False
        if not has_its_view(known, rival):
            return False
        return not rival.is_timed or bool(known["seconds"] == seconds)

    def of(self, table: str, seed: int) -> Iterator[Result]:
        """Yield all results on a table, each with its table, seed and `by`: the rival's name, or ours."""
        for path in sorted(self._case(table, seed).glob("*.json")):
            yield {**json.loads(path.read_text(encoding="utf-8")), "by": path.stem}

    def _case(self, table: str, seed: int) -> Path:
        return self.folder / table / f"seed{seed}"

    def _write(self, path: Path, text: str) -> None:
        self._made(path.parent)
        draft = path.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)  # a run that is cut short leaves the earlier result

    def _made(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgument(f"--results {self.folder}: {error.strerror or error}") from error


def has_its_view(known: Mapping[str, Any], rival: Rival) -> bool:
    """Say whether a rival's result is of the form in which the rival takes rows now."""
    return bool(known.get("view", EARLIER_VIEWS.get(rival.name, rival.view)) == rival.view)


def split_or_fail(kept: Kept, table: str, seed: int) -> NDArray[np.str_]:
    """Return a split that must be there. Raises NotFound."""
    splits = kept.split(table, seed)
    if splits is None:
        raise NotFound(f"{kept.folder} has no split of {table} with seed {seed}")
    return splits
