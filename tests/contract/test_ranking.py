"""Which trial is the best is said in one place: easeml.rank_key."""

import re

import pytest

from tests.contract.conftest import SQL

ROOT = SQL.parent
FOLDERS = ("sql", "plpy", "easeml_db", "experiments", "docs/dashboards")
RULE = SQL / "runs" / "ranking.sql"
RANKS = re.compile(
    r"(ORDER BY|min\(|max\()((?!\b(SELECT|FROM|LIMIT)\b)[^;)])*\bbest_(metric_value|loss)\b"  # sorted by it
    r"|-\s*(\w+\.)?best_metric_value\b"  # turned, so that less is better
    r"|best_metric_value\s*[<>]=?|[<>]=?\s*(\w+\.)?best_metric_value\b",  # compared
    re.IGNORECASE,
)


def ranks(text: str) -> bool:
    return RANKS.search(text) is not None


@pytest.mark.parametrize("text", [
    "ORDER BY t.best_metric_value DESC",
    "array_agg(trial_id ORDER BY CASE WHEN x THEN 1 END, best_loss)",
    "SELECT max(t.best_metric_value)",
    "CASE WHEN r.is_higher_better THEN -t.best_metric_value END",
    "WHERE a.best_metric_value > b.best_metric_value",
])  # fmt: skip
def test_a_second_rule_is_found(text: str) -> None:
    assert ranks(text)


def test_one_place_ranks_trials() -> None:
    sources = [
        path for folder in FOLDERS for end in ("sql", "py", "json") for path in (ROOT / folder).rglob(f"*.{end}")
    ]
    found = {path for path in sources if "upgrades" not in path.parts and ranks(path.read_text(encoding="utf-8"))}
    assert found == {RULE}
