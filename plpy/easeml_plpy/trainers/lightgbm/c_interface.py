"""LightGBM's trees, read and evaluated through the C interface of its library.

LightGBM's Python package imports scikit-learn, SciPy and pandas: nearly two seconds of computing before a session
could answer its first row. The library alone loads in milliseconds, and answers one row in microseconds.
"""

from __future__ import annotations

import ctypes
import importlib.util
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_void_p, pointer
from functools import cache
from pathlib import Path
from typing import NoReturn

import numpy as np

from easeml_plpy.server.memory import says_exhausted
from easeml_plpy.server.value_types import Array

RAW, LEAF, CONTRIBUTIONS = 1, 2, 3
FLOAT64 = 1
_HANDLES = POINTER(c_void_p)
_DOUBLES = POINTER(c_double)
_SIGNATURES = {
    "LGBM_BoosterLoadModelFromString": (c_char_p, POINTER(c_int), _HANDLES),
    "LGBM_BoosterNumModelPerIteration": (c_void_p, POINTER(c_int)),
    "LGBM_BoosterNumberOfTotalModel": (c_void_p, POINTER(c_int)),
    "LGBM_BoosterPredictForMat": (
        *(c_void_p, c_void_p, c_int, c_int32, c_int32, c_int, c_int, c_int, c_int, c_char_p, POINTER(c_int64)),
        _DOUBLES,
    ),
    "LGBM_BoosterPredictForMatSingleRowFastInit": (
        *(c_void_p, c_int, c_int, c_int, c_int, c_int32, c_char_p, _HANDLES),
    ),
    "LGBM_BoosterPredictForMatSingleRowFast": (c_void_p, c_void_p, POINTER(c_int64), _DOUBLES),
    "LGBM_FastConfigFree": (c_void_p,),
    "LGBM_BoosterFree": (c_void_p,),
}


class LightGBMFailure(RuntimeError):
    """An error that the library reports."""


@cache
def _library() -> ctypes.CDLL:
    """Return the library of the installed package. Raises ModuleNotFoundError."""
    package = importlib.util.find_spec("lightgbm")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'lightgbm'", name="lightgbm")
    (path,) = (Path(package.origin).parent / "lib").glob("lib_lightgbm.*")
    library = ctypes.CDLL(str(path))
    library.LGBM_GetLastError.restype = c_char_p
    for name, types in _SIGNATURES.items():
        getattr(library, name).argtypes = types
    return library


def _call(name: str, *arguments: object) -> None:
    """Call a function of the library. Raises LightGBMFailure, MemoryError."""
    if getattr(_library(), name)(*arguments):
        _raise()


def _raise() -> NoReturn:
    """Raise what the library says of the call that has just failed."""
    message = _library().LGBM_GetLastError().decode(errors="replace")
    if says_exhausted(message):
        raise MemoryError
    raise LightGBMFailure(message)


class GrownTrees:
    """The trees of a booster's text, which has been checked (boosters.check_text). Raises LightGBMFailure."""

    def __init__(self, text: str) -> None:
        self.text = text
        # First, so that __del__ finds both if the library refuses the text.
        self._handle, self._row_handle = c_void_p(), c_void_p()
        n_trees, n_margins = c_int(), c_int()
        _call("LGBM_BoosterLoadModelFromString", text.encode(), byref(n_trees), byref(self._handle))
        _call("LGBM_BoosterNumberOfTotalModel", self._handle, byref(n_trees))
        _call("LGBM_BoosterNumModelPerIteration", self._handle, byref(n_margins))
        self._n_trees, self._n_margins = n_trees.value, n_margins.value
        self._written, self._answer = c_int64(), np.empty(n_margins.value)

    def __del__(self) -> None:
        for name, handle in (("LGBM_FastConfigFree", self._row_handle), ("LGBM_BoosterFree", self._handle)):
            if handle:
                getattr(_library(), name)(handle)

    def sums(self, rows: Array, n_threads: int) -> Array:
        """Return the sums of all trees for rows, float64 (n, n_margins)."""
        return self._sums_of_row(rows) if len(rows) == 1 else self._predicted(rows, RAW, n_threads, self._n_margins)

    def leaves(self, rows: Array, n_threads: int) -> Array:
        """Return the leaf of each row in each tree, (n, n_trees)."""
        return self._predicted(rows, LEAF, n_threads, self._n_trees).astype(np.intp)

    def contributions(self, rows: Array, n_threads: int) -> Array:
        """Return the Shapley values of rows, (n, n_margins, n_columns + 1).

        A deep tree takes up to a second, in which nothing interrupts the library: so a round is asked at a time.
        """
        width = rows.shape[1] + 1
        values = np.zeros((len(rows), self._n_margins * width))
        for place in range(self._n_trees // self._n_margins):
            values += self._predicted(rows, CONTRIBUTIONS, n_threads, self._n_margins * width, rounds=(place, 1))
        return values.reshape(len(rows), self._n_margins, width)

    def _predicted(
        self, rows: Array, kind: int, n_threads: int, width: int, *, rounds: tuple[int, int] = (0, -1)
    ) -> Array:
        """Ask for rows; `rounds` are the first one and how many, -1 for all."""
        data = np.ascontiguousarray(rows, np.float64)  # the library reads from its address
        values = np.empty((len(data), width))
        how = (1, kind, *rounds, f"num_threads={n_threads} verbosity=-1".encode())  # row by row
        into = byref(self._written), values.ctypes.data_as(_DOUBLES)
        _call("LGBM_BoosterPredictForMat", self._handle, data.ctypes.data, FLOAT64, *data.shape, *how, *into)
        return values

    def _sums_of_row(self, rows: Array) -> Array:
        """Return the sums of one row. The call's buffers stay in place, because asking numpy for an address takes as
        long as the trees do.
        """
        if not self._row_handle:
            self._begin_rows(rows.shape[1])
        self._row[:] = rows
        if self._ask(*self._asked):
            _raise()
        return self._answer[None].copy()

    def _begin_rows(self, n_columns: int) -> None:
        made = (FLOAT64, n_columns, b"num_threads=1 verbosity=-1", byref(self._row_handle))
        _call("LGBM_BoosterPredictForMatSingleRowFastInit", self._handle, RAW, 0, -1, *made)
        self._row = np.empty((1, n_columns))
        answer = self._answer.ctypes.data_as(_DOUBLES)
        self._asked = (self._row_handle, c_void_p(self._row.ctypes.data), pointer(self._written), answer)
        self._ask = _library().LGBM_BoosterPredictForMatSingleRowFast
