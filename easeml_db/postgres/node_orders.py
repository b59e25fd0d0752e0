"""What the order of a unit says to a node: which rows it needs there, and how it is recorded.

A unit is over one partition; a whole round is over all, and is recorded with what was done of each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from easeml_db.errors import SlotLost
from easeml_db.postgres.transfers import Part

SPLITS = {"train": "train", "validate": "validation", "test": "test", "pilot": "train"}
FACTS = ("n_rows", "loss", "training_seconds", "read_bytes", "statistics")
Fields = dict[str, Any]


def parts_of(order: Fields, opened: Fields) -> list[Part]:
    """Return the parts whose rows a unit reads. With folds, rows that train validate, each in its turn."""
    split = "train" if opened["has_folds"] and order["kind"] == "validate" else SPLITS[order["kind"]]
    return [Part(opened["dataset_id"], split, each["partition_number"]) for each in _members(order)]


def ends_epoch(order: Fields, opened: Fields) -> bool:
    """Say whether no partition is left of the epoch after a unit."""
    is_last: bool = _members(order)[-1]["position"] == opened["n_partitions"] - 1
    return is_last


def recorded_order(order: Fields, told: Fields) -> str:
    """Return the order as it is recorded. Raises SlotLost where a node tells of other partitions than it was given."""
    if "gang" not in order:
        return json.dumps(order)
    members, parts = _members(order), told.pop("parts", None)
    if not isinstance(parts, list) or len(parts) != len(members):
        raise SlotLost(f"the node told of another round than one over {len(members)} partitions")
    others = [{**member, **_facts(part)} for member, part in zip(members, parts, strict=True)][1:]
    return json.dumps({**order, "gang": {"n_ranks": 1, "others": others}})


def _members(order: Fields) -> Sequence[Fields]:
    members: Sequence[Fields] = order["gang"]["members"] if "gang" in order else [order]
    return members


def _facts(part: Fields) -> Fields:
    """Return what a node may say of a partition: what it did there, and not where it was."""
    return {name: part[name] for name in FACTS if name in part}
