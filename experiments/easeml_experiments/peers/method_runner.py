"""A server that holds the rows, and the same rows in files for the methods that need no server."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easeml_experiments.contract import Options
from easeml_experiments.experiment_server import ExperimentServer, load_dataset, private_server
from easeml_experiments.peers import hopping
from easeml_experiments.peers.comparison import Run
from easeml_experiments.peers.launch import Measured, launch
from easeml_experiments.peers.settings import Network, Setting
from easeml_experiments.peers.workload import Workload, export_rows, save


@dataclass(frozen=True)
class MethodRunner:
    """Trains a setting's trials in any way. The server is stopped except while it is measured."""

    server: ExperimentServer
    folder: Path
    setting: Setting
    options: Options

    def run(self, method: str, network: Network, batch_size: int, seed: int) -> Run:
        """Train all trials in one way."""
        work = self.setting.workload(network, batch_size, seed=seed, n_workers=self.server.n_slots)
        measured = self._measured(method, work, self.setting.space(network, batch_size))
        done = Run(network.architecture, batch_size, seed, method, measured)
        times = f"{measured.training_seconds:.1f} s, {measured.seconds:.1f} s with start-up"
        self.options.say(f"{done.place}, {method}: {times}")
        return done

    def _measured(self, method: str, work: Workload, space: Mapping[str, Any]) -> Measured:
        if method == "mop":
            return hopping.run(self.server, work, self.setting.name, space)
        save(work, self.folder)
        return launch(method, self.folder)


@contextmanager
def opened(setting: Setting, options: Options) -> Iterator[MethodRunner]:
    """Load the rows, as many partitions as slots; everything is removed at the end."""
    n_slots = options.n_slots or len(os.sched_getaffinity(0))
    with (
        private_server(n_slots) as server,
        tempfile.TemporaryDirectory(prefix="easeml-", dir=os.environ.get("TMPDIR", "/var/tmp")) as folder,
    ):
        options.say(f"loading {setting.n_rows} rows of {setting.name}")
        load_dataset(
            server, setting.name, setting.source(), inputs=setting.column, n_rows=setting.n_rows,
            n_partitions=n_slots, **setting.dataset_options,
        )  # fmt: skip
        with server.session() as session:
            export_rows(session, setting.name, Path(folder), n_slots)
        server.embedded.stop()
        yield MethodRunner(server, Path(folder), setting, options)
