"""A further metric, as somebody would add it: the text of this file, and the line REGISTER in the registry."""

from easeml_plpy.metrics.contract import Metric, own_sum

NAME = "brier"
REGISTER = f"""
from easeml_plpy.metrics import METRICS
METRICS["{NAME}"] = BRIER
"""


def _squares(task, outputs, targets):
    wanted = targets[:, None] == range(task.n_outputs)
    return {"brier_sum": float(((outputs - wanted) ** 2).sum())}


def _value(task, statistics):
    return own_sum(statistics, "brier_sum") / statistics["n_rows"]


BRIER = Metric(NAME, "classification", False, "mean squared error of the probabilities", value=_value, sums=_squares)
