"""Networks for images and series in the server: each hops between partitions, and a replay gives the same bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from easeml_plpy.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

IMAGES, SERIES = (
    [name for name, each in ARCHITECTURES.items() if each.made_for == (kind,) and each.outputs == "one"]
    for kind in ("image", "series")
)
N_SLOTS = 1
SETUP = """
CREATE TABLE pictures AS SELECT i AS id, i % 2 AS label,
    decode(string_agg(lpad(to_hex(100 * (i % 2) + abs(hashint4(i * 200 + k)) % 90), 2, '0'), '' ORDER BY k), 'hex')
        AS image
FROM generate_series(1, 60) i, generate_series(1, 108) k GROUP BY i;
CREATE TABLE curves AS SELECT i AS id, i % 2 AS label,
    (SELECT array_agg(ARRAY[sin(k * (1 + i % 2)), hashint4(i * 20 + k) % 7] ORDER BY k) FROM generate_series(1, 9) k)
        ::float4[] AS steps
FROM generate_series(1, 60) i;
SELECT easeml.create_dataset('pictures', 'pictures', '{image}', 'label', 2, input_shape => '{6,6,3}');
SELECT easeml.create_dataset('curves', 'curves', '{steps}', 'label', 2)
"""
DRAWN = {"flip": ["horizontal"], "crop": [1], "normalization": ["0.6"]}
NARROW = {name: {"width": [1 if name == "lenet" else 0.1]} | DRAWN for name in IMAGES} | {
    name: {"width": [8]} for name in SERIES if name != "transformer"
}
RUN = "SELECT easeml.select_models(%s, %s, procedure => 'grid', max_epochs => 1, search_space => %s)"


@pytest.fixture(scope="module")
def trained(module_coordinated: Session) -> Session:
    """Finished runs of every network over two partitions: of 6 by 6 pixels in three colours, and of nine steps."""
    session = module_coordinated
    for statement in SETUP.split(";"):
        session.execute(statement)  # type: ignore[arg-type]
    for dataset, names in (("pictures", IMAGES), ("curves", SERIES)):
        space = {"batch_size": [8]} | {name: NARROW[name] for name in names if name in NARROW}
        session.execute(RUN, [dataset, names, json.dumps(space)])
    session.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    return session


def trial_of(session: Session, name: str) -> int:
    trial_id: int = session.value("SELECT trial_id FROM easeml.trials WHERE architecture = %s", name)
    return trial_id


def test_every_network_hops_and_replays_to_the_same_bytes(trained: Session) -> None:
    trials = trained.rows("SELECT trial_id, architecture, status FROM easeml.trials WHERE architecture <> 'ensemble'")
    assert {row["architecture"]: row["status"] for row in trials} == dict.fromkeys([*IMAGES, *SERIES], "finished")
    for row in trials:
        (found,) = trained.values("CALL easeml.replay(%s)", row["trial_id"])
        assert (found["n_units"], found["is_identical"]) == (2, True), row["architecture"]


@pytest.mark.parametrize(("dataset", "name"), [("pictures", "alexnet"), ("curves", "gru")])
def test_they_answer(trained: Session, dataset: str, name: str) -> None:
    trained.execute("SELECT easeml.predict_table(%s, %s, 'answers', %s)", [dataset, dataset, trial_of(trained, name)])
    assert trained.value("SELECT count(*) FROM answers WHERE predicted_label IN ('0', '1')") == 60
    trained.execute("DROP TABLE answers")


def test_a_series_is_explained_step_by_step(trained: Session) -> None:
    rows = trained.rows(
        "SELECT * FROM easeml.explain('curves', %s, n_rows => 4, n_repeats => 1)", trial_of(trained, "gru")
    )
    assert 1 <= len(rows) <= 18


def test_the_catalogue_says_what_architectures_are_made_for(trained: Session) -> None:
    classifiers = "SELECT * FROM easeml.architectures WHERE 'classification' = ANY (tasks)"
    kinds = {row["architecture"]: row["made_for"] for row in trained.rows(classifiers)}
    assert [name for name, made_for in kinds.items() if made_for == ["image"]] == IMAGES
    assert [name for name, made_for in kinds.items() if made_for == ["series"]] == SERIES
