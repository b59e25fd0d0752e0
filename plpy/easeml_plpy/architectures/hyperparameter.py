"""One number or choice that a config sets, its legal range, its default, and where a search looks for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from easeml_plpy.server.errors import InvalidArgument
from easeml_plpy.server.value_types import JSON

HyperparameterKind = Literal["float", "integer", "categorical", "integers", "names", "groups"]
Setting: TypeAlias = bool | int | float | str | list[int] | list[str] | list[list[str]]
"""What a config sets one hyperparameter to."""


@dataclass(frozen=True)
class Hyperparameter:
    """A hyperparameter of an architecture.

    `low` and `high` are inclusive legal bounds (of each element for 'integers'), `log` says that its
    magnitude matters, `choices` lists the legal values of a categorical, `max_length` bounds 'integers'. 'names' is a
    list of texts, such as columns, and 'groups' a list of such lists.
    `search` is the default search space: a list of choices, or {"type", "low", "high", "log"};
    None leaves the default in place unless the user asks.
    """

    name: str
    kind: HyperparameterKind
    default: Setting
    summary: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[bool | str, ...] | None = None
    max_length: int | None = None
    search: Sequence[Setting] | Mapping[str, JSON] | None = None

    def to_json(self) -> dict[str, JSON]:
        """Return all fields, ready for `json.dumps`; absent ones are None."""
        return {
            "name": self.name,
            "kind": self.kind,
            "default": self.default,
            "summary": self.summary,
            "low": self.low,
            "high": self.high,
            "log": self.log,
            "choices": None if self.choices is None else list(self.choices),
            "max_length": self.max_length,
            "search": self.search,
        }

    def check(self, value: object, path: str) -> Setting:
        """Return the value in its own type (1 becomes 1.0 for a float). Raises InvalidArgument naming the path."""
        if self.kind == "categorical":
            return self._check_choice(value, path)
        if self.kind == "integers":
            return self._check_integers(value, path)
        if self.kind == "names":
            return self._check_names(value, path)
        if self.kind == "groups":
            if not isinstance(value, list | tuple):
                raise self._refusal(value, path)
            return [self._check_names(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return self._check_number(value, path)

    def expected(self) -> str:
        """Return in words what a legal value is."""
        if self.kind == "categorical":
            return "one of " + ", ".join(repr(choice) for choice in self.choices or ())
        if self.kind == "integers":
            return f"a list of at most {self.max_length} integers {self._bounds()}"
        if self.kind in ("names", "groups"):
            return "a list of names" if self.kind == "names" else "a list of lists of names"
        article = "an integer" if self.kind == "integer" else "a number"
        return f"{article} {self._bounds()}"

    def _bounds(self) -> str:
        return f"from {self.low:g} to {self.high:g}"

    def _check_choice(self, value: object, path: str) -> bool | str:
        for choice in self.choices or ():
            if type(choice) is type(value) and choice == value:
                return choice
        raise self._refusal(value, path)

    def _check_integers(self, value: object, path: str) -> list[int]:
        if not isinstance(value, list | tuple) or len(value) > (self.max_length or 0):
            raise self._refusal(value, path)
        return [int(self._check_number(element, f"{path}[{index}]")) for index, element in enumerate(value)]

    def _check_names(self, value: object, path: str) -> list[str]:
        if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
            raise self._refusal(value, path)
        return list(value)

    def _check_number(self, value: object, path: str) -> float | int:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self._is_within(value):
            raise self._refusal(value, path)
        number = float(value) if self.kind == "float" else int(value)
        if number != value:
            raise self._refusal(value, path)
        return number

    def _is_within(self, number: float) -> bool:
        """Return whether the bounds hold; NaN and infinity never do."""
        low = -sys.float_info.max if self.low is None else self.low
        high = sys.float_info.max if self.high is None else self.high
        return low <= number <= high

    def _refusal(self, value: object, path: str) -> InvalidArgument:
        return InvalidArgument(
            f"{path}: expected {self.expected()}, got {value!r}", hint=f"{self.name} is {self.summary}."
        )


def magnitude(
    name: str, default: float, summary: str, *, legal: tuple[float, float], search: tuple[float, float]
) -> Hyperparameter:
    """Return a float whose magnitude matters; `legal` and `search` are the lowest and highest values of each."""
    (low, high), (search_low, search_high) = legal, search
    space: dict[str, JSON] = {"type": "float", "low": search_low, "high": search_high, "log": True}
    return Hyperparameter(name, "float", default, summary, low=low, high=high, log=True, search=space)
