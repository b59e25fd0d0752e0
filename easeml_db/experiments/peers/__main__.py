"""python -m easeml_db.experiments.peers METHOD FOLDER: train the folder's workload, write FOLDER/record.json."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from easeml_db.experiments.peers import record

METHODS = {
    "sequential": ("sequential", "run"),
    "tasks": ("tasks", "run"),
    "replay": ("tasks", "replay"),
    "ray-tune": ("ray_tune", "run"),
    "data-parallel": ("collective", "data_parallel"),
    "model-averaging": ("collective", "model_averaging"),
}


def main() -> None:
    """Run the method that the command line names."""
    method, folder = sys.argv[1], Path(sys.argv[2])
    module, name = METHODS[method]
    run: Callable[[Path], record.Record] = getattr(import_module(f"easeml_db.experiments.peers.{module}"), name)
    record.save(run(folder), folder / "record.json")


if __name__ == "__main__":
    main()
