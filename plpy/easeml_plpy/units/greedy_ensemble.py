"""Greedy ensemble selection with replacement (Caruana et al. 2004): which members, and how often each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from easeml_plpy.metrics.metrics import WORST, Score
from easeml_plpy.server.value_types import Array

N_ROUNDS = 20
PATIENCE = 4  # rounds that bring nothing


def select(outputs: Sequence[Array], score: Callable[[Array], Score]) -> dict[int, float]:
    """Return the weights of the members by position; `score` of mean outputs: higher is better.

    It begins with the best member and adds in each round the one that helps most, possibly again. The first of the best
    ensembles on the way is taken, so further members are added only if they gain something.
    """
    picked: list[int] = []
    total: Array = np.zeros_like(outputs[0], dtype=np.float64)
    best_score, n_best = WORST, 0
    for n_rounds in range(1, N_ROUNDS + 1):
        scores = [score((total + member_outputs) / n_rounds) for member_outputs in outputs]
        chosen = max(range(len(scores)), key=scores.__getitem__)
        picked.append(chosen)
        total = total + outputs[chosen]
        if scores[chosen] > best_score:
            best_score, n_best = scores[chosen], n_rounds
        elif n_rounds - n_best >= PATIENCE:
            break
    counts = Counter(picked[: max(n_best, 1)])
    return {position: count / counts.total() for position, count in sorted(counts.items())}
