"""What a config takes is known before it is built, and what a session may take is bounded."""

from __future__ import annotations

import ctypes
import json
import math
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from easeml_plpy.architectures import complete
from easeml_plpy.architectures.config import Config, NotedConfig
from easeml_plpy.catalogue.config_memory import Check, needed_bytes, shortage
from easeml_plpy.columns.layout import FormColumn
from easeml_plpy.columns.task import Objects, Task
from easeml_plpy.server.devices import bind
from easeml_plpy.server.errors import InvalidArgument, TrialFailed
from easeml_plpy.server.memory import LEAST_BYTES, is_exhausted, limit_to, machine_bytes, session_bytes, slot_share
from easeml_plpy.trainers import ARCHITECTURES
from easeml_plpy.units.live_trials import check_fits
from easeml_plpy.units.units import TrialSpec
from tests.unit.plpy.trainers.training_rows import IMAGE_NETWORKS, SERIES_NETWORKS, TENSOR_NETWORKS, TREE_NETWORKS

ROOT = Path(__file__).parents[4]
IMAGES = Task("classification", (3, 20, 17), 5)
ROWS = Task("regression", (7,), 1)
COLUMNS = (
    FormColumn("number", "a", cardinality=9), FormColumn("flag", "a"), FormColumn("number", "b", cardinality=4),
    FormColumn("category", "c", cardinality=3), FormColumn("number", "d"),
    *(FormColumn("token", "e", str(k), cardinality=30) for k in range(4)),
)  # fmt: skip
TABLE = Task("classification", (len(COLUMNS),), 3, "float32", COLUMNS)
CONFIGS: tuple[tuple[str, Task, dict[str, object]], ...] = (
    ("linear", ROWS, {}),
    ("linear", IMAGES, {}),
    ("mlp", ROWS, {"hidden_units": []}),
    ("mlp", IMAGES, {"hidden_units": [9, 4, 1], "dropout": 0.5}),
    ("mlp", TABLE, {"hidden_units": [9], "embedding_size": 5}),
    ("resnet", TABLE, {"width": 6, "n_blocks": 3}),
    ("tabm", TABLE, {"width": 6, "n_blocks": 3, "n_members": 4}),
    ("tabm", ROWS, {"width": 6, "n_blocks": 1}),
    ("lenet", IMAGES, {"width": 3, "hidden_units": [6]}),
    ("lenet", Task("classification", (8, 9), 2), {}),
)


@pytest.fixture
def limits() -> Iterator[None]:
    """The limit of this process is afterwards what it was."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.parametrize(("name", "task", "config"), CONFIGS)
def test_parameters_are_counted_as_torch_counts_them(name: str, task: Task, config: dict[str, object]) -> None:
    chosen = ARCHITECTURES[name]
    whole = complete(chosen, config)
    module = chosen.build(task, whole)
    assert isinstance(module, torch.nn.Module)
    size = chosen.size(task, whole)
    assert size.n_parameters == sum(parameter.numel() for parameter in module.parameters())
    assert size.n_outputs_a_row >= math.prod(task.input_shape)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_architecture_says_what_it_takes_and_defaults_take_little(name: str) -> None:
    chosen = ARCHITECTURES[name]
    shape = (28, 28) if name in (*IMAGE_NETWORKS, *SERIES_NETWORKS, *TENSOR_NETWORKS) else (784,)
    n_outputs = 10 if "classification" in chosen.tasks else 1
    task = Task(chosen.tasks[0], shape, n_outputs)
    if name in TENSOR_NETWORKS:
        task = Task("regression", shape, 784, output_shape=shape)
    if name in TREE_NETWORKS:
        task = Task("classification", (28, 28), 10, objects=Objects(25, 2))
    assert 0 < needed_bytes(chosen, task, complete(chosen, {}), [10_000]) < 200_000_000


def test_optimisers_count_with_what_they_keep() -> None:
    chosen, task = ARCHITECTURES["linear"], Task("regression", (999,), 1)

    def needed(**config: object) -> int:
        return needed_bytes(chosen, task, complete(chosen, config), [0])

    assert needed(optimizer="adam") == 4 * 1000 * 7
    assert needed(optimizer="sgd", momentum=0.9) == 4 * 1000 * 5
    assert needed(optimizer="sgd", momentum=0.0) == 4 * 1000 * 3


def test_a_batch_is_no_larger_than_its_partition() -> None:
    chosen = ARCHITECTURES["linear"]
    config = complete(chosen, {"batch_size": 65536, "optimizer": "sgd", "momentum": 0.0})
    assert needed_bytes(chosen, ROWS, config, [100]) == 4 * (8 * 3 + 100 * 8)


@pytest.mark.parametrize(("n_rows", "n_classes", "least"), [(40_000, 100, 83), (4_000, 1_000, 87), (200_000, 10, 89)])
def test_boosting_counts_what_was_measured_for_each_row_and_class(n_rows: int, n_classes: int, least: int) -> None:
    """Measured over one epoch (docs/design/slots.md): bytes a row and class, all else included."""
    chosen, task = ARCHITECTURES["lightgbm"], Task("classification", (5,), n_classes)
    config = complete(chosen, {"trees_per_epoch": 5})
    needed = needed_bytes(chosen, task, config, [n_rows])
    assert least <= needed / (n_rows * n_classes) < 1.3 * least


def test_ten_thousand_classes_are_refused_with_the_numbers() -> None:
    chosen, task = ARCHITECTURES["lightgbm"], Task("classification", (5,), 10_000)
    words = shortage(chosen, task, complete(chosen, {}), [28_000], 16 * 10**9)
    assert words == "lightgbm with num_leaves 31, trees_per_epoch 50 takes at least 25.3 GB"


def test_boosting_beyond_the_limit_of_the_process_is_a_memory_error_and_no_crash() -> None:
    """In a process of its own, which LightGBM would end with signal 11."""
    program = """
