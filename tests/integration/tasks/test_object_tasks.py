"""Tasks of series and trees of unequal size on a server: what is fed is kept relationally, trained on and asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.digit_objects import columns, halves, labels
from tests.integration.tasks.test_tasks import create

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
N_EXAMPLES = 120
STROKES = "{input: {[Tensor[8]],[next]}, output: {[Tensor[3]],[]}}"
HALVES = "{input: {[ink :: Tensor[2]],[first, second]}, output: {[Tensor[3]],[]}}"
PAIRS = "{input: {[a :: Tensor[1], b :: Tensor[2,2]],[next]}, output: {[Tensor[1]],[]}}"


@pytest.fixture(scope="module")
def ada(module_coordinated: Session) -> Session:
    """A tenant with tasks of series and trees, which have a model, and of pairs, which has none."""
    module_coordinated.execute("CREATE SCHEMA lab")
    session = module_coordinated.as_role("ada", "easeml_tenant")
    module_coordinated.execute("GRANT ALL ON SCHEMA lab TO ada")
    for name, program, arms in (("strokes", STROKES, ["gru"]), ("halves", HALVES, ["tree_lstm"])):
        options = {"max_epochs": 2, "n_configs": 1, "architectures": arms}
        rules = {"run_options": psycopg.types.json.Jsonb(options), "run_after_minutes": None}
        create(session, name, program, run_after_examples=N_EXAMPLES, **rules)
        given = columns() if name == "strokes" else halves()
        examples = [(each, label) for each, label in zip(given, labels(), strict=True) if label < 3]
        batch = [{"input": each, "output": str(label)} for each, label in examples[:N_EXAMPLES]]
        session.execute("SELECT easeml.feed(%s, examples => %s::jsonb)", [name, json.dumps(batch)])
    create(session, "pairs", PAIRS, run_after_examples=None, run_after_minutes=None)
    for name in ("strokes", "halves"):
        session.wait_until(f"SELECT count(*) = 1 FROM easeml.task_report('{name}') WHERE event LIKE 'first model%%'")
    return session


def infer(session: Session, name: str, value: Any) -> Any:
    return session.value("SELECT easeml.infer(%s, %s::jsonb)", name, json.dumps(value))


def test_programs_with_recursive_fields_get_the_networks_that_read_them(ada: Session) -> None:
    rows = ada.rows("SELECT task_name, template FROM easeml.task_status ORDER BY task_name")
    assert [tuple(row.values()) for row in rows] == [
        ("halves", "tree_classification"), ("pairs", "series_classification"), ("strokes", "series_classification"),
    ]  # fmt: skip
    notices: list[str] = []
    ada.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    create(ada, "wide", "{input: {[Tensor[2]],[a, b, c]}, output: {[Tensor[2]],[]}}")
    assert notices[0].startswith(
        "general classification; 4 architectures: tree_lstm, tree_rnn, tree_kernel_svm, bit_rnn;"
    )
    ada.execute("SELECT easeml.drop_task('wide')")
    assert ada.value("SELECT to_regclass('lab.wide_objects')") is None


def test_a_series_goes_in_as_a_list_as_objects_and_as_an_array(ada: Session) -> None:
    given = columns()[0]
    answer = infer(ada, "strokes", given)
    assert sum(answer["output"]) == pytest.approx(1, abs=1e-4)
    assert answer["label"] in {"0", "1", "2"}
    nested: Any = None
    for step in reversed(given):
        nested = {"field1": step, "next": nested}
    assert infer(ada, "strokes", nested) == answer
    assert ada.value("SELECT easeml.infer('strokes', %s::real[])", given) == answer
    example = "(SELECT input FROM lab.strokes ORDER BY example_id LIMIT 1)"
    assert ada.value(f"SELECT easeml.infer('strokes', {example})") == answer
    assert len(infer(ada, "strokes", given[:2])["output"]) == 3


def test_a_tree_goes_in_as_objects_within_objects(ada: Session) -> None:
    first, second = (infer(ada, "halves", tree) for tree in halves()[:2])
    assert first["output"] != second["output"]
    assert infer(ada, "halves", {"input": halves()[0]}) == first
    assert sum(first["output"]) == pytest.approx(1, abs=1e-4)


def test_every_object_is_a_row_that_refers_to_others(ada: Session) -> None:
    rows = ada.rows("SELECT * FROM lab.strokes_objects WHERE example_id = 1 ORDER BY object")
    given = columns()[0]
    assert [row["input"] for row in rows] == given
    assert [row["input_next"] for row in rows] == [*range(2, len(given) + 1), None]
    trees = ada.rows("SELECT * FROM lab.halves_objects WHERE example_id = 1 ORDER BY object")
    assert trees[0]["input"] == pytest.approx(halves()[0]["ink"])
    led_to = [row[side] for row in trees for side in ("input_first", "input_second") if row[side] is not None]
    assert sorted(led_to) == list(range(2, len(trees) + 1))


@pytest.mark.parametrize("links", [
    "'{2,NULL,NULL}', '{NULL,NULL,NULL}'",  # nothing leads to the third
    "'{2,3,NULL}', '{3,NULL,NULL}'",  # the third is shared
    "'{2,1,NULL}', '{3,NULL,NULL}'",  # a cycle
    "'{2,2,NULL}', '{3,NULL,NULL}'",  # the second leads to itself
    "'{2,NULL,NULL}', '{4,NULL,NULL}'",  # to the outside
    "'{2,NULL}', '{3,NULL}'",  # fewer than there are objects
    "'{{2,NULL,NULL}}', '{3,NULL,NULL}'",
    "'[0:2]={2,NULL,NULL}', '{3,NULL,NULL}'",
    "'{2,0,NULL}', '{3,NULL,NULL}'",
])  # fmt: skip
def test_the_table_refuses_links_that_make_no_tree(ada: Session, links: str) -> None:
    statement = (
        "INSERT INTO lab.halves (input, input_first, input_second, output) VALUES ('{{1,1},{2,2},{3,3}}', %s, '1')"
    )
    with pytest.raises(psycopg.Error, match="expected"):
        ada.execute(statement % links)


def chain_of(n_levels: int) -> str:
    """Return the values of a tree that is as deep as it has objects."""
    numbers = ",".join("{1,1}" for _ in range(n_levels))
    first = ",".join([*map(str, range(2, n_levels + 1)), "NULL"])
    return f"'{{{numbers}}}', '{{{first}}}', '{{{','.join(['NULL'] * n_levels)}}}', NULL"


def test_a_tree_too_deep_is_refused_wherever_it_comes_from(ada: Session) -> None:
    insert = "INSERT INTO lab.halves (input, input_first, input_second, output) VALUES"
    with ada.transaction(force_rollback=True):
        ada.execute(f"{insert} ({chain_of(256)})")
    with pytest.raises(psycopg.Error, match=r"links form one tree: .* at most 256 levels"):
        ada.execute(f"{insert} ({chain_of(257)})")
    deep = '{"ink":[1,1],"first":' * 300 + "null" + "}" * 300
    with pytest.raises(psycopg.Error, match="at most 256 levels"):
        ada.execute("SELECT easeml.feed('halves', examples => %s::text)", [f'{{"input": {deep}, "output": "1"}}'])
    with pytest.raises(psycopg.Error, match="at most 256 levels"):
        ada.execute("SELECT easeml.infer('halves', %s::jsonb)", [deep])
    for n_levels in (5000, 100_000):  # too deep for Python, and for the server itself
        deeper = '{"ink":[1,1],"first":' * n_levels + "null" + "}" * n_levels
        with pytest.raises(psycopg.Error, match="nested too deep") as caught:
            ada.execute("SELECT easeml.feed('halves', examples => %s::text)", [f'{{"input": {deeper}, "output": "1"}}'])
        assert caught.value.sqlstate == "ML001"


@pytest.mark.parametrize("values", [
    "'{{1,2}}', 0",
    "'{}', 0",
    "'{1,2,3,4,5,6,7,8}', 0",
    "'{{1,2,3,4,5,6,7,NaN}}', 0",
    "'{{1,2,3,4,5,6,7,NULL}}', 0",
    "'[0:0][1:8]={{1,2,3,4,5,6,7,8}}', 0",
    "array_fill(1::real, ARRAY[10001, 8]), 0",
])  # fmt: skip
def test_the_table_refuses_series_of_another_shape(ada: Session, values: str) -> None:
    with pytest.raises(psycopg.Error, match="expected"):
        ada.execute(f"INSERT INTO lab.strokes (input, output) VALUES ({values})")


def test_several_tensors_of_an_object_are_of_as_many_objects(ada: Session) -> None:
    insert = "INSERT INTO lab.pairs (input_a, input_b, output) VALUES ('{{1},{2}}', %s, 1)"
    ada.execute(insert, ["{{{1,2},{3,4}},{{5,6},{7,8}}}"])
    with pytest.raises(psycopg.Error, match="as many objects"):
        ada.execute(insert, ["{{{1,2},{3,4}}}"])
    rows = ada.rows("SELECT object, input_a, input_b, input_next FROM lab.pairs_objects ORDER BY object")
    assert [tuple(row.values()) for row in rows] == [
        (1, [1.0], [[[1.0, 2.0], [3.0, 4.0]]], 2), (2, [2.0], [[[5.0, 6.0], [7.0, 8.0]]], None),
    ]  # fmt: skip


@pytest.mark.parametrize(("statement", "message"), [
    ("SELECT easeml.feed('strokes', examples => '{\"input\": [[1]], \"output\": \"0\"}')", "ML009: example 1: field1"),
    ("SELECT easeml.infer('strokes', '[[1, 2]]'::jsonb)", "ML009: field1: expected Tensor[8] of each object"),
    ("SELECT easeml.infer('strokes', array_fill(1::real, ARRAY[9, 8]))", "ML009: input: expected at most"),
    ("SELECT easeml.infer('strokes', '{1,2,3}'::real[])", "ML009: input: expected 8 numbers for each"),
    ("SELECT easeml.infer('halves', '{1,2}'::real[])", "ML009: input: expected a tree, got numbers"),
    ("SELECT easeml.select_models('strokes', '{mlp}')", "ML001: architectures: mlp does not fit dataset 'strokes'"),
    ("SELECT easeml.select_models('halves', '{gru}')", "ML001: architectures: gru does not fit dataset 'halves'"),
    ("SELECT * FROM easeml.explain('strokes')", "ML004: series and trees of unequal size have no features"),
    ("SELECT easeml.predict_table('strokes', 'lab.strokes', 'lab.out')", "ML004: series and trees go in"),
    ("SELECT easeml.export_trial('strokes', trial_id) FROM easeml.serving WHERE dataset_name = 'strokes'",
     "ML004: series or trees go into this trial"),
])  # fmt: skip
def test_what_does_not_fit_is_said_in_one_line(ada: Session, statement: str, message: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        ada.execute(statement)
    assert f"{caught.value.sqlstate}: {caught.value.diag.message_primary}".startswith(message)


def test_held_out_series_are_measured(ada: Session) -> None:
    found = ada.rows("SELECT * FROM easeml.evaluate('strokes')")
    assert {row["metric"] for row in found} >= {"accuracy"}


def test_a_longer_series_lengthens_the_next_version_and_the_blocks_that_stay_are_kept(
    ada: Session, module_database: Session
) -> None:
    task_id = ada.value("SELECT task_id FROM easeml.task_status WHERE task_name = 'strokes'")
    with module_database.transaction(force_rollback=True):
        module_database.execute(
            f"INSERT INTO easeml_tasks.task_{task_id} (input, output) VALUES (array_fill(1::real, ARRAY[30, 8]), '1')"
        )
        packed = module_database.rows("SELECT * FROM easeml.pack_task(%s)", task_id)[0]
        assert packed["failure"] is None
        shape = "SELECT input_shape FROM easeml.datasets WHERE dataset_id = %s"
        assert module_database.value(shape, packed["dataset_id"]) == [30, 9]
        version = module_database.rows("SELECT * FROM easeml.task_versions WHERE dataset_id = %s", packed["dataset_id"])
        assert version[0]["n_kept_bytes"] > 0
        assert module_database.value("SELECT sum(n_changed) FROM easeml.task_versions WHERE dataset_id = %s",
                                     packed["dataset_id"]) == 1  # fmt: skip
