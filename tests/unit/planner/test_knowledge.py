"""Profiles of architectures from what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from easeml_db.decisions.planner.job import TrialProfile
from easeml_db.decisions.planner.knowledge import BETWEEN_RUNS, MODEL_ERROR, Knowledge
from easeml_db.errors import NotReady


def known(**more: Any) -> dict[str, Any]:
    """Two architectures that were timed alike, on slots whose sessions take two seconds to open."""
    trials = [
        {"architecture": name, "device_kind": "cpu", "n_slots": 1, "is_same": True, "scale": 1, "n_epochs": 4,
         "epoch_seconds": 10.0, "sd_seconds": 0.0}
        for name in ("mlp", "trees")
        for _ in range(3)
    ]  # fmt: skip
    return {
        "trials": trials, "speedups": None, "whole": [], "joint": [], "growing": ["trees"], "n_partitions": 2,
        "curves": None, "starts": {"cpu": {"session": 2.0, "boosting": 1.5}},
        "trainers": {"mlp": "torch", "trees": "boosting"}, **more,
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


def test_a_slot_reads_each_partition_once() -> None:
    timed = [
        row | {"reading_seconds": seconds} for row, seconds in zip(known()["trials"], [1, 2, None] * 2, strict=True)
    ]
    both = profiles(trials=timed, whole=["trees"])
    assert [profile.reading_seconds for profile in both.values()] == [3.0, 1.5]  # trees read all of them in one unit
    assert profiles()["mlp"].reading_seconds == 0


def test_slots_of_this_server_have_their_sessions_unless_they_are_added() -> None:
    assert starts(is_local=True) == [0.0, 0.0]
    assert starts(is_local=True, adds_slots=True) == [2.0, 3.5]


def test_slots_wait_between_units_as_long_as_they_were_seen_to() -> None:
    both, one = {"mlp": 0.02, "trees": 0.01}, {"mlp": 0.02, "linear": 0.04}
    assert [profile.turn_seconds for profile in profiles(turn_seconds=both).values()] == [0.02, 0.01]
    assert [profile.turn_seconds for profile in profiles(turn_seconds=one).values()] == [0.02, pytest.approx(0.03)]
    assert [profile.turn_seconds for profile in profiles(turn_seconds=None).values()] == [0.0, 0.0]


def test_boosters_grow_and_networks_do_not() -> None:
    """Four epochs were timed, of 4, 8, 12 and 16 seconds: the first takes 4, each further one as much more."""
    growing = [row | {"n_epochs": 4, "mean_epoch": 2.5, "growth_seconds": 4.0} for row in known()["trials"]]
    found = profiles(trials=growing)
    assert (found["mlp"].growth, found["trees"].growth) == (0.0, pytest.approx(1.0))
    assert found["mlp"].seconds(1) == pytest.approx(10.0)
    assert found["trees"].seconds(1) == pytest.approx(4.0)
    faster = [row | {"n_epochs": 4, "mean_epoch": 2.5, "growth_seconds": -4.0} for row in known()["trials"]]
    assert profiles(trials=faster)["trees"].growth == 0.0
    few = [row | {"n_epochs": 2, "mean_epoch": 1.5, "growth_seconds": 4.0} for row in known()["trials"]]
    assert profiles(trials=few)["trees"].growth == 0.0


def with_gangs(**more: Any) -> dict[str, Any]:
    """Both architectures can train on several slots; another one was seen to be 1.5 times as fast on two."""
    measured = {"architecture": "lenet", "device_kind": "cpu", "is_same": True, "speedups": [1.0, 1.5],
                "restore_seconds": 0.2}  # fmt: skip
    return known(joint=["mlp", "lenet"], speedups=[measured], **more)


def test_a_scaling_that_was_not_measured_is_that_of_another_architecture_on_the_same_device_and_noted() -> None:
    knowledge = Knowledge(with_gangs(), "flowers")
    found = knowledge.profiles(["mlp", "trees"], ["cpu"], is_local=False)
    assert found["mlp", "cpu"].epoch_seconds == pytest.approx({1: 10.0, 2: 10.0 / 1.5})
    assert found["mlp", "cpu"].restore_seconds == 0.2
    assert found["trees", "cpu"].epoch_seconds == pytest.approx({1: 10.0})  # it cannot train on several slots
    assert knowledge.notes == ["mlp is taken to scale over cpu as lenet does"]


def test_what_was_measured_of_gangs_counts_more_than_the_scaling_of_another_architecture() -> None:
    wide = [*known()["trials"], known()["trials"][0] | {"n_slots": 2, "epoch_seconds": 9.0}]
    knowledge = Knowledge(with_gangs() | {"trials": wide}, "flowers")
    assert knowledge.profiles(["mlp"], ["cpu"], is_local=False)["mlp", "cpu"].epoch_seconds == {1: 10.0, 2: 9.0}
    assert knowledge.notes == []


@pytest.mark.parametrize("of", [{"device_kind": "cuda"}, {"architecture": "trees"}])
def test_no_scaling_is_borrowed_from_another_device_or_of_what_cannot_train_on_several_slots(
    of: dict[str, Any],
) -> None:
    (measured,) = with_gangs()["speedups"]
    knowledge = Knowledge(with_gangs() | {"speedups": [measured | of]}, "flowers")
    assert knowledge.profiles(["mlp"], ["cpu"], is_local=False)["mlp", "cpu"].epoch_seconds == {1: 10.0}
    assert knowledge.notes == ["mlp was never trained on several slots of cpu at once: each trial has one"]


def test_all_architectures_that_were_never_timed_are_named_at_once() -> None:
    with pytest.raises(NotReady, match="how long linear and sgd take on dataset 'flowers'") as refused:
        Knowledge(known(), "flowers").profiles(["linear", "mlp", "sgd"], ["cpu"], is_local=False)
    assert "easeml.profile_dataset('flowers', '{linear,sgd}')" in str(refused.value.hint)
    with pytest.raises(NotReady, match="how long mlp and trees take"):
        Knowledge(known(), "flowers").profiles(["mlp", "trees"], ["cuda"], is_local=True)


def test_trials_that_were_timed_alone_count_more_than_those_in_batches() -> None:
    batched = [row | {"is_batched": True, "epoch_seconds": 4.0} for row in known()["trials"]]
    assert profiles(trials=batched + known()["trials"])["mlp"].seconds(1) == pytest.approx(10.0)
    knowledge = Knowledge(known(trials=batched), "flowers")
    found = knowledge.profiles(["mlp"], ["cpu"], is_local=False)["mlp", "cpu"]
    assert found.seconds(1) == pytest.approx(4.0)
    assert found.uncertainty > profiles()["mlp"].uncertainty
    assert knowledge.notes == ["mlp was only timed in batches of trials: alone it may take longer"]


def test_runs_that_differed_make_the_next_one_uncertain() -> None:
    alike, unlike = (
        profiles(trials=[*in_runs(1, 1, 1), *in_runs(2, 2, 2, seconds=seconds), *known()["trials"][3:]])["mlp"]
        for seconds in (10.0, 20.0)
    )
    assert alike.uncertainty == pytest.approx((MODEL_ERROR**2 + BETWEEN_RUNS**2) ** 0.5)
    assert unlike.uncertainty > 0.5  # means of 10 and 20 seconds: a third might be anywhere there


def test_a_test_of_a_booster_adds_up_all_its_trees() -> None:
    """Tests after 4 epochs took 6 seconds, so 1.5 for each: 0.15 of an epoch, and as much more with each."""
    timed = [row | {"tested_seconds": 6.0, "tested_epoch": 4, "test_seconds": 2.0} for row in known()["trials"]]
    found = profiles(trials=timed)
    assert (found["trees"].test_epochs, found["trees"].test_growth) == (pytest.approx(0.15), 1.0)
    assert (found["mlp"].test_epochs, found["mlp"].test_growth) == (pytest.approx(0.2), 0.0)
    none = profiles(trials=[row | {"tested_seconds": None} for row in timed])["trees"]
    assert (none.test_epochs, none.test_growth) == (pytest.approx(0.2), 0.0)


def test_what_a_few_epochs_do_not_show_of_a_booster_makes_it_uncertain_and_is_noted() -> None:
    few = [row | {"n_epochs": 2} for row in known()["trials"]]
    knowledge = Knowledge(known(trials=few), "flowers")
    found = knowledge.profiles(["mlp", "trees"], ["cpu"], is_local=False)
    assert found["trees", "cpu"].uncertainty > 0.2 > found["mlp", "cpu"].uncertainty
    assert knowledge.notes == ["trees was never timed for 4 epochs: by how much its epochs grow is not known"]


def in_runs(*run_ids: int, seconds: float = 10.0) -> list[dict[str, Any]]:
    return [known()["trials"][0] | {"run_id": run_id, "epoch_seconds": seconds} for run_id in run_ids]


def test_of_a_run_under_way_its_own_trials_count_once_there_are_some() -> None:
    def of_run(rows: list[dict[str, Any]]) -> TrialProfile:
        knowledge = Knowledge(known(trials=rows), "flowers", run_id=7)
        return knowledge.profiles(["mlp"], ["cpu"], is_local=False)["mlp", "cpu"]

    others = in_runs(1, 1, 2, 2)
    assert of_run(others + in_runs(7, 7, 7, seconds=20.0)).seconds(1) == pytest.approx(20.0)
    assert of_run(others + in_runs(7, seconds=20.0)).seconds(1) == pytest.approx(12.0)
    assert of_run(others + in_runs(7, 7, 7)).uncertainty == pytest.approx(MODEL_ERROR)
    assert of_run(others).uncertainty == pytest.approx((MODEL_ERROR**2 + BETWEEN_RUNS**2) ** 0.5)
