"""Untrusted text made safe to show: characters that could control a terminal or reorder a line are escaped.

Escaped are control characters (ESC, and the eight-bit ones), line breaks, marks that turn the direction of writing,
invisible characters and halves of surrogate pairs. All letters, marks and joiners of scripts stay.
"""

from __future__ import annotations

import re
from typing import Any

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """Return the text in one line, with an escape such as \\x1b for each character that is not for showing."""
    return _HIDDEN.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """Return text of several lines, each of them visible."""
    return "\n".join(map(visible, text.split("\n")))


def visible_value(value: Any) -> Any:
    """Return a document with all its words and names visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_value(name): visible_value(item) for name, item in value.items()}
    return [visible_value(item) for item in value] if isinstance(value, list | tuple) else value


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character in _SHORT:
        return _SHORT[character]
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
