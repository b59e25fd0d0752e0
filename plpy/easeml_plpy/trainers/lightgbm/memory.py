"""Memory that LightGBM takes, measured (docs/design/slots.md), and demanded before it starts.

LightGBM does not look whether its aligned arrays (gradients, histograms) could be allocated. It writes through the null
pointer, and that ends the server's process and everybody's session. So what it will take is demanded beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping

from easeml_plpy.server.memory import demand
from easeml_plpy.server.value_types import JSON
from easeml_plpy.trainers.lightgbm.architecture import HISTOGRAM_MEGABYTES, LightGBMParameters

BINNED_NUMBER_BYTES = 5
"""A number in its row form, and its bin."""
MARGIN_BYTES = 90
"""A margin in double precision, eight times and more: before and after, in LightGBM and here, with its gradient, its
hessian and the probability; measured at 83 to 90."""
SAMPLED_ROWS, SAMPLED_NUMBER_BYTES = 200_000, 16
"""Rows of which LightGBM makes the bins, and a number of them with its place."""
BIN_BYTES = 16  # a gradient and a hessian


def binning_bytes(n_rows: int, n_features: int) -> int:
    """Return what the sample takes from which the bins are made."""
    return min(n_rows, SAMPLED_ROWS) * n_features * SAMPLED_NUMBER_BYTES


def demand_binning(n_rows: int, n_features: int) -> None:
    """Raise MemoryError unless rows can be binned."""
    demand(binning_bytes(n_rows, n_features) + n_rows * n_features)


def demand_growing(parameters: LightGBMParameters, n_rows: int, n_features: int) -> None:
    """Raise MemoryError unless an epoch of trees can be grown."""
    demand(n_rows * parameters.n_margins * MARGIN_BYTES + _histogram_bytes(parameters, n_features))


def _histogram_bytes(parameters: LightGBMParameters, n_features: int) -> int:
    n_bins = n_features * _whole(parameters.rows, "max_bin")
    every = _whole(parameters.trees, "num_leaves") * n_bins * BIN_BYTES
    return min(every, max(HISTOGRAM_MEGABYTES << 20, 2 * n_bins * BIN_BYTES))


def _whole(parameters: Mapping[str, JSON], name: str) -> int:
    value = parameters[name]
    return value if isinstance(value, int) else 0
