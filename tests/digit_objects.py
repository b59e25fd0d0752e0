"""Real digits as series and trees of unequal size: the columns with ink, and halves of halves down to plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

Image = np.ndarray[Any, np.dtype[np.float64]]


def strokes() -> list[list[list[float]]]:
    """Each digit as its pixels with ink, in reading order: column, line and grey level of each, 13 to 45 of them."""
    return [[[x, y, image[y, x]] for y, x in np.argwhere(image > 0).tolist()] for image in load_digits().images]


def columns() -> list[list[list[float]]]:
    """Each digit as its columns from the first to the last with ink, 3 to 8 of them."""
    found = []
    for image in load_digits().images:
        (inked,) = np.nonzero(image.any(axis=0))
        found.append(image[:, inked[0] : inked[-1] + 1].T.tolist())
    return found


def halves(n_digits: int | None = None) -> list[dict[str, Any]]:
    """Each digit as a tree: mean grey level and size of a part, and its two halves unless it is plain or one pixel.

    Of all digits, or of the first so many.
    """
    return [halved(image) for image in load_digits().images[:n_digits]]


def halved(part: Image, least_spread: float = 3.0) -> dict[str, Any]:
    """Return the tree of a part of a picture, which is cut across its longer side."""
    node: dict[str, Any] = {"ink": [float(part.mean()), float(part.size)]}
    if part.size > 1 and part.max() - part.min() > least_spread:
        wide = part if part.shape[1] >= part.shape[0] else part.T
        middle = wide.shape[1] // 2
        sides = (wide[:, :middle], wide[:, middle:])
        first, second = (side if wide is part else side.T for side in sides)
        node |= {"first": halved(first), "second": halved(second)}
    return node


def labels() -> Any:
    """The digits that they are."""
    return load_digits().target
