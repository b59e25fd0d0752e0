"""What a unit needs on a node, from its order and what was opened."""

from typing import Any

import pytest

from easeml_db.postgres.nodes.node_orders import later, mates_of, parts_of
from easeml_db.postgres.nodes.node_store import KnownState, Part

MEMBERS = {"gang": {"members": [{"partition_number": 1, "position": 0}, {"partition_number": 0, "position": 1}]}}


def composition(**told: Any) -> dict[str, Any]:
    candidate = {"trial_id": 7, "trial_number": 2, "checkpoint_id": 70, "n_bytes": 9, "sha256": "ab", "config": {}}
    return {"candidates": [candidate], "is_refit_wanted": True, "seconds_left": 10.0, **told}


def opened(**told: Any) -> dict[str, Any]:
    return {"dataset_id": 3, "has_folds": False, "composition": None, **told}


@pytest.mark.parametrize(
    ("kind", "told", "splits"),
    [
        ("train", {}, ["train"]),
        ("validate", {}, ["validation"]),
        ("validate", {"has_folds": True}, ["train"]),
        ("test", {"has_folds": True}, ["test"]),
        ("train", {"composition": composition()}, ["validation", "train"]),
        ("train", {"composition": composition(is_refit_wanted=False)}, ["validation"]),
        ("train", {"composition": composition(), "has_folds": True}, ["train"]),
    ],
)
def test_a_unit_needs_rows_of_all_its_partitions_and_an_ensemble_those_it_chooses_on(
    kind: str, told: dict[str, Any], splits: list[str]
) -> None:
    wanted = [Part(3, split, number) for split in splits for number in (1, 0)]
    assert parts_of({"kind": kind, **MEMBERS}, opened(**told)) == wanted
    assert parts_of({"kind": kind, "partition_number": 4}, opened(**told))[0] == Part(3, splits[0], 4)


def test_an_ensemble_needs_the_states_of_its_candidates_and_has_less_time_when_they_are_there() -> None:
    assert mates_of(opened()) == []
    assert mates_of(opened(composition=composition())) == [KnownState(70, 7, 9, "ab")]
    assert later(opened(composition=composition()), 4.0)["composition"]["seconds_left"] == 6.0
    endless = opened(composition=composition(seconds_left=None))
    assert later(endless, 4.0) == endless
    assert later(opened(), 4.0) == opened()
