"""Rivals on a table, in a process of their own: python -m easeml_experiments.tables FOLDER TABLE SEED THREADS SECONDS
RIVAL... The folder has the split, and gets the results."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from easeml_experiments.tables import rivals
from easeml_experiments.tables.catalogue import TABLES
from easeml_experiments.tables.kept import Kept, split_or_fail
from easeml_experiments.tables.splitting import digest_of


def main() -> None:
    """Fit them one after the other."""
    folder, name, seed, n_threads, seconds, *names = sys.argv[1:]
    warnings.simplefilter("ignore")  # of the libraries; what they return is measured
    kept, table, frame = Kept(Path(folder)), TABLES[name], TABLES[name].frame()
    splits = split_or_fail(kept, name, int(seed))
    for rival in (rivals.RIVALS[each] for each in names):
        found = rivals.measure(
            rival, table, frame, splits, seed=int(seed), n_threads=int(n_threads), seconds=float(seconds)
        )
        limits = {"seconds": float(seconds)} if rival.is_timed else {}
        kept.keep(name, int(seed), rival.name, {"split": digest_of(splits), **limits, **found})


main()
