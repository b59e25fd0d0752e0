"""The comparison with other ways of training: what is measured, and what is made of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import ttest_rel

from easeml_db.words.training_unit import unit_seed
from easeml_experiments.peers import record, training, usage, workload
from easeml_experiments.peers.comparison import Run, measures, tables, why
from easeml_experiments.peers.launch import Measured
from easeml_experiments.peers.record import Record
from easeml_experiments.peers.settings import FULL, QUICK
from easeml_experiments.peers.statistics import paired_difference
from easeml_experiments.peers.wire import sent_bytes
from easeml_plpy.architectures import complete
from easeml_plpy.trainers import architecture
from easeml_plpy.trainers.networks.torch_trainer import TorchTrainer

WORK = QUICK.workload(QUICK.networks[0], 32, seed=5, n_workers=2)
ROWS = torch.rand(40, 8, 8), torch.arange(40) % 10


# Measuring


def test_the_tcp_counters_see_what_is_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        with accepted:
            before = sent_bytes()
            client.sendall(b"x" * 100_000)
            left = 100_000
            while left:
                left -= len(accepted.recv(left))
            assert sent_bytes() - before == 100_000


def test_descendants_and_their_memory_are_counted() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    found = usage.with_descendants([process.pid])
    assert len(found) == 2
    assert usage.memory_bytes(found) > usage.memory_bytes([process.pid]) > 2**20
    process.communicate(b"\n")
    assert usage.memory_bytes(found) == 0


def test_processor_time_of_what_has_ended_still_counts() -> None:
    code = "import time; end = time.process_time() + 1.0\nwhile time.process_time() < end: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    with usage.Usage(lambda: [process.pid]) as seen:
        process.wait()
    assert 0.0 < seen.processor_seconds < 1.5
    assert seen.peak_memory_bytes > 2**20


class Pauses(list[float]):
    """How long a watch would wait each time, until it has done so three times."""

    def wait(self, seconds: float) -> bool:
        self.append(seconds)
        return len(self) == 3


def test_watching_leaves_the_processor_to_what_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_slowly(_: object) -> int:
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass
        return 1

    monkeypatch.setattr(usage, "memory_bytes", read_slowly)
    seen = usage.Usage(lambda: [os.getpid()])
    pauses = Pauses()
    monkeypatch.setattr(seen, "_ended", pauses)
    seen._watch()
    assert pauses[0] == usage.SAMPLE_SECONDS
    assert min(pauses[1:]) >= 0.1 / usage.MOST_OF_A_PROCESSOR


def test_a_worker_becomes_a_session_of_its_own_even_where_it_leads_a_group() -> None:
    code = (
        "import os; from easeml_experiments.peers.launch import in_own_session\n"
        "os.setpgid(0, 0); in_own_session(); in_own_session(); print(os.getsid(0) == os.getpid())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


# Training


def test_trials_start_with_the_parameters_that_the_database_gives_them() -> None:
    chosen, config = architecture("mlp"), complete(architecture("mlp"), WORK.config(3))
    seed = unit_seed(5, 3, 1, 1)  # trial 3 begins on partition 1 of 2
    started = TorchTrainer().start(chosen, config, WORK.task, n_steps_total=4, seed=seed)
    ours = training.start(
        WORK, 3, training.build(WORK, 3), [(ROWS[0][:20], ROWS[1][:20]), (ROWS[0][20:], ROWS[1][20:])]
    )
    assert ours.dump() == started.dump()


def test_sharing_divides_the_batch_and_so_keeps_the_number_of_steps() -> None:
    halves = [(ROWS[0][:20], ROWS[1][:20])]
    live = training.start(WORK, 1, training.build(WORK, 1), halves, n_sharing=2)
    assert training.train_part(live, WORK, 1, 1, 0, halves[0]).n_steps == 2  # 16 + 4 rows


def test_a_whole_trial_reports_every_epoch() -> None:
    outcome = training.WholeTrial(WORK, 2, [ROWS], ROWS).train_all()
    assert len(outcome.errors) == WORK.max_epochs
    assert all(0.0 <= error <= 1.0 for error in outcome.errors)
    assert outcome.started <= outcome.finished
    assert len(outcome.state_sha256) == 64


def test_workloads_and_records_survive_their_files(tmp_path: Path) -> None:
    workload.save(WORK, tmp_path)
    assert workload.load(tmp_path) == WORK
    kept = Record("tasks", 2, 1.0, 2.0, {1: [0.5, 0.25]}, {1: "ab"}, 3, 6, 4)
    record.save(kept, tmp_path / "record.json")
    assert record.load(tmp_path / "record.json") == kept


@pytest.mark.parametrize(("setting", "n_trials"), [(FULL, 8), (QUICK, 4)])
def test_the_paper_has_eight_trials_and_the_quick_form_half(setting: Any, n_trials: int) -> None:
    work = setting.workload(setting.networks[0], 32, seed=0, n_workers=2)
    assert len(work.configs) == n_trials
    assert [work.config(number)["weight_decay"] for number in (1, 2, 3)] == [1e-4, 1e-6, 1e-4]


# Comparing


def test_the_paired_difference_is_the_paired_t_test() -> None:
    pairs = [(0.10, 0.12), (0.20, 0.19), (0.30, 0.33), (0.15, 0.15)]
    ours, theirs = zip(*pairs, strict=True)
    expected = ttest_rel(ours, theirs)
    interval = expected.confidence_interval(0.95)
    found = paired_difference(pairs)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.holds_zero


def test_equal_errors_are_indistinguishable_and_one_shift_is_not() -> None:
    assert paired_difference([(0.1, 0.1), (0.2, 0.2)]).holds_zero
    shifted = paired_difference([(0.5, 0.25), (0.75, 0.5)])
    assert (shifted.holds_zero, shifted.p_value) == (False, 0.0)


def made_up(method: str, seed: int, seconds: float, *, batch_size: int = 32, worse: float = 0.0) -> Run:
    """A run of two trials that took these seconds after a start-up of one."""
    held = 50 if method == "mop" else 100
    unit = {"trial_number": 1, "slot_id": 1, "partition_number": 0, "seconds": 2.0, "training_seconds": 1.5}
    errors = {1: [0.5, 0.25 + worse], 2: [0.5, 0.125 + worse + seed / 100]}
    made = Record(method, 2, 10.0, 10.0 + seconds, errors, {1: "a", 2: "b"}, held, 2 * held, 7)
    units = ({**unit, "state_bytes": 8},) if method == "mop" else ()
    return Run("mlp", batch_size, seed, method, Measured(made, 9.0, 2**20, 1.5 * seconds, units))


RUNS = [
    *(made_up("mop", seed, seconds) for seed, seconds in ((0, 10.0), (1, 30.0))),
    *(made_up("ray-tune", seed, seconds) for seed, seconds in ((0, 20.0), (1, 30.0))),
    *(made_up("tasks", seed, seconds) for seed, seconds in ((0, 10.0), (1, 10.0))),
    made_up("sequential", 0, 20.0),
    made_up("data-parallel", 0, 25.0, worse=0.25),
    made_up("model-averaging", 0, 12.0, worse=0.25),
    made_up("replay", 0, 10.0),
    made_up("mop", 0, 10.0, batch_size=256),
    made_up("data-parallel", 0, 15.0, batch_size=256),
]


def test_times_are_compared_seed_by_seed() -> None:
    found = {(each.name, "batch 32" in each.setting): each for each in measures(RUNS)}
    parallel = found["data parallel / MOP, time", True]
    assert (parallel.value, parallel.target, parallel.holds) == (2.5, ">= 3", False)
    assert found["data parallel / MOP, time", False].value == 1.5
    tune = found["MOP / Ray Tune, time", True]
    assert (tune.value, tune.holds) == (0.75, True)  # the median of 10 / 20 and 30 / 30
    assert found["MOP / plain processes, time", True].value == 2.0
    assert found["MOP / Ray Tune, time with start-up", True].value == pytest.approx((11 / 21 + 31 / 31) / 2)


def test_processor_time_is_compared_over_all_seeds() -> None:
    found = {each.name: each for each in measures(RUNS)}
    assert found["MOP / ray-tune, processor time"].value == pytest.approx(40 / 50)
    assert found["data-parallel, processor use"].value == pytest.approx(1.5 * 25 / (26 * 2))


def test_errors_storage_and_bytes_have_their_verdicts() -> None:
    found = {each.name: each for each in measures(RUNS)}
    assert found["mop - sequential SGD, best validation error"].holds
    assert found["data-parallel - sequential SGD, best validation error"].value == pytest.approx(0.25)
    assert found["storage of a worker, MOP / task parallel"].holds
    assert found["trials with the same bytes"].holds
    assert found["of a unit not training, share"].value == pytest.approx(0.25)


def test_a_state_that_differs_is_told() -> None:
    other = made_up("replay", 0, 10.0)
    other.measured.record.hashes[2] = "c"
    found = {each.name: each for each in measures([run for run in RUNS if run.method != "replay"] + [other])}
    same = found["trials with the same bytes"]
    assert (same.value, same.target, same.holds) == (1, "= 2", False)


def test_tables_hold_every_run_and_epoch() -> None:
    made = tables(RUNS)
    assert len(made["methods"]) == len(RUNS)
    assert len(made["errors"]) == 4 * len(RUNS)
    assert len(made["units"]) == 3
    assert "2.00 s" in why(RUNS)
