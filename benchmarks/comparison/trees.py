"""Trees that are measured: a clone, its commit, and the Python of its environment."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

PRINT_BIN = "print-bin: ; @echo $(BIN)"


@dataclass(frozen=True)
class Tree:
    """A clone and the Python of the environment that it is installed in."""

    clone: Path
    python: str

    def describe(self) -> str:
        """Return its commit in short, or its folder where git knows none."""
        command = ["git", "-C", self.clone, "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return f"commit {done.stdout.strip()}" if done.returncode == 0 else str(self.clone.name)


def tree_at(clone: Path, python: str | None) -> Tree:
    """Return the tree in a clone; without a Python, with that of the environment that its Makefile makes."""
    if python is None:
        command = ["make", "-s", "-C", clone, f"--eval={PRINT_BIN}", "print-bin"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        python = f"{done.stdout.strip()}/python"
    return Tree(clone.resolve(), python)
