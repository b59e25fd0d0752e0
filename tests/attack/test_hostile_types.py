"""A plain table of a tenant, whose columns have types of the tenant's own: to pack it runs no code of the tenant.

Reading such a table runs none either. A view, or row-level security, would: who reads those trusts their owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

# An enum whose cast to text tells who has called it, and a composite type with the name of a number.
TYPES = """
CREATE TABLE mallory.told (who text);
CREATE TYPE mallory.mood AS ENUM ('low', 'high');
CREATE TYPE mallory."numeric" AS (value float8);
CREATE TYPE mallory."text" AS ENUM ('no', 'yes');
CREATE FUNCTION mallory.tell(what anyelement) RETURNS anyelement LANGUAGE sql
    AS 'INSERT INTO mallory.told VALUES (current_user); SELECT what';
CREATE FUNCTION mallory.of_mood(mallory.mood) RETURNS text LANGUAGE sql AS $$ SELECT mallory.tell('low'::text) $$;
CREATE FUNCTION mallory.of_text(mallory."text") RETURNS text LANGUAGE sql AS $$ SELECT mallory.tell('low'::text) $$;
CREATE FUNCTION mallory.of_number(mallory."numeric") RETURNS float8 LANGUAGE sql AS 'SELECT mallory.tell(1::float8)';
CREATE CAST (mallory.mood AS text) WITH FUNCTION mallory.of_mood(mallory.mood);
CREATE CAST (mallory."text" AS text) WITH FUNCTION mallory.of_text(mallory."text");
CREATE CAST (mallory."numeric" AS float8) WITH FUNCTION mallory.of_number(mallory."numeric");
CREATE TABLE mallory.rows AS SELECT i AS id, sin(i) AS x, ROW(i)::mallory."numeric" AS n,
    (ARRAY['low', 'high'])[1 + i % 2]::mallory.mood AS m, (ARRAY['no', 'yes'])[1 + i / 2 % 2]::mallory."text" AS t
FROM generate_series(1, 120) i
"""
CREATE = "SELECT easeml.create_dataset(%s, 'mallory.rows', %s, %s, n_partitions => 1)"


@pytest.fixture(scope="module")
def root(module_database: Session) -> Session:
    """A superuser in a database where mallory has a table of such types."""
    mallory = module_database.as_role("mallory", "easeml_tenant")
    module_database.execute("CREATE SCHEMA mallory AUTHORIZATION mallory")
    mallory.execute(TYPES)  # type: ignore[arg-type]
    return module_database


def test_packing_a_table_calls_no_casts_of_its_owner(root: Session) -> None:
    root.execute(CREATE, ["inputs", ["m", "t"], "x"])
    root.execute(CREATE, ["labels", ["x"], "m"])
    root.execute(CREATE, ["other labels", ["x", "m"], "t"])
    assert root.values("SELECT who FROM mallory.told") == []
    categories = root.value(
        "SELECT encoder #> '{inputs,0,categories}' FROM easeml.datasets WHERE dataset_name = 'inputs'"
    )
    assert sorted(categories) == ["high", "low"]
    labels = root.value("SELECT encoder #> '{target,labels}' FROM easeml.datasets WHERE dataset_name = 'labels'")
    assert labels == ["low", "high"]


def test_a_type_with_the_name_of_a_number_is_none(root: Session) -> None:
    with pytest.raises(psycopg.Error, match=r'has type mallory\."numeric", which cannot be an input'):
        root.execute(CREATE, ["numbers", ["n", "x"], "m"])
    with pytest.raises(psycopg.Error, match=r'has type mallory\."numeric", which is neither a label nor'):
        root.execute(CREATE, ["numbers", ["x"], "n"])
    assert root.values("SELECT who FROM mallory.told") == []
