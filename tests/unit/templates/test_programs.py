"""The grammar of programs: what is printed parses to the same, what is broken is refused with a place inside the text.

EASEML_PROGRAMS=10000 runs the properties in their long form.
"""

import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.decisions.templates.parsing import parse_program
from easeml_db.decisions.templates.printing import print_program
from easeml_db.decisions.templates.program import ObjectType, Program, Tensor
from easeml_db.errors import InvalidArgument

LONG_FORM = settings(max_examples=int(os.environ.get("EASEML_PROGRAMS", "40")), deadline=None)
IMAGES = "{input: {[Tensor[256,256,3]],[]}, output: {[Tensor[1000]],[]}}"
SERIES = "{input: {[Tensor[10]],[next]}, output: {[Tensor[10]],[next]}}"

NUMBER = r"(?<=[\[,])[0-9]+(?=[\],])"

names = st.builds(str.__add__, st.sampled_from("abz"), st.text("az09_", max_size=6))
shapes = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple)


@st.composite
def object_types(draw):
    """Draw an object type whose names differ, those that fields get by their place among them."""
    shapes_drawn = draw(st.lists(shapes, max_size=4))
    taken = {f"field{place}" for place in range(1, len(shapes_drawn) + 1)}
    given_names = draw(st.lists(names.filter(lambda name: name not in taken), unique=True, min_size=8, max_size=8))
    tensors = tuple(
        Tensor(shape, given_names[place] if draw(st.booleans()) else None) for place, shape in enumerate(shapes_drawn)
    )
    return ObjectType(tensors, tuple(given_names[4 : 4 + draw(st.integers(0, 4))]))


programs = st.builds(Program, object_types(), object_types())


def spaced(text: str, gaps: list[str]) -> str:
    """Return a program with white space between its tokens."""
    tokens = re.findall(r"[A-Za-z0-9_]+|::|\S", text)
    return "".join(gaps[place % len(gaps)] + token for place, token in enumerate(tokens))


@given(programs, st.lists(st.sampled_from([" ", "\n", "\t", "  \r\n"]), min_size=1, max_size=5))
@LONG_FORM
def test_what_is_printed_parses_to_the_same(program, gaps):
    printed = print_program(program)
    assert parse_program(printed) == program
    assert parse_program(spaced(printed, gaps)) == program


BREAKS = [
    lambda text, place: text[: place % len(text)],  # cut off
    lambda text, place: _replaced(text, place, NUMBER, "0"),
    lambda text, place: _replaced(text, place, NUMBER, "9" * 30),
    lambda text, place: _replaced(text, place, NUMBER, "x"),
    lambda text, place: _replaced(text, place, r"[{}\[\]]", ""),
    lambda text, place: _replaced(text, place, r"[{}\[\]]", "(((("),
    lambda text, place: _replaced(text, place, r"[{\[]", "{" * 5000),
    lambda text, place: _replaced(text, place, r"input|output", "\N{GREEK SMALL LETTER ALPHA}"),
    lambda text, place: text + "}" * (place + 1),
    lambda text, place: text + " again",
    lambda text, place: _replaced(text, place, r"Tensor\[|^.input", "tensor"),
]


def _replaced(text: str, place: int, pattern: str, by: str) -> str:
    found = list(re.finditer(pattern, text))
    chosen = found[place % len(found)] if found else re.search("input", text)
    return text[: chosen.start()] + by + text[chosen.end() :]


@given(programs, st.sampled_from(BREAKS), st.integers(0, 1000))
@LONG_FORM
def test_what_is_broken_is_refused_at_a_place_inside_the_text(program, break_it, place):
    text = break_it(print_program(program), place)
    with pytest.raises(InvalidArgument) as caught:
        parse_program(text)
    line, column = place_of(str(caught.value))
    lines = text.split("\n") or [""]
    assert 1 <= line <= len(lines)
    assert 1 <= column <= max(len(lines[line - 1]), 1)


