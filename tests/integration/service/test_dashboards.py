"""Tools that draw find views with columns of known types, and the dashboards that are shipped ask for nothing else.

Superset reads the catalogue through SQLAlchemy, so this does, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
import yaml
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.types import NullType

from easeml_db.postgres.queries import parse

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from stored_rows.catalogue_rows import TINY, fill

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

DASHBOARDS = Path(__file__).resolve().parents[3] / "docs" / "dashboards"
BUNDLE = DASHBOARDS / "superset"


def documents(folder: str) -> list[dict[str, Any]]:
    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((BUNDLE / folder).rglob("*.yaml"))]


DATASETS = {one["uuid"]: one for one in documents("datasets")}
CHARTS = {one["uuid"]: one for one in documents("charts")}


@pytest.fixture(scope="module")
def dashboard(module_database: Session) -> Iterator[sqlalchemy.Connection]:
    """What a tool sees that logs in as a reader."""
    fill(module_database, TINY)
    module_database.execute("CREATE ROLE dashboard LOGIN; GRANT easeml_reader TO dashboard")
    known = conninfo_to_dict(module_database.dsn, user="dashboard")
    url = sqlalchemy.URL.create(
        "postgresql+psycopg", known["user"], known.get("password"), database=known["dbname"],
        query={"host": str(known["host"]), "port": str(known["port"])},
    )  # fmt: skip
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()
    module_database.execute("DROP ROLE dashboard")


def test_every_view_has_columns_of_types_that_tools_know(dashboard: sqlalchemy.Connection) -> None:
    inspector = sqlalchemy.inspect(dashboard)
    assert "easeml" in inspector.get_schema_names()
    views = inspector.get_view_names("easeml")
    assert {"run_status", "leaderboard", "learning_curves", "tenant_status", "health"} <= set(views)
    unknown = [
        f"{view}.{column['name']}"
        for view in views
        for column in inspector.get_columns(view, "easeml")
        if isinstance(column["type"], NullType)
    ]
    assert unknown == []


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=lambda one: one["table_name"])
def test_the_bundle_knows_the_columns_as_they_are(dataset: dict[str, Any], dashboard: sqlalchemy.Connection) -> None:
    found = {
        column["name"]: str(column["type"]).removesuffix(' COLLATE "C"')
        + " WITH TIME ZONE" * bool(getattr(column["type"], "timezone", False))
        for column in sqlalchemy.inspect(dashboard).get_columns(dataset["table_name"], dataset["schema"])
    }
    for column in dataset["columns"]:
        assert found[column["column_name"]] == column["type"]
        assert column["is_dttm"] == column["type"].startswith("TIMESTAMP")
    assert dataset["main_dttm_col"] in (None, *found)
    assert [one["uuid"] for one in documents("databases")] == [dataset["database_uuid"]]


def statement(chart: dict[str, Any]) -> str:
    """Return what Superset asks for a chart, as far as its columns go."""
    params, view = chart["params"], DATASETS[chart["dataset_uuid"]]["table_name"]
    if params["viz_type"] == "table":
        order = ", ".join(re.sub(r'^\["(\w+)", false\]$', r"\1 DESC", one) for one in params["order_by_cols"])
        return f"SELECT {', '.join(params['all_columns'])} FROM easeml.{view} ORDER BY {order} LIMIT 100"
    (metric,) = params["metrics"]
    drawn = "count(*)" if metric == "count" else f"{metric['aggregate']}({metric['column']['column_name']})"
    by = ", ".join(params["groupby"])
    return f"SELECT date_trunc('minute', {params['x_axis']}), {by}, {drawn} FROM easeml.{view} GROUP BY 1, {by}"


@pytest.mark.parametrize("chart", CHARTS.values(), ids=lambda one: one["slice_name"])
def test_each_chart_shows_something(chart: dict[str, Any], dashboard: sqlalchemy.Connection) -> None:
    dataset = DATASETS[chart["dataset_uuid"]]
    columns = {one["column_name"] for one in dataset["columns"]}
    params = chart["params"]
    asked = params.get("all_columns") or [params["x_axis"], *params["groupby"]]
    assert set(asked) <= columns
    assert chart["viz_type"] == params["viz_type"]
    rows = dashboard.execute(sqlalchemy.text(statement(chart))).fetchall()
    assert rows or chart["slice_name"] == "Slots"


@pytest.mark.parametrize("chart", CHARTS.values(), ids=lambda one: one["slice_name"])
def test_a_chart_over_time_ends_now(chart: dict[str, Any]) -> None:
    """Superset's 'Last day' is yesterday, up to midnight: the run that somebody watches is not in it."""
    for each in chart["params"].get("adhoc_filters", ()):
        assert each["comparator"].startswith('DATEADD(DATETIME("now"), -')


def test_the_dashboard_shows_all_charts_and_nothing_else() -> None:
    (document,) = documents("dashboards")
    shown = {part["meta"]["uuid"] for part in document["position"].values() if part_type(part) == "CHART"}
    assert shown == set(CHARTS)
    for name, part in document["position"].items():
        for child in part["children"] if isinstance(part, dict) and "children" in part else ():
            assert child in document["position"], name


def part_type(part: Any) -> str:
    return part["type"] if isinstance(part, dict) else ""


def test_questions_for_metabase_show_something(dashboard: sqlalchemy.Connection) -> None:
    questions = parse((DASHBOARDS / "metabase.sql").read_text(encoding="utf-8"))
    assert len(questions) == 7
    for name, question in questions.items():
        rows = dashboard.execute(sqlalchemy.text(question)).fetchall()
        assert rows or name in ("Slots", "Units per minute"), name
