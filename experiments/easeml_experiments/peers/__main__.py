"""python -m easeml_experiments.peers METHOD FOLDER: train the folder's workload, write FOLDER/record.json."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from easeml_experiments.peers import record

METHODS = {
    "sequential": ("peers.sequential", "run"),
    "tasks": ("peers.tasks", "run"),
    "replay": ("peers.tasks", "replay"),
    "ray-tune": ("peers.ray_tune", "run"),
    "data-parallel": ("peers.collective", "data_parallel"),
    "model-averaging": ("peers.collective", "model_averaging"),
    "search-ray": ("procedures.ray_workers", "run"),
    "search-tasks": ("procedures.process_workers", "run"),
}


def main() -> None:
    """Run the method that the command line names."""
    method, folder = sys.argv[1], Path(sys.argv[2])
    module, name = METHODS[method]
    run: Callable[[Path], record.Record] = getattr(import_module(f"easeml_experiments.{module}"), name)
    record.save(run(folder), folder / "record.json")


if __name__ == "__main__":
    main()
