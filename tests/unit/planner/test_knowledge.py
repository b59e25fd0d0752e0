"""Profiles of architectures from what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from easeml_db.decisions.planner.job import TrialProfile
from easeml_db.decisions.planner.knowledge import Knowledge


def known(**more: Any) -> dict[str, Any]:
    """Two architectures that were timed alike, on slots whose sessions take two seconds to open."""
    trials = [
        {"architecture": name, "device_kind": "cpu", "n_slots": 1, "is_same": True, "scale": 1, "n_epochs": 4,
         "epoch_seconds": 10.0, "sd_seconds": 0.0}
        for name in ("mlp", "trees")
        for _ in range(3)
    ]  # fmt: skip
    return {
        "trials": trials, "speedups": None, "whole": [], "joint": [], "n_partitions": 2, "curves": None,
        "starts": {"cpu": {"session": 2.0, "boosting": 1.5}}, "trainers": {"mlp": "torch", "trees": "boosting"}, **more,
    }  # fmt: skip


def profiles(*, is_local: bool = False, kind: str = "cpu", **more: Any) -> dict[str, TrialProfile]:
    knowledge = Knowledge(known(**more), "flowers", is_on_own_slots=is_local)
    found = knowledge.profiles(["mlp", "trees"], [kind], is_local=is_local)
    return {name: profile for (name, _), profile in found.items()}


def starts(**options: Any) -> list[float]:
    return [profile.session_seconds for profile in profiles(**options).values()]


def test_a_slot_that_starts_opens_its_session_and_imports_what_the_architecture_needs() -> None:
    assert starts() == [2.0, 3.5]
    assert starts(kind="cuda") == [2.0, 3.5]  # as far as is known
    assert starts(starts=None) == [0.0, 0.0]
    assert [profile.seconds(1) for profile in profiles().values()] == pytest.approx([10.0, 10.0])


def test_a_test_takes_the_share_of_an_epoch_that_its_validation_takes() -> None:
    assert profiles()["mlp"].test_epochs == 0
    timed = [row | {"test_seconds": 2.5} for row in known()["trials"]]
    assert profiles(trials=timed)["mlp"].test_epochs == pytest.approx(0.25)


def test_slots_of_this_server_have_their_sessions_unless_they_are_added() -> None:
    assert starts(is_local=True) == [0.0, 0.0]
    assert starts(is_local=True, adds_slots=True) == [2.0, 3.5]
