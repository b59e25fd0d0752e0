"""A complete config, and typed ways to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from easeml_plpy.architectures.hyperparameter import Setting

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_keys, dict_values

T = TypeVar("T", bool, int, float, str)


class Config(dict[str, Setting]):
    """Every hyperparameter of an architecture with a checked value.

    A reader raises TypeError if the hyperparameter is declared with another kind, which is a fault of the builder.
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


class NotedConfig(Config):
    """A config that notes in `read` which settings are read."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Setting:
        """Read a setting."""
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        """Read a setting, if there is one of that name."""
        self.read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a setting of that name."""
        self.read.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        """Read all of it."""
        return iter(self.keys())

    def keys(self) -> dict_keys[str, Setting]:
        """Read all of it."""
        self.read |= super().keys()
        return super().keys()

    def values(self) -> dict_values[str, Setting]:
        """Read all of it."""
        self.read |= super().keys()
        return super().values()

    def items(self) -> dict_items[str, Setting]:
        """Read all of it."""
        self.read |= super().keys()
        return super().items()