@given(st.text(max_size=200))
@LONG_FORM
def test_no_text_crashes_the_parser(text):
    try:
        program = parse_program(text)
    except InvalidArgument:
        return
    assert parse_program(print_program(program)) == program


def place_of(message: str) -> tuple[int, int]:
    found = re.search(r"line (\d+), column (\d+):", message)
    assert found, message
    return int(found[1]), int(found[2])


FULL = "{{input: {given}, output: {{[Tensor[3]],[]}}}}".format
REFUSED = [
    (FULL(given="{[Tensor[64,64,0]],[]}"), "line 1, column 24: expected a dimension >= 1, got 0"),
    (FULL(given="{[Tensor[-3]],[]}"), "line 1, column 18: expected a dimension >= 1, got -3"),
    (FULL(given="{[Tensor[a]],[]}"), "line 1, column 18: expected a dimension >= 1, got 'a'"),
    (FULL(given="{[Tensor[2000000]],[]}"), "column 18: expected a dimension <= 1000000, got 2000000"),
    (FULL(given="{[Tensor[9000,9000]],[]}"), "column 17: expected at most 67108864 numbers, got 81000000"),
    (FULL(given="{[x :: Tensor[3], x :: Tensor[3]],[]}"), "column 27: expected names that differ, got 'x' twice"),
    (FULL(given="{[field2 :: Tensor[3], Tensor[3]],[]}"), "column 32: expected names that differ, got 'field2' twice"),
    (FULL(given="{[Tensor[3]],[a, a]}"), "column 26: expected names that differ, got 'a' twice"),
    (FULL(given="{[Tensor[3]],[Next]}"), "column 23: expected a name of lower-case letters, digits and _, got 'Next'"),
    (
        FULL(given="{[tensor[3]],[]}"),
        "column 17: expected '::' after a name, and 'Tensor' where there is none, got '['",
    ),
    (FULL(given="{[Tenso[3]],[]}"), "column 11: expected 'Tensor' or a name of lower-case letters, digits and _, got"),
    (FULL(given="{[Tensor[3]],[a.b]}"), "column 24: expected a name, a number or one of [ ] { } , : =, got '.b'"),
    ("{input: {[Tensor[3]],[]},\n output {[],[]}}", "line 2, column 9: expected ':', got '{'"),
    ("{input: {[Tensor[3]],[]}", "line 1, column 24: expected 'output', got the end of the program"),
    ("", "line 1, column 1: expected '{' or 'Input =', got the end of the program"),
    ("Input = [3]  Output = []", "column 24: expected a dimension >= 1, got ']'"),
    (f"{{input: {{[Tensor[{','.join(['1'] * 17)}]],[]}}, output: {{[],[]}}}}", "expected at most 16 dimensions"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_an_error_names_line_column_and_what_was_expected(text, message):
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        parse_program(text)


def test_a_text_without_end_is_refused_before_it_is_read():
    with pytest.raises(InvalidArgument, match="at most 20000 characters, got 1000000"):
        parse_program("{" * 1_000_000)


def test_the_shorthand_means_a_tensor_at_each_end():
    short = parse_program("Input = [256,256,3]  Output = [3]")
    assert short == Program(ObjectType((Tensor((256, 256, 3)),)), ObjectType((Tensor((3,)),)))
    assert print_program(short) == "{input: {[Tensor[256,256,3]],[]}, output: {[Tensor[3]],[]}}"


def test_the_examples_of_the_paper_parse_with_and_without_a_comma():
    assert parse_program(IMAGES.replace("}, output", "} output")) == parse_program(IMAGES)
    assert parse_program(SERIES).input.recursive == ("next",)


def test_tensors_without_a_name_are_called_by_their_place():
    program = parse_program("{input: {[Tensor[3], depth :: Tensor[1], Tensor[2]],[]}, output: {[],[]}}")
    assert program.input.names == ("field1", "depth", "field3")
