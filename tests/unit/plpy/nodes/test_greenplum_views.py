"""The script that makes easeml's views in a Greenplum database: names and texts arrive as they are."""

from __future__ import annotations

import json
from typing import Any

from easeml_plpy.nodes.greenplum.greenplum_views import REMARK, installation_script, literal, removal_script

VIEW: dict[str, Any] = {
    "name": "it's", "quoted": '"it\'s"', "remark": "Ann's", "columns": [["run_id", "bigint"], ['"Odd"', "text[]"]],
}  # fmt: skip
CALL: dict[str, Any] = {
    "name": "select_models", "quoted": "select_models", "result": "bigint", "remark": "Starts.",
    "arguments": [["dataset", "text", None], ["policy", "text", "'it''s'::text"], ["n", "integer", "NULL::integer"]],
}  # fmt: skip


def script(**offered: Any) -> str:
    return installation_script(json.dumps({"views": [], "calls": [], **offered}), "service='easeml_control'")


def test_a_function_asks_for_what_it_was_called_with() -> None:
    made = script(calls=[CALL])
    assert "select_models(dataset text, policy text DEFAULT 'it''s'::text, n integer DEFAULT NULL::integer)" in made
    asked = (
        "'SELECT easeml.select_models(' || 'dataset => ' || quote_nullable($1::text) || '::text'"
        " || ', policy => ' || quote_nullable($2::text) || '::text' || ', n => ' || quote_nullable($3::text)"
        " || '::integer' || ')'"
    )
    assert asked in made
    # What is not listed here goes when the script is executed again.
    assert '"select_models(text, text, integer)"' in made


def test_a_view_has_its_columns_and_its_rows_by_run() -> None:
    made = script(views=[VIEW])
    assert """VIEW easeml."it's" AS\n    SELECT * FROM easeml.rows_of('it''s', NULL)""" in made
    assert 'AS answer (run_id bigint, "Odd" text[])' in made
    assert """FUNCTION easeml."it's"(run_id bigint) RETURNS SETOF easeml."it's\"""" in made
    without = {**VIEW, "columns": VIEW["columns"][1:]}
    assert "(run_id bigint)" not in script(views=[without]).replace("easeml.wait(run_id bigint)", "")


def test_both_scripts_are_one_transaction_and_look_whose_schema_it_is() -> None:
    for made in (script(), removal_script()):
        assert made.count("BEGIN;\n") == made.count("COMMIT;\n") == 1
        assert literal(REMARK) in made
    assert "password" not in script().replace("'password in .pgpass", "")
