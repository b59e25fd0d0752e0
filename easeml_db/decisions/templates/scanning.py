"""The text of a program as tokens that know where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from easeml_db.errors import InvalidArgument

MOST_CHARACTERS = 20_000
EXAMPLE = "For example {input: {[Tensor[64,64,3]],[]}, output: {[Tensor[3]],[]}}, or Input = [64,64,3]  Output = [3]."

TOKEN = re.compile(r"\s*(?:(?P<number>-?[0-9]+)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>::|[\[\]{},:=]))", re.ASCII)
WORD = re.compile(r"[A-Za-z0-9_.+-]+|\S", re.ASCII)


class Token(NamedTuple):
    """A number, a word or a sign, and the place of its first character; the end of the text has no kind."""

    kind: str
    text: str
    place: int


END = ""


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the tokens of a program, at last one for its end. Raises InvalidArgument."""
    if len(text) > MOST_CHARACTERS:
        raise InvalidArgument(f"program: expected at most {MOST_CHARACTERS} characters, got {len(text)}", hint=EXAMPLE)
    place = 0
    while rest := text[place:].strip():
        matched = TOKEN.match(text, place)
        if matched is None:
            place = text.index(rest, place)
            raise refusal(text, place, f"expected a name, a number or one of [ ] {{ }} , : =, got {_shown(rest)}")
        kind = matched.lastgroup or END
        yield Token(kind, matched[kind], matched.start(kind))
        place = matched.end()
    yield Token(END, "", max(len(text.rstrip()) - 1, 0))


def refusal(text: str, place: int, message: str) -> InvalidArgument:
    """Return the error that names the line and column of a place, both from 1."""
    before = text[:place]
    line, column = before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
    return InvalidArgument(f"program: line {line}, column {column}: {message}", hint=EXAMPLE)


def shown(token: Token) -> str:
    """Return a token as a message names it."""
    if token.kind == END:
        return "the end of the program"
    return token.text[:40] if token.kind == "number" else repr(token.text[:40])


def _shown(rest: str) -> str:
    word = WORD.match(rest)
    return repr((word[0] if word else rest)[:40])
