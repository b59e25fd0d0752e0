"""Queued runs of fresh trials, for tests and benchmarks of the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from easeml_db.words.run import Arm, Run
from easeml_db.words.trial import Trial


def new_run(
    run_id: int,
    *,
    n_trials: int,
    n_partitions: int,
    max_epochs: int,
    seed: int = 0,
    max_seconds: float | None = None,
    architectures: Sequence[str] = ("mlp",),
    scheduler: str = "longest_remaining",
    visit_order: str = "cyclic",
    holders: Sequence[Collection[int]] | None = None,
    tenant: str = "tenant",
    allocation: str = "hopping",
    joint_architectures: Collection[str] = ("mlp", "linear"),
    whole_architectures: Collection[str] = ("trees",),
    gathering_segments: Collection[int] = (),
    batch_key_of: Callable[[int], str | None] = lambda trial_number: None,
) -> Run:
    """Return a queued run of fresh trials; architectures take turns and are the arms, trial ids are 100000 * run_id +
    number, arm ids 1000 * run_id + number. Trials whose numbers have the same key may share a batch.
    """
    trials = tuple(
        Trial(100_000 * run_id + number, run_id, number, n_partitions, max_epochs, 0, "waiting", visit_order)
        for number in range(1, n_trials + 1)
    )
    chosen = {trial.trial_id: architectures[trial.trial_number % len(architectures)] for trial in trials}
    names = list(dict.fromkeys(chosen.values()))
    arms = tuple(Arm(1000 * run_id + k, name, float(n_partitions * max_epochs)) for k, name in enumerate(names, 1))
    arm_of = {trial_id: 1000 * run_id + 1 + names.index(name) for trial_id, name in chosen.items()}
    held = None if holders is None else tuple(frozenset(segments) for segments in holders)
    return Run(
        run_id,
        seed,
        "queued",
        max_seconds,
        None,
        trials,
        chosen,
        scheduler,
        visit_order,
        held,
        tenant,
        arms=arms,
        arm_of=arm_of,
        allocation=allocation,
        joint_architectures=frozenset(joint_architectures),
        whole_architectures=frozenset(whole_architectures),
        gathering_segments=frozenset(gathering_segments),
        batch_keys={trial.trial_id: key for trial in trials if (key := batch_key_of(trial.trial_number)) is not None},
    )
