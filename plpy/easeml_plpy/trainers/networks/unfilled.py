"""Networks with empty parameters: layers and shapes only, until the tensors of a state replace them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode

DRAWING = {"kaiming_uniform_", "normal_", "trunc_normal_", "uniform_"}
"""Methods of tensors, and functions of torch.nn.init that do not go through those."""


class NothingDrawn(TorchFunctionMode):
    """A block in which tensors that would be filled with random numbers keep what their memory happens to hold.

    On the device "meta" they would have no memory at all, but half of what a network does with shapes there is written
    in Python, and torch imports its compiler for the first of it: that takes longer than drawing.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the tensor that was to be filled, or what any other function returns."""
        named = dict(kwargs or {})
        if getattr(func, "__name__", "") in DRAWING:
            return args[0] if args else named["tensor"]
        return func(*args, **named)
