"""The arithmetic of rungs: whole numbers only, powers by multiplication (log3 of 243 must count 5).

A rung is how many trials of a bracket reach it, and the epochs in total that they have when they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from easeml_db.decisions.procedures.contract import PlannedRung
from easeml_db.decisions.procedures.options import MAX_CONFIGS
from easeml_db.decisions.search_space.refusal import refusal


@dataclass(frozen=True)
class Rung:
    n_trials: int
    n_epochs: int


Bracket = tuple[Rung, ...]


def n_powers(limit: int, eta: int) -> int:
    """Return the largest s with eta^s <= limit (limit >= 1, eta >= 2)."""
    s, power = 0, eta
    while power <= limit:
        s, power = s + 1, power * eta
    return s


def rung_totals(min_epochs: int, max_epochs: int, eta: int, *, increments: bool = False) -> list[int]:
    """Return the epochs in total at every rung; the last one is max_epochs.

    They are min_epochs * eta^i, or the sums of these where they are meant as increments (Cerebro, RubberBand).
    """
    totals, step = [min_epochs], min_epochs * eta
    while totals[-1] < max_epochs:
        totals.append(min(max_epochs, totals[-1] + step if increments else step))
        step *= eta
    return totals


def halving_bracket(n_trials: int, min_epochs: int, max_epochs: int, eta: int, *, increments: bool = False) -> Bracket:
    """Return the rungs of successive halving: n div eta go on, until one is left, which runs to max_epochs."""
    rungs = []
    for n_epochs in rung_totals(min_epochs, max_epochs, eta, increments=increments):
        rungs.append(Rung(n_trials, max_epochs if n_trials == 1 else n_epochs))
        if n_trials == 1:
            break
        n_trials = max(1, n_trials // eta)
    return tuple(rungs)


def hyperband_brackets(max_epochs: int, eta: int, min_epochs: int = 1) -> list[Bracket]:
    """Return Hyperband's brackets, from the one with the most trials to the one without stopping."""
    s_max = n_powers(max_epochs // min_epochs, eta)
    return [_hyperband_bracket(s, s_max, max_epochs, eta) for s in range(s_max, -1, -1)]


def _hyperband_bracket(s: int, s_max: int, max_epochs: int, eta: int) -> Bracket:
    powers: list[int] = [eta**i for i in range(s + 1)]
    n_trials = -(-(s_max + 1) * powers[s] // (s + 1))
    return tuple(Rung(n_trials // powers[i], max_epochs // powers[s - i]) for i in range(s + 1))


def fitted(brackets: Sequence[Bracket], n_trials: int, eta: int) -> list[Bracket]:
    """Cut brackets to `n_trials` trials in all; of a bracket that is cut, at least one goes on at every rung."""
    fitting: list[Bracket] = []
    for bracket in brackets:
        n_here = min(n_trials, bracket[0].n_trials)
        if n_here:
            rungs = (Rung(max(1, n_here // eta**i), rung.n_epochs) for i, rung in enumerate(bracket))
            fitting.append(tuple(rungs))
        n_trials -= n_here
    return fitting


def checked_hyperband(max_epochs: int, eta: int, min_epochs: int, n_configs: int | None) -> list[Bracket]:
    """Return Hyperband's brackets, cut to `n_configs`; without a cut, more than MAX_CONFIGS trials are refused."""
    brackets = hyperband_brackets(max_epochs, eta, min_epochs)
    n_trials = sum(bracket[0].n_trials for bracket in brackets)
    if n_configs is None and n_trials > MAX_CONFIGS:
        raise refusal(
            "max_epochs",
            expected=f"brackets of at most {MAX_CONFIGS} configs",
            got=f"{n_trials} with {max_epochs} epochs, eta {eta} and min_epochs {min_epochs}",
            hint="Raise min_epochs or eta, or say n_configs to cut the brackets.",
        )
    return fitted(brackets, n_trials if n_configs is None else n_configs, eta)


def default_n_configs(max_epochs: int, eta: int, min_epochs: int) -> int:
    """Return eta^s, the trials of Hyperband's first bracket when one is to reach the end; 8 to MAX_CONFIGS."""
    n_trials: int = eta ** n_powers(max_epochs // min_epochs, eta)
    return min(MAX_CONFIGS, max(8, n_trials))


def planned(brackets: Sequence[Bracket]) -> list[PlannedRung]:
    """Return the rows of a preview; the work of a rung is the epochs that its trials train beyond the rung before."""
    return [
        PlannedRung(number, i, rung.n_trials, rung.n_epochs, rung.n_trials * (rung.n_epochs - _before(bracket, i)))
        for number, bracket in enumerate(brackets)
        for i, rung in enumerate(bracket)
    ]


def _before(bracket: Bracket, position: int) -> int:
    return bracket[position - 1].n_epochs if position else 0
