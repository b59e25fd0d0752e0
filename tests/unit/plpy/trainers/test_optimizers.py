"""Our optimisers are torch's own, to the byte, without the import that torch's own cost each new session."""

import subprocess
import sys
from inspect import signature

import pytest
import torch
from torch import nn

from easeml_plpy.trainers.networks.optimizers import Descent, build_optimizer

SETTINGS = {
    "learning_rate": 0.1,
    "weight_decay": 0.01,
    "momentum": 0.9,
    "batch_size": 7,
    "schedule": "constant",
    "averaging": 0.0,
}
TORCH = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
LIFE = """
import sys, torch
from easeml_plpy.trainers.networks.optimizers import Descent, build_optimizer
module = torch.nn.Linear(3, 2)
descent = Descent("adam", 0.1, 0.9, 0.0, 4, "constant", 0.0)
optimizer = build_optimizer(descent, module, torch.device("cpu"))
optimizer.zero_grad(set_to_none=True)
module(torch.ones(4, 3)).sum().backward()
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())

from easeml_plpy.architectures import complete, fits
from easeml_plpy.trainers import ARCHITECTURES
from easeml_plpy.columns.layout import FormColumn
from easeml_plpy.columns.task import Objects, Task
from easeml_plpy.trainers import trainer_for
from easeml_plpy.trainers.networks.unfilled import NothingDrawn
kinds = ("number", "flag", "category", "token")
layout = tuple(FormColumn(kind, "a", cardinality=8) for kind in kinds)
table = Task("classification", (4,), 3, "float32", layout)
others = [Task("classification", shape, 3) for shape in ((12,), (28, 28), (24, 2))]
others.append(Task("classification", (12, 6), 3, objects=Objects(3, 2)))
others += [Task("regression", shape, n, output_shape=shape) for shape, n in (((8, 8, 1), 64), ((12, 2), 24))]
networks = [each for each in ARCHITECTURES.values() if each.trainer == "torch" and not each.is_derived]
for network in networks:
    tasks = [task for task in (table, *others) if not fits(network, task)]
    assert tasks, network.name
    for task in tasks:
        with NothingDrawn():
            network.build(task, complete(network, {}))
start, resume = trainer_for("torch").start, trainer_for("torch").resume
state = start(ARCHITECTURES["mlp"], {}, table, n_steps_total=4, seed=1).dump()
assert resume(ARCHITECTURES["mlp"], {}, table, state).dump() == state
print([name for name in sys.modules if name in ("torch._dynamo", "sympy")])
"""


def trained(name: str, *, is_ours: bool) -> tuple[list[bytes], str]:
    """Parameters and optimiser after some steps, with a stop and a restart between them."""
    torch.manual_seed(1)
    module, cpu = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)), torch.device("cpu")
    ours = build_optimizer(Descent(optimizer=name, **SETTINGS), module, cpu)
    # The options that the trainer chose, whatever this release of torch offers.
    options = {key: value for key, value in ours.defaults.items() if key in signature(TORCH[name]).parameters}
    optimizer = ours if is_ours else TORCH[name](module.parameters(), **options)
    for _ in range(3):
        # Each layer alone, then both, then none: what has no gradient keeps its parameters and slots.
        for outputs, n_numbers in ((module[1], 3), (module[0], 5), (module, 5), (None, 0)):
            optimizer.zero_grad(set_to_none=True)
            if outputs is not None:
                outputs(torch.randn(7, n_numbers)).square().mean().backward()
            optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    return [p.detach().numpy().tobytes() for p in module.parameters()], repr(optimizer.state_dict())


@pytest.mark.parametrize("name", TORCH)
def test_an_optimizer_takes_the_steps_of_torchs_own(name: str) -> None:
    assert trained(name, is_ours=True) == trained(name, is_ours=False)


def test_a_session_that_trains_and_resumes_does_not_import_torchs_compiler() -> None:
    said = subprocess.run([sys.executable, "-c", LIFE], cwd="/", capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
