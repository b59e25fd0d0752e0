"""Refusal of a wrong argument: its place, what was expected, what was got, what to do."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches

from easeml_db.errors import InvalidArgument

LONGEST_SHOWN = 80


def refusal(path: str, *, expected: str, got: str, hint: str | None = None) -> InvalidArgument:
    """Make the error for a value at a JSON path such as `search_space.mlp.learning_rate.low`."""
    return InvalidArgument(f"{path}: expected {expected}, got {got}", hint=hint)


def unknown_name(path: str, name: object, legal_names: Iterable[str], *, expected: str) -> InvalidArgument:
    """Make the error for a name that does not exist, with the names that look like it, or all of them."""
    names = sorted(legal_names)
    close = get_close_matches(str(name), names, n=3)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Choose from: {', '.join(names)}."
    return refusal(path, expected=expected, got=shown(name), hint=hint)


def shown(value: object) -> str:
    """Show a value as JSON, cut where it gets long."""
    try:
        text = json.dumps(value)
    except RecursionError:
        text = "a deeply nested value"
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
