"""A server whose sessions find torch, scikit-learn and LightGBM in memory, so that no test pays for importing them.

A session of such a server runs the same code as a user's: PL/Python lies in a process that has forked from one in
which these libraries had been imported and put aside (`preloading/sitecustomize.py`). It starts with no module of
theirs, and takes a millisecond for an import that takes a user's session two seconds.

Sessions of one server share the seed of Python's hashes: a string knows its hash, so no fork can have another. So what
hangs on the order of a set is the same in all of them, and comparing them does not show it. Each run of the tests draws
another seed, and says it when something fails; tests/unit/plpy/test_hash_seeds.py compares processes of different ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from easeml_db.local.server import Embedded

SOURCES = Path(__file__).parent / "preloading"
HASH_SEED = "EASEML_TEST_HASH_SEED"  # the environment variable that says which one sessions share
# What the server has to be told; it takes effect when it starts.
SETTING = "ALTER SYSTEM SET shared_preload_libraries = 'plpython3'"


class WarmServer(Embedded):
    """A private server that imports large libraries when it starts. Every copy of its folder is one, too."""

    @property
    def preloading(self) -> Path:
        """What the server loads; in its own folder, since its user need not be able to read the tests."""
        return self.folder / SOURCES.name

    def equip(self) -> None:
        """Put into its folder what it loads. The server must be told SETTING, and start again."""
        self.preloading.mkdir()
        shutil.copy(SOURCES / "sitecustomize.py", self.preloading)
        library = self.preloading / "preload.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, SOURCES / "preload.c"], check=True)

    def environment(self) -> dict[str, str]:
        """Load preload.so into the server, and have each Python begin with sitecustomize.py."""
        found = super().environment()
        if not self.preloading.exists():
            return found
        paths = f"{self.preloading}:{found['PYTHONPATH']}"
        found |= {"PYTHONHASHSEED": os.environ[HASH_SEED]}
        return found | {"LD_PRELOAD": str(self.preloading / "preload.so"), "PYTHONPATH": paths}


def can_be_warm() -> bool:
    """Say whether this machine has a C compiler; without one, sessions of tests import all by themselves."""
    return shutil.which("cc") is not None
