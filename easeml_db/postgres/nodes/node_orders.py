"""The order of a unit on a node: which rows and states it needs there, and how it is recorded.

A unit covers one partition; a whole round covers all, and is recorded with the results of each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from easeml_db.errors import SlotLost
from easeml_db.postgres.nodes.node_store import KnownState, Part

SPLITS = {"train": "train", "validate": "validation", "test": "test", "pilot": "train"}
FACTS = ("n_rows", "loss", "training_seconds", "read_bytes", "statistics")
OF_STATE = ("checkpoint_id", "trial_id", "n_bytes", "sha256")
Fields = dict[str, Any]


def parts_of(order: Fields, opened: Fields) -> list[Part]:
    """Return the parts whose rows a unit reads."""
    numbers = [member["partition_number"] for member in _members(order)]
    return [
        Part(opened["dataset_id"], split, number) for split in splits_of(order["kind"], opened) for number in numbers
    ]


def splits_of(kind: str, opened: Fields) -> tuple[str, ...]:
    """Return the splits that a unit reads. With folds, rows that train validate, each in its turn.

    An ensemble chooses its members on validation rows, and may have them trained again on all.
    """
    composition, has_folds = opened["composition"], opened.get("has_folds", False)
    if has_folds and (kind == "validate" or composition is not None):
        return ("train",)
    if composition is None:
        return (SPLITS[kind],)
    return ("validation", "train") if composition["is_refit_wanted"] else ("validation",)


def mates_of(opened: Fields) -> list[KnownState]:
    """Return the states of which an ensemble is made, by a unit that makes one. They are on the control server."""
    candidates = [] if opened["composition"] is None else opened["composition"]["candidates"]
    return [KnownState(*(candidate[name] for name in OF_STATE)) for candidate in candidates]


def later(opened: Fields, seconds: float) -> Fields:
    """Return the context of an opened unit some seconds later, when its run has less time left."""
    composition = opened["composition"]
    if composition is None or composition["seconds_left"] is None:
        return opened
    return {**opened, "composition": {**composition, "seconds_left": composition["seconds_left"] - seconds}}


def ends_epoch(order: Fields, opened: Fields) -> bool:
    """Return whether a unit is the last of its epoch."""
    is_last: bool = _members(order)[-1]["position"] == opened["n_partitions"] - 1
    return is_last


def recorded_order(order: Fields, result: Fields) -> str:
    """Return the order as it is recorded. Raises SlotLost if a node reports other partitions than it was given."""
    if "gang" not in order:
        return json.dumps(order)
    members, parts = _members(order), result.pop("parts", None)
    if not isinstance(parts, list) or len(parts) != len(members):
        raise SlotLost(f"the node told of another round than one over {len(members)} partitions")
    others = [{**member, **_facts(part)} for member, part in zip(members, parts, strict=True)][1:]
    return json.dumps({**order, "gang": {"n_ranks": 1, "others": others}})


def _members(order: Fields) -> Sequence[Fields]:
    members: Sequence[Fields] = order["gang"]["members"] if "gang" in order else [order]
    return members


def _facts(part: Fields) -> Fields:
    """Return the facts that a node may report about a partition: what it did there, but not where it was."""
    return {name: part[name] for name in FACTS if name in part}
