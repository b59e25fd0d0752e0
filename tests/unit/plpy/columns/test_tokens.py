"""Tokens of texts: what is cut from them, how many a row keeps, and how often each occurs in training."""

from __future__ import annotations

import numpy as np
import pytest

from easeml_plpy.columns.coded_fields import NO_TOKEN, NULL_TEXT, TextField
from easeml_plpy.columns.text_statistics import TokenCounts
from easeml_plpy.columns.tokens import MOST_CHARACTERS, MOST_TOKENS, Tokenizer, token_counts, width_for


@pytest.mark.parametrize(
    ("analyzer", "text", "tokens"),
    [
        ("words", "The cat, the CAT!", ["the", "cat", "the cat", "cat the"]),
        ("words", "naïve 42", ["naïve", "42", "naïve 42"]),
        ("characters", "aB", [" a", "ab", "b ", " ab", "ab ", " ab "]),
        ("words", "", []),
        ("words", " ?! ", []),
    ],
)
def test_a_text_is_cut_into_tokens_each_once(analyzer: str, text: str, tokens: list[str]) -> None:
    tokenizer = Tokenizer(analyzer)
    expected = [tokenizer.hashes(token)[0] if " " not in token else None for token in tokens]
    found = tokenizer.hashes(text)
    assert len(found) == len(tokens)
    if analyzer == "words":
        assert [number for number in expected if number is not None] == found[: sum(" " not in each for each in tokens)]


def test_pairs_of_words_are_left_out_before_words() -> None:
    tokenizer = Tokenizer("words")
    assert tokenizer.rows(["one two three"], 3).tolist() == [tokenizer.hashes("one two three")[:3]]
    assert set(tokenizer.hashes("three")) <= set(tokenizer.hashes("one two three")[:3])


def test_no_text_and_an_empty_one_are_told_apart() -> None:
    rows = Tokenizer("words").rows([None, "", "a"], 2)
    assert rows[:2].tolist() == [[NULL_TEXT, NO_TOKEN], [NO_TOKEN, NO_TOKEN]]
    assert rows[2, 0] >= 0
    assert rows.dtype == np.int32


def test_hashes_are_the_same_in_every_process() -> None:
    assert Tokenizer("words").hashes("déjà vu")[:2] == [16888, 215356]


def test_only_the_beginning_of_a_long_text_counts() -> None:
    text = "word " * 2_000_000 + "end"
    tokenizer = Tokenizer("words")
    assert tokenizer.hashes(text) == tokenizer.hashes(text[:MOST_CHARACTERS])


def test_the_width_is_enough_for_nearly_all_training_texts() -> None:
    texts = ["a b c"] * 200 + [" ".join(map(str, range(500)))]
    assert width_for(token_counts("words", texts)) == 8
    assert width_for(token_counts("words", texts[-1:])) == MOST_TOKENS
    assert width_for([]) == 8


def test_views_know_tokens_of_several_texts_the_commonest_first() -> None:
    tokenizer, counts = Tokenizer("words"), TokenCounts()
    for block in (["red", "red blue", None], ["blue", "red", "green"]):
        counts.add(tokenizer.rows(block, 8))
    field = counts.measured(TextField(column="t", type="text", analyzer="words", width=8))
    red, blue, green = (tokenizer.hashes(word)[0] for word in ("red", "blue", "green"))
    assert field.tokens.tolist() == [red, blue]
    np.testing.assert_allclose(field.weights, np.log(6 / np.array([4, 3])) + 1, rtol=1e-6)
    assert field.missing == (0,)
    assert field.known(np.array([[blue, green, red, NO_TOKEN]])).tolist() == [[1, -1, 0, -1]]
