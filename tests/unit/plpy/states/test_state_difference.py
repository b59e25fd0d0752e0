"""How two states of one trial are told apart."""

from __future__ import annotations

import torch

from easeml_plpy.states.checkpoint import dump
from easeml_plpy.states.state_difference import differing_tensors


def test_only_tensors_that_differ_are_named_with_their_largest_difference() -> None:
    one = {"same": torch.ones(3), "moved": torch.tensor([1.0, 2.0, 3.0]), "count": torch.tensor(4)}
    other = {"same": torch.ones(3), "moved": torch.tensor([1.0, 2.5, 2.0]), "count": torch.tensor(6)}
    assert differing_tensors(dump(one, {}), dump(other, {})) == {"count": 2.0, "moved": 1.0}
    assert differing_tensors(dump(one, {}), dump(one, {"steps": 1})) == {}


def test_tensors_that_cannot_be_compared_have_no_difference() -> None:
    one = {"shape": torch.ones(3), "type": torch.ones(2), "broken": torch.ones(2), "gone": torch.ones(1)}
    other = {"shape": torch.ones(4), "type": torch.ones(2).double(), "broken": torch.tensor([1.0, float("nan")])}
    found = differing_tensors(dump(one, {}), dump(other, {}))
    assert found == {"broken": None, "gone": None, "shape": None, "type": None}
