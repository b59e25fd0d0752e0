"""Private parts of torch give the bytes of the public calls, and are used in the releases that were compared only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomllib
import torch

from easeml_plpy.trainers.networks import torch_private

ROOT = Path(__file__).resolve().parents[4]
PRIVATE = re.compile(r"torch\._[a-z]|\b_(fused|foreach)_\w|_inside_ddp_forward|_distributed_c10d|_register_backend")


@pytest.fixture
def unknown_release(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A torch that no test has compared."""
    monkeypatch.setattr(torch, "__version__", "99.1.0")
    torch_private.has.cache_clear()
    yield
    torch_private.has.cache_clear()


def test_the_release_at_hand_was_compared() -> None:
    assert torch_private.has("_fused_adam_", "_fused_adamw_", "_foreach_add_", "_foreach_lerp_")
    assert not torch_private.has("_no_such_part")


def test_the_project_allows_no_release_after_those_compared() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    (bounds,) = (each for each in needed if re.match(r"torch\b", each))
    major, minor = map(int, torch_private.COMPARED[-1].split("."))
    assert bounds.endswith(f",<{major}.{minor + 1}")


@pytest.mark.usefixtures("unknown_release")
@pytest.mark.parametrize("name", torch_private.OPTIMIZERS)
def test_an_unknown_release_has_its_own_optimizers(name: str) -> None:
    assert torch_private.optimizer_class(name) is torch_private.OPTIMIZERS[name]


def averaged(n_steps: int = 5) -> list[bytes]:
    """Averages of some tensors after some steps towards others."""
    torch.manual_seed(1)
    averages = [torch.randn(n) for n in (3, 1000, 7)]
    for step in range(n_steps):
        torch_private.lerp(averages, [torch.randn_like(each) for each in averages], 1 / (step + 2))
    return [each.numpy().tobytes() for each in averages]


AVERAGED = averaged()


@pytest.mark.usefixtures("unknown_release")
def test_averages_are_the_same_bytes_in_an_unknown_release() -> None:
    assert averaged() == AVERAGED


def test_no_other_module_uses_private_parts() -> None:
    found = {}
    for path in (ROOT / "plpy" / "easeml_plpy").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = ""
        if path.name != "torch_private.py" and (used := PRIVATE.findall(ast.unparse(tree))):
            found[path.name] = used
    assert found == {}
