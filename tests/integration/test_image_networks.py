"""Networks for images in the server: each hops between partitions, and a replay gives the bytes of its states again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from easeml_plpy.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from tests.conftest import Session

NETWORKS = [name for name, each in ARCHITECTURES.items() if each.made_for == ("image",) and name != "lenet"]
SETUP = """
CREATE TABLE pictures AS SELECT i AS id, i % 2 AS label,
    decode(string_agg(lpad(to_hex(100 * (i % 2) + abs(hashint4(i * 200 + k)) % 90), 2, '0'), '' ORDER BY k), 'hex')
        AS image
FROM generate_series(1, 60) i, generate_series(1, 108) k GROUP BY i
"""
SPACE = {"width": [0.1], "batch_size": [8], "flip": ["horizontal"], "crop": [1], "normalization": ["0.6"]}


@pytest.fixture(scope="module")
def pictures(module_coordinated: Session) -> Session:
    """A finished run of every network over two partitions of 6 by 6 pixels in three colours."""
    session = module_coordinated
    session.execute(SETUP)
    session.execute(
        "SELECT easeml.create_dataset('pictures', 'pictures', '{image}', 'label', 2, input_shape => '{6,6,3}')"
    )
    session.execute(
        "SELECT easeml.select_models('pictures', %s, procedure => 'grid', max_epochs => 1, search_space => %s)",
        [NETWORKS, json.dumps(SPACE)],
    )
    session.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    return session


def test_every_network_hops_and_replays_to_the_same_bytes(pictures: Session) -> None:
    trials = pictures.rows("SELECT trial_id, architecture, status FROM easeml.trials")
    assert {row["architecture"]: row["status"] for row in trials} == dict.fromkeys(NETWORKS, "finished")
    for row in trials:
        (found,) = pictures.values("CALL easeml.replay(%s)", row["trial_id"])
        assert (found["n_units"], found["is_identical"]) == (2, True), row["architecture"]


def test_they_answer_and_are_explained(pictures: Session) -> None:
    pictures.execute("SELECT easeml.predict_table('pictures', 'pictures', 'answers')")
    assert pictures.value("SELECT count(*) FROM answers WHERE predicted_label IN ('0', '1')") == 60
    explained = pictures.rows("SELECT * FROM easeml.explain('pictures', n_rows => 10, n_repeats => 1)")
    assert len(explained) >= 1


def test_the_catalogue_says_what_architectures_are_made_for(pictures: Session) -> None:
    kinds = pictures.rows("SELECT architecture, made_for FROM easeml.architectures")
    assert {row["architecture"] for row in kinds if row["made_for"] == ["image"]} == {"lenet", *NETWORKS}