import resource, torch
from tests.unit.plpy.trainers.training_rows import no_pause
from easeml_plpy.columns.task import Task
from easeml_plpy.trainers import architecture, trainer_for
import lightgbm
task, chosen = Task("classification", (3,), 2000), architecture("lightgbm")
live = trainer_for("boosting").start(chosen, {"trees_per_epoch": 1}, task, n_steps_total=1, seed=0)
rows, targets = torch.randn(6000, 3), torch.arange(6000) % 2000
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
for share in (0.1, 0.25, 0.5, 0.75, 0.95):
    limit = used + int(share * 6000 * 2000 * 90)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    try:
        live.train(rows, targets, seed=0, pause=no_pause)
    except MemoryError:
        print("refused")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stdout) == (0, "refused\n" * 5), ended.stderr


def test_a_shortage_is_said_in_one_line() -> None:
    chosen = ARCHITECTURES["mlp"]
    config = complete(chosen, {"hidden_units": [65536] * 3})
    words = shortage(chosen, IMAGES, config, [1000], 2**30)
    assert words == f"mlp with hidden_units {json.dumps([65536] * 3)}, batch_size 256 takes at least 311.9 GB"
    assert shortage(chosen, IMAGES, config, [1000], 2**40) is None


def test_a_trial_beyond_the_limit_of_its_slot_fails_and_is_not_built(limits: None) -> None:
    spec = TrialSpec("mlp", {"hidden_units": [30_000, 30_000]}, 1, 1, (100,))
    bind("cpu", 1, 4 * 2**30)
    with pytest.raises(
        TrialFailed, match=r"^out of memory: mlp .* takes at least .* GB, and its slot may take 4\.3 GB$"
    ):
        check_fits(spec, ROWS, "cpu")
    check_fits(TrialSpec("mlp", {"hidden_units": [300]}, 1, 1, (100,)), ROWS, "cpu")


def test_the_limit_of_a_session_holds_and_is_not_lifted_by_the_next_call(limits: None) -> None:
    bind("cpu", 1, 3 * 2**30)
    bind("cpu", 1, None)
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == session_bytes() == 3 * 2**30
    limit_to(5 * 2**30, is_lower=True)
    assert session_bytes() == 3 * 2**30
    with pytest.raises(MemoryError):
        bytearray(4 * 2**30)


def test_slots_share_most_of_the_machine_and_each_has_enough_to_begin() -> None:
    assert slot_share(1) + slot_share(1) > machine_bytes() > slot_share(1)
    assert slot_share(10**6) == LEAST_BYTES
    assert slot_share(0) == slot_share(1)


FREED = """
import resource
from easeml_plpy.server.memory import keep_freed_memory
keep_freed_memory()
def state():
    return len(b"x" * (8 << 20))  # written to and freed at once
state()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    state()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_memory_that_a_unit_frees_is_there_for_the_next_one() -> None:
    told = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert int(told.stdout) < 200  # each state has 2,048 pages


@pytest.mark.parametrize(("name", "task", "settings"), CONFIGS)
def test_configs_that_agree_in_what_was_read_take_the_same(name: str, task: Task, settings: dict[str, object]) -> None:
    chosen = ARCHITECTURES[name]
    whole = complete(chosen, settings)
    noted = NotedConfig(whole)
    needed = needed_bytes(chosen, task, noted, [40]), chosen.config_objection(task, noted)
    for each in chosen.hyperparameters:
        if each.name not in noted.read and each.kind in ("float", "integer"):
            for value in (each.low, each.high):
                other = complete(chosen, whole | {each.name: value})
                assert (needed_bytes(chosen, task, other, [40]), chosen.config_objection(task, other)) == needed


def test_of_configs_that_differ_in_what_nobody_reads_one_is_looked_at() -> None:
    check = Check(ARCHITECTURES["mlp"], ROWS, [40], 10**9)
    for learning_rate in (0.1, 0.01, 0.001):
        check.check({"learning_rate": learning_rate})
    assert check.n_checked == 1
    check.check({"learning_rate": 0.1, "hidden_units": [64]})
    assert check.n_checked == 2
    with pytest.raises(InvalidArgument, match=r"slot may take 1[.]0 GB"):
        check.check({"learning_rate": 0.1, "hidden_units": [65536, 65536]})
    with pytest.raises(InvalidArgument, match="a list of at most"):
        check.check({"learning_rate": 0.1, "hidden_units": [8] * 100})


@pytest.mark.parametrize("read", [dict, list, lambda config: [*config.values()], lambda config: [*config.items()]])
def test_a_config_that_was_read_as_a_whole_has_all_its_settings_noted(read: Callable[[Config], object]) -> None:
    whole = complete(ARCHITECTURES["mlp"], {})
    noted = NotedConfig(whole)
    assert noted.get("nothing") is None
    assert "learning_rate" in noted
    assert noted.read == {"nothing", "learning_rate"}
    assert read(noted) == read(whole)
    assert noted.read >= set(whole)


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        (MemoryError(), True),
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("shape"), False),
        (ValueError('expected a number, got "can\'t allocate memory"'), False),
    ],
)
def test_memory_that_ran_out_is_recognised_whoever_says_so(error: Exception, is_gone: bool) -> None:
    assert is_exhausted(error) is is_gone
