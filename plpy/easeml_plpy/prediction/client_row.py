"""One row as a client writes it, JSON or numbers, as fields: the same values as SQL would have sent them."""

from __future__ import annotations

import math
import reprlib
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from numbers import Number
from typing import Any, NamedTuple, TypeGuard, TypeVar, cast

import numpy as np
import numpy.typing as npt

from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.encoder import Encoder, Field, NumberField, NumericField, ObjectsField, TensorField
from easeml_plpy.columns.object_rows import Objects, side_by_side
from easeml_plpy.columns.one_row_math import RowNumbers
from easeml_plpy.columns.tokens import Tokenizer
from easeml_plpy.prediction import row_times
from easeml_plpy.prediction.row_json import WrittenNumber, decoded
from easeml_plpy.prediction.task_objects import check_length, objects_of, series_of_numbers
from easeml_plpy.server.errors import ShapeMismatch
from easeml_plpy.server.value_types import JSON, Array, shown

T = TypeVar("T", np.float64, np.float32, np.int32)
MAX_TEXT_BYTES = 32 << 20
"""Of a row as JSON: parsing it takes less than a second, and nothing can interrupt that."""
KNOWN = "Give null for a value that is not known."
_NUMBER_TYPES = (float, int, WrittenNumber)
_KINDS = {list: "an array", str: "a text", bool: "a boolean", **dict.fromkeys(_NUMBER_TYPES, "a number")}
_NUMBERS = frozenset({*_NUMBER_TYPES, type(None)})
_TEXTS = frozenset({str, type(None)})
_ARRAY_HEAD = struct.Struct("=iiI")
_GREATEST_REAL = float(np.finfo(np.float32).max)


def row_of_text(text: str | None, encoder: Encoder) -> Mapping[str, JSON]:
    """Parse a row of the encoder's inputs given as the text of a JSON object. Raises ShapeMismatch."""
    if text is not None and len(text) > MAX_TEXT_BYTES:
        raise ShapeMismatch(f"inputs: expected at most {MAX_TEXT_BYTES} characters of json, got {len(text)}")
    try:
        row: JSON = None if text is None else decoded(text, keeps_digits=_places(encoder.inputs).have_codes_within)
    except (RecursionError, ValueError) as error:
        nested = isinstance(error, RecursionError)
        raise ShapeMismatch(
            f"inputs: expected a json object of columns, got {'one nested too deep' if nested else 'other text'}",
            detail="" if nested else str(error),
            hint="An array of numbers needs its type: easeml.predict(dataset, '{1, 2}'::real[]).",
        ) from error
    if not isinstance(row, Mapping):
        raise ShapeMismatch(
            f"inputs: expected a json object of columns, got {'NULL' if row is None else _KINDS[type(row)]}",
            hint="Give the whole row: easeml.predict(dataset, to_jsonb(t)).",
        )
    return row


def numbers_of_array(stored: bytes) -> npt.NDArray[np.float64]:
    """Return the numbers of a double precision[] as easeml.array_bytes has it, NaN for NULL. Raises ShapeMismatch."""
    try:
        return array_elements(stored, np.float64, np.nan)
    except (struct.error, ValueError) as error:
        raise ShapeMismatch("inputs: expected the bytes of an array of double precision") from error


