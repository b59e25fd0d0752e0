"""A complete config, and typed ways to read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from easeml_plpy.architectures.hyperparameter import Setting

T = TypeVar("T", bool, int, float, str)


class Config(dict[str, Setting]):
    """Every hyperparameter of an architecture with a checked value.

    A reader raises TypeError where the hyperparameter is declared with another kind: the builder is wrong then.
    """

    def number(self, name: str) -> float:
        """Read a 'float'."""
        return self._read(name, float)

    def integer(self, name: str) -> int:
        """Read an 'integer'."""
        return self._read(name, int)

    def text(self, name: str) -> str:
        """Read a 'categorical' of words."""
        return self._read(name, str)

    def flag(self, name: str) -> bool:
        """Read a 'categorical' of True and False."""
        return self._read(name, bool)

    def integers(self, name: str) -> list[int]:
        """Read 'integers'."""
        return [number for number in self._list(name) if isinstance(number, int)]

    def names(self, name: str) -> list[str]:
        """Read 'names'."""
        return [text for text in self._list(name) if isinstance(text, str)]

    def groups(self, name: str) -> list[list[str]]:
        """Read 'groups'."""
        return [group for group in self._list(name) if isinstance(group, list)]

    def _list(self, name: str) -> Sequence[int | str | list[str]]:
        value = self[name]
        if not isinstance(value, list):
            raise TypeError(f"hyperparameter {name} is {value!r}, not a list")
        return value

    def _read(self, name: str, kind: type[T]) -> T:
        value = self[name]
        if not isinstance(value, kind):
            raise TypeError(f"hyperparameter {name} is {value!r}, not of type {kind.__name__}")
        return value
