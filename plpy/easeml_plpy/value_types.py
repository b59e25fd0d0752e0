"""Names for the types of values that many modules share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

Array: TypeAlias = npt.NDArray[Any]
"""An array whose element type is known only when the code runs, because a column's type decides it."""

Floats: TypeAlias = npt.NDArray[np.float32]

Pause: TypeAlias = Callable[[], None]
"""What long work calls after each mini-batch, so that a cancel gets through."""
