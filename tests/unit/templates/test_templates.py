"""Which template a program is of: the first that matches, by counts and ranks only."""

import pytest

from easeml_db.decisions.templates.catalogue import TEMPLATES, list_templates, match, template
from easeml_db.decisions.templates.parsing import parse_program
from easeml_db.errors import InvalidArgument

CLASSES = "{[Tensor[3]],[]}"


@pytest.mark.parametrize(
    ("given", "wanted", "name"),
    [
        ("{[Tensor[64,64,3]],[]}", CLASSES, "image_classification"),
        ("{[Tensor[64,64,3]],[]}", "{[Tensor[64,64,1]],[]}", "image_recovery"),
        ("{[Tensor[10]],[next]}", CLASSES, "series_classification"),
        ("{[Tensor[10], Tensor[4,4]],[next]}", CLASSES, "series_classification"),
        ("{[Tensor[10]],[next]}", "{[Tensor[7]],[next]}", "series_translation"),
        ("{[Tensor[10]],[left, right]}", CLASSES, "tree_classification"),
        ("{[Tensor[10]],[]}", CLASSES, "tabular"),
        ("{[Tensor[10], Tensor[2,2]],[]}", "{[Tensor[1]],[]}", "tabular"),
        ("{[Tensor[28,28]],[]}", CLASSES, "tabular"),
        ("{[Tensor[10]],[a,b,c]}", CLASSES, "general_classification"),
        ("{[Tensor[10,2]],[next]}", CLASSES, "general_classification"),
        ("{[],[a]}", CLASSES, "general_classification"),
        ("{[],[]}", "{[],[]}", "general_auto_encoder"),
        ("{[Tensor[64,64,3]],[]}", "{[Tensor[4,4]],[]}", "tensor_to_tensor"),
        ("{[Tensor[9,2], Tensor[3]],[]}", "{[Tensor[9,4]],[]}", "tensor_to_tensor"),
        ("{[Tensor[9,2]],[a]}", "{[Tensor[9,4]],[]}", "general_auto_encoder"),
        ("{[Tensor[64,64,3]],[]}", "{[Tensor[3], Tensor[3]],[]}", "general_auto_encoder"),
    ],
)
def test_the_first_template_that_matches_counts(given, wanted, name):
    assert match(parse_program(f"{{input: {given}, output: {wanted}}}")).name == name


def test_letters_do_not_tie_the_output_to_the_input():
    assert match(parse_program("Input = [8,8,3] Output = [9,9,1]")).name == "image_recovery"


def test_the_list_shows_patterns_as_the_paper_writes_them():
    rows = {row[1]: row[3:5] for row in list_templates()}
    assert rows["image_classification"] == ("{[Tensor[A,B,C]],[]}", "{[Tensor[D]],[]}")
    assert rows["image_recovery"] == ("{[Tensor[A,B,C]],[]}", "{[Tensor[D,E,F]],[]}")
    assert rows["series_translation"] == ("{[Tensor[A], *],[a]}", "{[Tensor[B], *],[a]}")
    assert rows["tabular"] == ("{[Tensor[*], *],[]}", "{[Tensor[A]],[]}")
    assert rows["general_auto_encoder"] == ("{[*],[*]}", "{[*],[*]}")
    assert [row[0] for row in list_templates()] == list(range(1, len(TEMPLATES) + 1))


def test_a_template_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InvalidArgument, match="there is no template 'images'") as caught:
        template("images")
    assert "image_classification, image_recovery" in str(caught.value.hint)
