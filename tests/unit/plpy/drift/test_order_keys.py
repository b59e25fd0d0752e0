"""Keys of numbers: whole numbers in the same order."""

import math

from hypothesis import given
from hypothesis import strategies as st

from easeml_plpy.drift.order_keys import key_of, number_of

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(numbers, numbers)
def test_keys_are_in_the_order_of_their_numbers(a: float, b: float) -> None:
    assert (key_of(a) < key_of(b)) == (a < b)
    assert number_of(key_of(a)) == a


@given(numbers, numbers)
def test_between_two_keys_there_are_only_numbers_between(a: float, b: float) -> None:
    low, high = sorted((a, b))
    middle = number_of((key_of(low) + key_of(high)) // 2)
    assert math.isfinite(middle)
    assert low <= middle <= high
