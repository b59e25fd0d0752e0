"""What is told of inputs: what each became, and which seem to tell nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from easeml_plpy.columns.coded_fields import CategoricalField
from easeml_plpy.columns.encoder import NumericField, TensorField
from easeml_plpy.packing.explanations import MOST_NAMED, explanations, notices
from easeml_plpy.packing.source_texts import TextFacts

NUMBER = NumericField(column="n", type="float8", knots=(np.array([0.0, 1.0]),))
ALWAYS_ONE = replace(NUMBER, column="one", knots=(np.array([1.0]),))
SOMETIMES_ONE = replace(ALWAYS_ONE, column="flag", missing=(0,))
NEVER = replace(NUMBER, column="none", missing=(0,), knots=(np.array([]),))
TIME = replace(NUMBER, column="t", type="date", is_time=True, calendar=("month",))
COLOUR = CategoricalField(column="c", type="text", categories=("red", "blue"))
ENUM = CategoricalField(column="e", type="public.mood", categories=("sad",))
VECTOR = TensorField(column="v", type="_float8", dtype="f8", shape=(3,))
FACTS = {"c": TextFacts(90, 2, 4, 1, 0), "key": TextFacts(90, 90, 9, 1, 1)}


def test_each_input_is_explained_also_one_that_is_left_out() -> None:
    told = explanations([NUMBER, ALWAYS_ONE, NEVER, TIME, COLOUR, ENUM, VECTOR], FACTS)
    assert told["key"].startswith("left out: another text in each row")
    assert {name: text for name, text in told.items() if name != "key"} == {
        "n": "number",
        "one": "number: the same in all training rows",
        "none": "number: NULL in all training rows",
        "t": "time: seconds, month",
        "c": "categories: 2 different texts in 90 training rows",
        "e": "categories: 1 values of an enum",
        "v": "array of shape [3]",
    }


def test_inputs_that_tell_nothing_are_named_in_a_line_for_each_kind() -> None:
    fields = [NUMBER, ALWAYS_ONE, SOMETIMES_ONE, NEVER, COLOUR, ENUM, VECTOR]
    assert list(notices(fields, ["id"])) == [
        "input 'none' is NULL in all training rows: nothing can be learnt from that",
        "inputs 'one', 'e' are the same in all training rows: nothing can be learnt from that",
        "input 'id' has another whole number in each row: leave out what only names rows, new rows have others",
    ]
    assert list(notices([NUMBER, COLOUR, SOMETIMES_ONE, replace(NUMBER, knots=())], [])) == []


def test_many_inputs_are_not_all_named() -> None:
    fields = [replace(ALWAYS_ONE, column=f"x{k}") for k in range(MOST_NAMED + 5)]
    (line,) = notices(fields, [])
    assert "'x19' and 5 more are the same" in line
