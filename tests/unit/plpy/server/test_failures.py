"""Errors as values: what PL/Python functions return for easeml.raise_failure to raise."""

import json

import pytest

from easeml_plpy.server.errors import NotFound
from easeml_plpy.server.failures import answered, unpacked


class SPIError(Exception):
    """As PL/Python raises it when a statement fails."""

    def __init__(self, message, packed, detail=None, hint=None):
        super().__init__(message)
        self.spidata = (packed, detail, hint, "SELECT 1", 0, None, None, None, None, None)


def packed(sqlstate):
    """MAKE_SQLSTATE of the server's elog.h."""
    return sum((ord(character) - ord("0") & 0x3F) << 6 * place for place, character in enumerate(sqlstate))


def raising(error):
    def function():
        raise error

    return function


def test_an_answer_gets_a_null_failure_as_its_last_column():
    assert answered(lambda a, b: a + b, 1, 2) == (3, None)
    assert answered(lambda: ("label", 0.5)) == ("label", 0.5, None)


def test_an_own_error_becomes_the_failure_and_all_other_columns_are_null():
    row = answered(raising(NotFound("there is no run 9", detail="none", hint="look")))
    assert json.loads(row["failure"]) == {
        "sqlstate": "ML003", "message": "there is no run 9", "detail": "none", "hint": "look",
    }  # fmt: skip
    assert row["label"] is None


def test_an_error_of_class_ml_that_a_statement_raised_becomes_the_failure():
    row = answered(raising(SPIError("max_bytes: too many", packed("ML015"), None, "drop something")))
    assert json.loads(row["failure"]) == {
        "sqlstate": "ML015", "message": "max_bytes: too many", "detail": None, "hint": "drop something",
    }  # fmt: skip


def test_an_error_of_the_server_becomes_the_failure_with_what_to_do_about_it():
    row = answered(raising(SPIError("permission denied for table t", packed("42501"))))
    told = json.loads(row["failure"])
    assert (told["sqlstate"], told["message"]) == ("42501", "permission denied for table t")
    assert "GRANT" in told["hint"]


@pytest.mark.parametrize(
    "error", [KeyError("column"), ValueError("bad"), OverflowError("large"), RecursionError("deep")]
)
def test_a_value_that_our_code_does_not_expect_is_an_error_of_ours_with_its_place(error):
    told = json.loads(answered(raising(error))["failure"])
    assert told["sqlstate"] == "ML019"
    assert f"{type(error).__name__}: {error}" in told["message"]
    assert "test_failures.py:" in told["detail"]


@pytest.mark.parametrize("error", [SPIError("cancelled", packed("57014")), RuntimeError("torch"), MemoryError()])
def test_any_other_error_passes(error):
    with pytest.raises(type(error)) as caught:
        answered(raising(error))
    assert caught.value is error


@pytest.mark.parametrize("sqlstate", ["ML000", "ML015", "57014", "XX000", "22P02"])
def test_a_packed_sqlstate_is_read(sqlstate):
    assert unpacked(packed(sqlstate)) == sqlstate
