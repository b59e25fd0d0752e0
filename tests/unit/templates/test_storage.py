"""The columns of a program: bytes for pictures, arrays for the rest, and what cannot be stored is refused."""

import json

import pytest

from easeml_db.decisions.templates.storage import describe_program
from easeml_db.errors import InvalidArgument, NotAllowed


def described(program, storage=None):
    return json.loads(describe_program(program, storage))


def test_pictures_are_bytes_and_other_tensors_numbers():
    assert [entry["type"] for entry in described("Input = [64,64,3] Output = [3]")["inputs"]] == ["bytea"]
    assert [entry["type"] for entry in described("Input = [64,64,7] Output = [3]")["inputs"]] == ["real[]"]
    assert [entry["type"] for entry in described("Input = [64,64,3] Output = [3]", "numbers")["inputs"]] == ["real[]"]


def test_one_output_is_a_number_and_several_are_classes():
    assert described("Input = [4] Output = [1]")["task"] == "regression"
    assert (described("Input = [4] Output = [3]")["task"], described("Input = [4] Output = [3]")["n_outputs"]) == (
        "classification",
        3,
    )


def test_columns_have_a_prefix_so_that_no_name_means_another_column():
    found = described("{input: {[is_on :: Tensor[3], Tensor[2,2]],[]}, output: {[Tensor[2]],[]}}")
    assert [entry["column"] for entry in found["inputs"]] == ["input_is_on", "input_field2"]
    assert found["input_shape"] == [7]


def test_an_output_of_several_sizes_is_a_tensor_with_a_column_of_its_own():
    found = described("Input = [8,8,3] Output = [4,6,1]")
    assert (found["task"], found["n_outputs"]) == ("regression", 24)
    assert found["output"] == {
        "name": "output", "column": "output", "type": "bytea", "shape": [4, 6, 1], "n_values": 24,
        "text": "Tensor[4,6,1]",
    }  # fmt: skip
    assert described("Input = [8,8,3] Output = [5,2]")["output"]["type"] == "real[]"
    assert described("Input = [8,8,3] Output = [5]")["output"] is None


def test_a_series_is_kept_in_order_and_a_tree_with_a_column_for_each_link():
    series = described("{input: {[Tensor[3], Tensor[2,2]],[next]}, output: {[Tensor[2]],[]}}")
    assert (series["recursive"], series["n_links"], series["input_shape"]) == (["next"], 0, [64, 8])
    assert [(entry["column"], entry["role"]) for entry in series["inputs"]] == [
        ("input_field1", "object"), ("input_field2", "object"),
    ]  # fmt: skip
    tree = described("{input: {[Tensor[3]],[left, right]}, output: {[Tensor[2]],[]}}")
    assert (tree["n_links"], tree["input_shape"]) == (2, [64, 6])
    assert [(entry["column"], entry["type"], entry["role"]) for entry in tree["inputs"]] == [
        ("input", "real[]", "object"), ("input_left", "integer[]", "link"), ("input_right", "integer[]", "link"),
    ]  # fmt: skip
    assert described("Input = [3] Output = [2]")["recursive"] == []
    with pytest.raises(InvalidArgument, match="expected numbers, as series and trees are kept"):
        described("{input: {[Tensor[3]],[next]}, output: {[Tensor[2]],[]}}", "bytes")


def test_a_series_that_comes_out_is_a_column_of_all_its_steps():
    found = described("{input: {[Tensor[3]],[next]}, output: {[word :: Tensor[5]],[following]}}")
    column = found["output"]
    assert (column["column"], column["type"], column["role"]) == ("output", "real[]", "object")
    assert (column["shape"], column["n_values"], column["most_objects"]) == ([5], 5, 2000)
    assert (found["task"], found["output_shape"], found["n_outputs"]) == ("regression", [64, 6], 384)
    assert described("Input = [4,4] Output = [4,4]")["output_shape"] == [4, 4]
    assert described("Input = [4,4] Output = [4]")["output_shape"] is None


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "{input: {[Tensor[3]],[left, right]}, output: {[Tensor[3,4]],[next]}}",
            "nothing here learns general auto-encoder of this shape",
        ),
        (
            "{input: {[Tensor[3]],[next]}, output: {[Tensor[3], Tensor[2]],[next]}}",
            "nothing here learns time series translation of this shape",
        ),
        (
            "{input: {[Tensor[3]],[left, right]}, output: {[Tensor[3]],[left, right]}}",
            "general auto-encoder would return trees, which nothing here learns",
        ),
        ("{input: {[],[next]}, output: {[Tensor[3]],[]}}", "nothing here learns general classification of this shape"),
        (
            "{input: {[Tensor[3]],[]}, output: {[Tensor[3], Tensor[3]],[]}}",
            "nothing here learns general auto-encoder",
        ),
        ("{input: {[],[]}, output: {[Tensor[3]],[]}}", "nothing here learns general classification of this shape"),
    ],
)
def test_what_cannot_be_stored_is_refused(program, message):
    with pytest.raises(NotAllowed, match=message):
        describe_program(program, None)


def test_too_many_classes_and_another_storage_are_refused():
    with pytest.raises(InvalidArgument, match="at most 10000 classes, got 10001"):
        describe_program("Input = [3] Output = [10001]", None)
    with pytest.raises(InvalidArgument, match="storage: expected bytes or numbers, got 'disk'"):
        describe_program("Input = [3] Output = [2]", "disk")


def test_whoever_wants_trees_to_come_out_is_told_of_the_series_that_can():
    program = "{input: {[Tensor[2]],[l, r]}, output: {[Tensor[4]],[l, r]}}"
    with pytest.raises(NotAllowed) as refused:
        describe_program(program, None)
    output = str(refused.value.hint).partition("output: ")[2].partition(". ")[0]
    assert output == "{[Tensor[4]],[next]}"
    assert described(f"{{input: {{[Tensor[2]],[l, r]}}, output: {output}}}")["task"] == "regression"
