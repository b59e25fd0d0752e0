"""The arguments of procedures, read once: an error names the path of the wrong value."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from easeml_db.decisions.search_space.refusal import refusal, shown, unknown_name
from easeml_db.errors import InvalidArgument

ROOT = "procedure_options"
MAX_CONFIGS = 10_000
MAX_EPOCHS = 1_000_000
MAX_PARALLEL = 10_000
DEFAULT_ETA = 3
DEFAULT_N_PARALLEL = 4


class Options:
    """The options of one procedure; names that it does not know are refused."""

    def __init__(self, options: Mapping[str, object], legal_names: Collection[str]) -> None:
        for name in options:
            if name not in legal_names:
                raise _unknown_option(name, legal_names)
        self._options = options

    def whole_number(self, name: str, default: int, *, at_least: int, at_most: int) -> int:
        value = self._options.get(name)
        return default if value is None else whole_number(f"{ROOT}.{name}", value, at_least=at_least, at_most=at_most)

    def flag(self, name: str) -> bool:
        """Return true or false; false when it is not said."""
        value = self._options.get(name)
        if value is not None and not isinstance(value, bool):
            raise refusal(f"{ROOT}.{name}", expected="true or false", got=shown(value))
        return bool(value)

    def names(self, name: str, hyperparameters: Collection[str]) -> frozenset[str] | None:
        """Return a list of names, None when it is not said."""
        value = self._options.get(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise refusal(f"{ROOT}.{name}", expected="a list of hyperparameters", got=shown(value))
        for position, item in enumerate(value):
            if not isinstance(item, str) or item not in hyperparameters:
                path = f"{ROOT}.{name}[{position}]"
                raise unknown_name(path, item, hyperparameters, expected="a hyperparameter of the search space")
        return frozenset(value)

    def eta(self) -> int:
        return self.whole_number("eta", DEFAULT_ETA, at_least=2, at_most=MAX_EPOCHS)

    def min_epochs(self, max_epochs: int) -> int:
        return self.whole_number("min_epochs", 1, at_least=1, at_most=max_epochs)

    def n_parallel(self) -> int:
        return self.whole_number("n_parallel", DEFAULT_N_PARALLEL, at_least=1, at_most=MAX_PARALLEL)


def whole_number(path: str, value: object, *, at_least: int, at_most: int) -> int:
    """Return a whole number (3.0 counts as one, true does not) within bounds, or refuse it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not at_least <= value <= at_most:  # type: ignore[operator]
        raise refusal(path, expected=f"a whole number from {at_least} to {at_most}", got=shown(value))
    return int(value)  # type: ignore[call-overload, no-any-return]


def checked_max_epochs(value: object) -> int:
    return whole_number("max_epochs", value, at_least=1, at_most=MAX_EPOCHS)


def checked_n_configs(value: object) -> int | None:
    return None if value is None else whole_number("n_configs", value, at_least=1, at_most=MAX_CONFIGS)


def _unknown_option(name: str, legal_names: Collection[str]) -> InvalidArgument:
    if legal_names:
        expected = f"one of the options {', '.join(legal_names)}"
        return unknown_name(f"{ROOT}.{name}", name, legal_names, expected=expected)
    return refusal(ROOT, expected="no options, since this procedure has none", got=shown(name))
