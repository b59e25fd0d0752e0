"""A search over the rows in a folder, as a file beside them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from easeml_db.decisions.procedures.contract import Procedure
from easeml_db.decisions.procedures.creation import create_procedure
from easeml_db.decisions.search_space.configs import Config
from easeml_db.decisions.search_space.specs import RESERVED
from easeml_db.words.run import Search
from easeml_experiments.peers import workload
from easeml_experiments.peers.workload import Workload


@dataclass(frozen=True)
class SearchJob:
    """A search; `work` says what its trials learn, and has no configs: they come as the procedure decides."""

    search: Search
    work: Workload
    max_seconds: float | None = None

    def procedure(self) -> Procedure:
        """Make the procedure."""
        return create_procedure(self.search)


@dataclass(frozen=True)
class OneTrial(Workload):
    """The workload of a single trial, whatever its number."""

    def config(self, trial_number: int) -> Config:
        """Return the config of the trial."""
        (config,) = self.configs
        return dict(config)


def one_trial(work: Workload, config: Config) -> OneTrial:
    """Return the workload of one trial with a config as procedures have it: the architecture is one of its keys."""
    bare = {name: value for name, value in config.items() if name != RESERVED}
    return OneTrial(**(vars(replace(work, architecture=str(config[RESERVED]))) | {"configs": (bare,)}))


def save(job: SearchJob, folder: Path) -> None:
    """Write the search where `load` finds it."""
    workload.save(job.work, folder)
    known = {"search": asdict(job.search), "max_seconds": job.max_seconds}
    (folder / "search.json").write_text(json.dumps(known), encoding="utf-8")


def load(folder: Path) -> SearchJob:
    """Read what `save` wrote."""
    known = json.loads((folder / "search.json").read_text(encoding="utf-8"))
    return SearchJob(Search(**known["search"]), workload.load(folder), known["max_seconds"])
