"""A further boosting library is a folder and a line: a toy serves runs of SQL, on a real server.

The server finds a copy of the installed package, to which the folder and the line were added.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest
from psycopg.types.json import Jsonb

import easeml_plpy
from easeml_db.local.server import Embedded
from easeml_plpy.files.model_file import ModelFile
from easeml_plpy.states import checkpoint
from tests import toy_boosting
from tests.disks import open_folder
from tests.fixtures.coordinators import coordinator_of
from tests.fixtures.servers import set_for_speed
from tests.fixtures.sessions import Session

N_PARTITIONS, N_EPOCHS = 3, 2
SOURCE = """
CREATE TABLE dots AS SELECT i AS id, sin(i) * 3 AS x, cos(i * 7.0) AS noise, abs(sin(i)) * 10 AS y,
    CASE WHEN sin(i) > 0.3 THEN 'up' ELSE 'down' END AS side FROM generate_series(1, 600) i;
"""
CREATE = "SELECT easeml.create_dataset(%s, 'dots', '{x,noise}', %s, n_partitions => %s)"
RUN = """
SELECT easeml.select_models(%s, '{stumps}', procedure => 'grid', max_epochs => %s, allocation => 'batched',
    search_space => '{"learning_rate": [0.3, 0.6]}')
"""
BEST = "SELECT trial_id FROM easeml.leaderboard WHERE dataset_name = %s ORDER BY rank LIMIT 1"


class WithToy(Embedded):
    """A server whose sessions find the package with the toy in it."""

    def environment(self) -> dict[str, str]:
        """Look there first."""
        environment = super().environment()
        return environment | {"PYTHONPATH": f"{self.folder / 'packages'}:{environment.get('PYTHONPATH', '')}"}

    def add_toy(self) -> None:
        """Copy the package, and add the folder and the line."""
        package = self.folder / "packages" / "easeml_plpy"
        shutil.copytree(Path(easeml_plpy.__file__).parent, package)
        shutil.copytree(Path(toy_boosting.__file__).parent, package / "trainers" / "toy_boosting")
        with (package / "trainers" / "__init__.py").open("a", encoding="utf-8") as registry:
            registry.write(toy_boosting.REGISTER)
        subprocess.run(["chmod", "-R", "a+rX", self.folder / "packages"], check=True)


@pytest.fixture(scope="module")
def toy() -> Iterator[Session]:
    """A session of a server that has run trials of the toy, for numbers and for classes."""
    server = WithToy(open_folder())
    try:
        server.start()
        set_for_speed(server)
        server.add_toy()
        server.prepare(n_slots=1)
        with Session.open(server.dsn()) as session, coordinator_of(session):
            session.execute(SOURCE)
            for dataset, target in (("numbers", "y"), ("sides", "side")):
                session.execute(CREATE, [dataset, target, N_PARTITIONS])
                session.value(RUN, dataset, N_EPOCHS)
            session.wait_until("SELECT bool_and(status NOT IN ('queued', 'running')) FROM easeml.runs")
            yield session
    finally:
        server.remove()
        shutil.rmtree(server.folder, ignore_errors=True)


def test_it_trains_in_whole_rounds_and_never_in_a_stack(toy: Session) -> None:
    assert set(toy.values("SELECT status FROM easeml.runs")) == {"finished"}, toy.rows("TABLE easeml.events")
    rounds = toy.rows(
        "SELECT count(*) AS n, max(n_slots) AS width, max(n_stacked) AS n_stacked FROM easeml.training_timeline"
        " GROUP BY trial_id, kind, epoch"
    )
    assert len(rounds) == 4 * (2 * N_EPOCHS + 1)
    assert {(each["n"], each["width"], each["n_stacked"]) for each in rounds} == {(N_PARTITIONS, 1, 1)}
    facts = toy.rows("SELECT * FROM easeml.architecture_facts() WHERE architecture = 'stumps'")
    assert facts == [
        {"architecture": "stumps", "trainer": "toy_boosting", "does_whole_rounds": True, "is_joint": False,
         "has_growing_epochs": False, "varying": None}
    ]  # fmt: skip


def test_it_learns_and_replays_to_the_same_bytes(toy: Session) -> None:
    best = toy.rows("SELECT trial_id, test_metric FROM easeml.leaderboard WHERE dataset_name = 'numbers'")
    assert min(each["test_metric"] for each in best) < 2  # the targets spread by 3.1
    (replayed,) = toy.rows("CALL easeml.replay(%s)", best[0]["trial_id"])
    assert replayed["result"]["is_identical"]


def test_what_it_takes_is_asked_of_it(toy: Session) -> None:
    with toy.transaction(force_rollback=True):
        toy.execute("UPDATE easeml.slots SET memory_limit_bytes = 1 << 30")
        with pytest.raises(psycopg.Error, match=r"stumps with trees_per_epoch 10000000 takes at least 4.0 GB"):
            toy.value(RUN.replace('{"', '{"trees_per_epoch": 10000000, "'), "numbers", 1)


@pytest.mark.parametrize(("dataset", "unit"), [("numbers", "value"), ("sides", "log odds")])
def test_it_predicts_and_says_exactly_why(toy: Session, dataset: str, unit: str) -> None:
    trial_id = toy.value(BEST, dataset)
    row = Jsonb({"x": 2.5, "noise": 0.1})
    rows = toy.rows("SELECT * FROM easeml.explain_row(%s, %s, %s)", dataset, row, trial_id)
    assert {each["unit"] for each in rows} == {unit}
    assert {each["standard_error"] for each in rows} == {None}
    total = sum(each["contribution"] for each in rows)
    if dataset == "numbers":
        answer = toy.value("SELECT easeml.predict_value('numbers', %s, %s)", row, trial_id)
    else:
        labels = toy.value("SELECT easeml.predict_probabilities('sides', %s, %s)", row, trial_id)
        answer = np.log(labels["up"] / labels["down"])
    assert total == pytest.approx(answer, rel=1e-4)


def test_its_files_are_checked_by_it(toy: Session) -> None:
    contents = toy.value("SELECT easeml.export_trial('numbers')")
    imported = toy.value("SELECT easeml.import_trial(%s, 'kept')", contents)
    ask, row = "SELECT easeml.predict_value(%s, %s)", Jsonb({"x": 2.5, "noise": 0.1})
    assert imported
    assert toy.value(ask, "kept", row) == toy.value(ask, "numbers", row)
    file = ModelFile.from_bytes(contents)
    state = checkpoint.load(file.state)
    stumps = state.arrays["stumps"]
    stumps[0, 1] = -1
    forged = ModelFile(file.document, checkpoint.dump({"stumps": stumps}, state.attributes)).to_bytes()
    with pytest.raises(psycopg.Error, match="split by a column that is not there"):
        toy.execute("SELECT easeml.import_trial(%s, 'forged')", [forged])
