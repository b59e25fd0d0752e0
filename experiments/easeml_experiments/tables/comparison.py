"""What comes of the results: pure functions from them to measures, tables and words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from statistics import fmean, median
from typing import Any

from easeml_experiments.contract import Measure, at_least, at_most
from easeml_experiments.tables.catalogue import TABLES
from easeml_experiments.tables.kept import OURS
from easeml_experiments.tables.rivals import DEFAULTS, RIVALS
from easeml_experiments.tables.scoring import (
    Score,
    is_at_least_as_good,
    mean_score,
    ranks,
    seconds_until,
)

Row = dict[str, Any]
Results = Sequence[Mapping[str, Any]]
RANKED = (OURS, "hgb", "rf", "lightgbm", "flaml")
TARGETS = {"diamonds": 535.0, "bikes": 31.0, "flights": 0.806, "packages": 0.89}
MAX_ROUNDING = 1e-3  # a row by itself and in a batch may differ, and so a label where two are as likely
MIN_SHARE, MAX_SLOWDOWN, START_SECONDS = 0.9, 3.0, 5.0


def measures(results: Results) -> tuple[Measure, ...]:
    """Return every measure that the results allow."""
    found = [*_share(results), *_ranks(results), *_times(results), *_checks(results)]
    for name, rows in _by_table(results).items():
        if OURS in rows and name in TARGETS:
            found.append(_target(name, rows))
    return tuple(found)


def _share(results: Results) -> Iterator[Measure]:
    verdicts = [row["is_as_good"] for row in score_rows(results) if row["is_as_good"] is not None]
    if verdicts:
        setting = f"{sum(verdicts)} of {len(verdicts)} tables, best of {', '.join(DEFAULTS)}, one standard error"
        yield at_least("share of tables where ours is as good", setting, None, fmean(verdicts), MIN_SHARE)


def _ranks(results: Results) -> Iterator[Measure]:
    rows = [row for row in score_rows(results) if all(row.get(f"rank_{name}") for name in RANKED)]
    means = {name: fmean(row[f"rank_{name}"] for row in rows) for name in RANKED} if rows else {}
    for name, value in means.items():
        is_best = value <= min(means.values())
        target, holds = ("best", is_best) if name == OURS else (None, None)
        yield Measure(f"mean rank, {name}", f"{len(rows)} tables", None, value, target, holds)


def _times(results: Results) -> Iterator[Measure]:
    slowdowns = [row["slowdown"] for row in time_rows(results) if row["slowdown"] is not None]
    n_cases = len(time_rows(results))
    if n_cases:
        # A table on which ours never gets there counts as later than all others.
        value = median([*slowdowns, *[math.inf] * (n_cases - len(slowdowns))])
        setting = f"median of {n_cases}, {n_cases - len(slowdowns)} never"
        known = value if math.isfinite(value) else "never"
        name, target = "time until as good as HGB, less 5 s / HGB's time", f"<= {MAX_SLOWDOWN:g}"
        yield Measure(name, setting, None, known, target, value <= MAX_SLOWDOWN)


def _checks(results: Results) -> Iterator[Measure]:
    """Measure whether predictions for the rows found to be test rows score what the product measured on them."""
    both = [each for each in results if each["by"] == OURS and each.get("test_metric") is not None]
    n_same = sum(math.isclose(each["score"], each["test_metric"], rel_tol=MAX_ROUNDING) for each in both)
    if both:
        name = "runs whose predictions score as the product's test"
        yield Measure(name, "", None, n_same, f"= {len(both)}", n_same == len(both))


def _target(name: str, rows: Mapping[str, Results]) -> Measure:
    table, score = TABLES[name], _mean(rows[OURS])
    if score is None:
        return Measure(f"{name}, {table.metric}", "failed", None, None, f"{TARGETS[name]:g}", holds=False)
    check = at_least if table.is_higher_better else at_most
    setting = f"{score.value:.5g} with standard error {score.standard_error:.2g}, {len(rows[OURS])} seed(s)"
    return check(f"{name}, {table.metric}", setting, None, score.value, TARGETS[name])


def why(results: Results, left_out: Sequence[str] = ()) -> str:
    """Say where ours loses, with what was measured, and which results were left out."""
    losses = [
        f"{row['table']} ({row['ours']:.4g} against {row['best']}'s {row[row['best']]:.4g})"
        if row["ours"] is not None
        else f"{row['table']} (no prediction)"
        for row in score_rows(results)
        if row["is_as_good"] is False
    ]
    lost = f"Ours is behind on {', '.join(losses)}." if losses else "Ours is behind on no table that was compared."
    return (
        "No paper has these numbers: the rivals stand in the column of the tables. Each score is that of the dataset's"
        f" own test rows, and rivals had the training and the validation rows. {lost}{_not_compared(left_out)}"
    )


def _not_compared(left_out: Sequence[str]) -> str:
    return f" Not compared, until --rivals or --again runs them anew: {'; '.join(left_out)}." if left_out else ""


def in_words(results: Results, left_out: Sequence[str] = ()) -> str:
    """Return the scores on one table in a line, and which results were left out."""
    parts = [
        f"{each['by']} failed: {each['failure']}" if "failure" in each else f"{each['by']} {each['score']:.4g}"
        for each in results
    ]
    return (", ".join(parts) or "nothing was run") + "".join(f"; not compared: {line}" for line in left_out)


# Tables


def tables(results: Results) -> dict[str, list[Row]]:
    """Return rows of tables with the mean scores of all, of every single result, and of times."""
    single = [{name: value for name, value in each.items() if name not in ("curve", "trials")} for each in results]
    return {
        "scores": score_rows(results),
        "times": time_rows(results),
        "results": single,
        "curves": curve_rows(results),
    }


def score_rows(results: Results) -> list[Row]:
    """Return a row for each table: means over seeds, standard errors, ranks, whether ours is as good as the best."""
    return [_score_row(name, rows) for name, rows in _by_table(results).items()]


def _score_row(name: str, rows: Mapping[str, Results]) -> Row:
    table = TABLES[name]
    means = {by: _mean(rows.get(by, ())) for by in (OURS, *RIVALS)}
    known = {by: score for by, score in means.items() if score is not None}
    first = next(each for each in rows[next(iter(rows))])
    row: Row = {"table": name, "kind": table.kind, "metric": table.metric, "n_test_rows": first.get("n_scored_rows")}
    for by, score in means.items():
        row |= {by: score and score.value, f"{by}_error": score and score.standard_error}
    of_all = ranks({by: known[by].value for by in RANKED if by in known}, is_higher_better=table.is_higher_better)
    row |= {f"rank_{by}": rank for by, rank in of_all.items()}
    best = min((by for by in DEFAULTS if by in of_all), key=of_all.__getitem__, default=None)
    row |= {"best": best, "is_as_good": None}
    if best and OURS in rows:
        ours = known.get(OURS)
        row["is_as_good"] = ours is not None and is_at_least_as_good(
            ours, known[best], is_higher_better=table.is_higher_better
        )
    return row


def time_rows(results: Results) -> list[Row]:
    """Return a row for each table and seed: when ours first validated as well as HistGradientBoosting, fitted to the
    training rows alone; `slowdown` is that time less 5 s in units of the time that this fit took."""
    found = []
    for name, rows in _by_table(results).items():
        theirs = {each["seed"]: each for each in rows.get("hgb", ())}
        for each in rows.get(OURS, ()):
            if each["seed"] in theirs:
                found.append(_time_row(name, each, theirs[each["seed"]]))
    return found


def _time_row(name: str, ours: Mapping[str, Any], hgb: Mapping[str, Any]) -> Row:
    goal, fit_seconds = hgb["validation_score"], hgb["validation_fit_seconds"]
    until = seconds_until(ours.get("curve", ()), goal, is_higher_better=TABLES[name].is_higher_better)
    return {
        "table": name, "seed": ours["seed"], "goal": goal, "seconds": until, "hgb_seconds": fit_seconds,
        "packing_seconds": ours.get("packing_seconds"),
        "slowdown": None if until is None else max(until - START_SECONDS, 0.0) / fit_seconds,
    }  # fmt: skip


def curve_rows(results: Results) -> list[Row]:
    """Return every improvement of ours on validation rows, with its seconds since the call."""
    return [
        {"table": each["table"], "seed": each["seed"], "seconds": at, "validation_metric": value}
        for each in results
        for at, value in each.get("curve", ())
    ]


def _by_table(results: Results) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    """Return results by table (in the order of the catalogue) and by whom."""
    order = list(TABLES)
    in_order = sorted(results, key=lambda each: (order.index(each["table"]), each["by"]))
    return {
        name: {by: list(rows) for by, rows in groupby(list(group), itemgetter("by"))}
        for name, group in groupby(in_order, itemgetter("table"))
    }


def _mean(results: Results) -> Score | None:
    """Return the mean over seeds, None where a seed has no score."""
    if not results or any("score" not in each for each in results):
        return None
    return mean_score([Score(each["score"], each["standard_error"]) for each in results])
