"""What a column of texts becomes: the rule, on facts of columns as people have them."""

from __future__ import annotations

import pytest

from easeml_plpy.packing.source_texts import TextFacts


@pytest.mark.parametrize(
    ("facts", "analyzer", "is_identifier"),
    [
        (TextFacts(1000, 3, 8, 1, 0), None, False),  # a colour
        (TextFacts(60, 60, 8, 1, 0), None, False),  # few rows: as before
        (TextFacts(300_000, 4_000, 6, 1, 0.9), None, False),  # the tail number of an aeroplane
        (TextFacts(40_000, 1_400, 40, 5, 0), None, False),  # a maintainer: several words, again and again
        (TextFacts(40_000, 38_000, 50, 7, 0), "words", False),  # a description
        (TextFacts(500, 40, 900, 150, 0), "words", False),  # long reviews, however few
        (TextFacts(40_000, 40_000, 17, 1, 0), "characters", False),  # the name of a package
        (TextFacts(40_000, 40_000, 9, 1, 1), "characters", True),  # an order number
        (TextFacts(40_000, 40_000, 36, 1, 1), "characters", True),  # a UUID as text
        (TextFacts(40, 40, 9, 1, 1), None, False),  # too few rows to tell
        (TextFacts(0, 0, 0, 0, 0), None, False),  # NULL in all rows
    ],
)
def test_a_column_of_texts_is_told_by_its_training_rows(
    facts: TextFacts, analyzer: str | None, is_identifier: bool
) -> None:
    assert (facts.analyzer, facts.is_identifier) == (analyzer, is_identifier)
    assert str(facts.n_distinct) in facts.explain()