def array_elements(stored: bytes, dtype: type[T], missing: float) -> npt.NDArray[T]:
    """Return the elements of an array as easeml.array_bytes returns it, with a value for NULL. Raises struct.error,
    ValueError if the bytes are not an array.

    The layout is that of array.h without the length word: rank, offset of the data if a bitmap of NULLs comes first,
    element type, sizes, lower bounds, then the elements that are not NULL.
    """
    rank, offset, _ = _ARRAY_HEAD.unpack_from(stored)
    sizes = struct.unpack_from(f"={rank}i", stored, _ARRAY_HEAD.size)
    n_elements, start = (math.prod(sizes) if rank else 0), _ARRAY_HEAD.size + 8 * rank
    if not offset:
        return np.frombuffer(stored, dtype, n_elements, start)
    bitmap = np.frombuffer(stored, np.uint8, -(-n_elements // 8), start)
    is_known = np.unpackbits(bitmap, count=n_elements, bitorder="little").astype(bool)
    elements = np.full(n_elements, missing, dtype)
    elements[is_known] = np.frombuffer(stored, dtype, int(is_known.sum()), offset - 4)
    return elements


def fields_from_values(encoder: Encoder, row: Mapping[str, JSON]) -> Sequence[Array]:
    """Make fields of one row given as a mapping from column to value (None: missing), as in to_jsonb(row)."""
    if encoder.objects is not None:
        _check_inputs(encoder, row)
        return _fields_of_objects(encoder.objects, objects_of(encoder.objects, row[encoder.objects.column]))
    places = _places(encoder.inputs)
    try:
        values = [row[source] for source in places.sources]
    except KeyError:
        _check_inputs(encoder, row)
        raise
    if places.are_numbers and _NUMBERS.issuperset(map(type, values)):
        numbers = cast("list[float | None]", values)
        with suppress(OverflowError):
            return RowNumbers([math.nan if number is None else float(number) for number in numbers])
    return [
        _field_from_value(field, _value_of(field, value)) for field, value in zip(encoder.inputs, values, strict=True)
    ]


class _Places(NamedTuple):
    """The columns of the inputs; whether all are numbers that are taken as JSON has them, and whether any is a text or
    category within JSON, which a number there may be, too.
    """

    sources: tuple[str, ...]
    are_numbers: bool
    have_codes_within: bool


@lru_cache(64)
def _places(inputs: tuple[Field, ...]) -> _Places:
    """Return the places of the inputs in a row, cached because the look-up takes longer than a row's arithmetic."""
    are_numbers = (isinstance(field, NumericField) and not field.key and field.type != "float4" for field in inputs)
    have_codes_within = any(field.key and isinstance(field, CategoricalField | TextField) for field in inputs)
    return _Places(tuple(field.source for field in inputs), all(are_numbers), have_codes_within)


def _check_inputs(encoder: Encoder, row: Mapping[str, JSON]) -> None:
    for field in encoder.inputs:
        if field.source not in row:
            raise ShapeMismatch(
                f"the row lacks the input {field.source!r}",
                detail=f"Inputs: {', '.join(dict.fromkeys(declared.source for declared in encoder.inputs))}.",
                hint="Give each input a value, null where it is not known.",
            )


def fields_from_rows(encoder: Encoder, rows: Sequence[Mapping[str, JSON]]) -> list[Array]:
    """Make fields of many rows given as mappings. Raises ShapeMismatch."""
    for row in rows:
        _check_inputs(encoder, row)
    return [
        _column_from_values(field, [_value_of(field, row[field.source]) for row in rows]) for field in encoder.inputs
    ]


def _column_from_values(field: Field, values: Sequence[JSON]) -> Array:
    if isinstance(field, CategoricalField | TextField):
        for value in values:
            _check_text(field, value)
        return coded(field, values)
    return np.concatenate([_field_from_value(field, value) for value in values])


def _value_of(field: Field, value: JSON) -> JSON:
    """Return the value of the field in its column's value; for a field within JSON, None if it is of another kind."""
    if field.key is None:
        return value
    member = value.get(field.key) if isinstance(value, Mapping) else None
    legal = (bool, int, float) if isinstance(field, NumericField) else (str, bool, int, float)
    return member if isinstance(member, legal) else None


def fields_from_numbers(encoder: Encoder, numbers: Array) -> Sequence[Array]:
    """Make fields of one row given as numbers in the order of the inputs, tensors flattened."""
    if encoder.objects is not None:
        return _fields_of_objects(encoder.objects, series_of_numbers(encoder.objects, numbers))
    stretches = _stretches(encoder.inputs)
    if numbers.size != stretches[-1][1].stop:
        raise ShapeMismatch(
            f"expected {stretches[-1][1].stop} numbers, got {numbers.size}",
            hint=f"Give them in the order of the inputs: {', '.join(field.column for field, _, _ in stretches)}.",
        )
    flat = numbers.reshape(-1).astype(np.float64)
    if _places(encoder.inputs).are_numbers:
        return RowNumbers(flat.tolist())
    return [
        flat[place] if is_number else _as_stored(field, flat[place]).reshape(1, *field.shape)
        for field, place, is_number in stretches
    ]


def _fields_of_objects(field: ObjectsField, row: Objects) -> list[Array]:
    return [side_by_side(field, check_length(field, row))]


@lru_cache(64)
def _stretches(inputs: tuple[Field, ...]) -> list[tuple[NumberField, slice, bool]]:
    """Return the inputs with their places among the numbers of a row, and whether a number is the field's as it is.
    Raises ShapeMismatch."""
    stretches: list[tuple[NumberField, slice, bool]] = []
    start = 0
    for field in inputs:
        if isinstance(field, CategoricalField | TextField):
            raise ShapeMismatch(
                f"input {field.column!r} is a text and cannot be given as a number",
                hint="Give the row as jsonb: easeml.predict(dataset, to_jsonb(row)).",
            )
        stop = start + math.prod(field.shape)
        stretches.append((field, slice(start, stop), isinstance(field, NumericField) and field.type != "float4"))
        start = stop
    return stretches


def _text_of(field: CategoricalField | TextField, value: JSON) -> str | None:
    """Return a JSON value as the server casts it to text; NaN is what pandas has for a text that is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value.text if isinstance(value, WrittenNumber) else str(value)
    if type(value) is float and value.is_integer() and field.key is None and isinstance(field, CategoricalField):
        # pandas makes 1 and 2 of a column with gaps 1.0 and 2.0
        return text if text in field.codes else str(int(value))
    # char(n) is padded in JSON, and not where it is cast to text
    return text.rstrip(" ") if field.type == "bpchar" else text


def category_code(field: CategoricalField, text: str | None) -> int:
    """Return the code of a category: its place, len(categories) for any other, -1 (or any other) for missing."""
    if text is None:
        return -1 if field.missing else len(field.categories)
    return field.codes.get(text, len(field.categories))


def coded(field: CategoricalField | TextField, values: Sequence[JSON]) -> Array:
    """Return the stored codes of the texts of many rows."""
    if isinstance(field, TextField):
        return Tokenizer(field.analyzer).rows([_text_of(field, value) for value in values], field.width)
    if not _TEXTS.issuperset(map(type, values)) or field.type == "bpchar":
        values = [_text_of(field, value) for value in values]  # before they are compared: true equals 1
    texts = cast("Sequence[str | None]", values)
    codes = {text: category_code(field, text) for text in set(texts)}
    return np.array([codes[text] for text in texts], field.stored_type)


def _check_text(field: CategoricalField | TextField, value: JSON) -> None:
    """Refuse what is no text and has none, an array or pandas' NA for example. Raises ShapeMismatch."""
    if type(value) not in _TEXTS and not isinstance(value, str | Number):
        raise ShapeMismatch(f"input {field.column!r}: expected a text, got {shown(value)}", hint=KNOWN)


def _field_from_value(field: Field, value: JSON) -> Array:
    if isinstance(field, CategoricalField | TextField):
        _check_text(field, value)
        return coded(field, [value])
    try:
        if isinstance(field, NumericField) and (value is None or (_is_number(value) and field.type != "float4")):
            return np.array([math.nan if value is None else float(value)])
        array = _numbers(field, value)
    except (OverflowError, TypeError, ValueError) as error:
        is_time = isinstance(field, NumericField) and field.is_time
        what = row_times.EXAMPLE if is_time else "a number"
        got = shown(value) if isinstance(value, str | int | float | list | dict) else reprlib.repr(value)
        raise ShapeMismatch(f"input {field.column!r}: expected {what}, got {got}", hint=KNOWN) from error
    expected = math.prod(field.shape)
    if np.size(array) != expected:
        raise ShapeMismatch(
            f"input {field.column!r}: expected {expected} number(s) of shape {list(field.shape)}, got {np.size(array)}",
            hint="easeml.dataset_info has the shape of each input.",
        )
    return np.asarray(array, np.float64 if field.missing else None).reshape(1, *field.shape)


def _is_number(value: JSON) -> TypeGuard[float]:
    return type(value) in _NUMBER_TYPES  # true and false are integers to Python


def _numbers(field: NumericField | TensorField, value: Any) -> Array:
    """Return the numbers of a JSON value. Raises TypeError or ValueError if there are none."""
    if isinstance(value, str) and field.type == "bytea":
        return np.frombuffer(bytes.fromhex(value.removeprefix("\\x")), np.uint8)
    if isinstance(field, NumericField) and field.is_time:
        return np.asarray(row_times.seconds_of(value, field.type))
    return _as_stored(field, np.array(value, dtype=np.float64))


def _as_stored(field: NumericField | TensorField, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return numbers in the precision of the column's type: a real that JSON shows as 0.1 is 0.10000000149. Raises
    ShapeMismatch for an array with missing elements if training had none.
    """
    if isinstance(field, TensorField) and not field.missing and np.isnan(numbers).any():
        raise ShapeMismatch(
            f"input {field.column!r} has missing elements, and no row that was trained on had any",
            hint="Give each element a number.",
        )
    if field.type not in ("float4", "_float4"):
        return numbers
    held = np.clip(numbers, -_GREATEST_REAL, _GREATEST_REAL).astype(np.float32).astype(np.float64)
    return np.where(np.isinf(numbers), numbers, held)
