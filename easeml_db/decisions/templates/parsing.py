"""The grammar of programs, by recursive descent of fixed depth: types do not nest, so no text can exhaust the stack.

program    ::= "{" "input" ":" type [","] "output" ":" type "}"
             | "Input" "=" dimensions [","] "Output" "=" dimensions
type       ::= "{" "[" [tensor {"," tensor}] "]" "," "[" [name {"," name}] "]" "}"
tensor     ::= [name "::"] "Tensor" dimensions
dimensions ::= "[" number {"," number} "]"
name       ::= [a-z][a-z0-9_]*
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from easeml_db.decisions.templates.program import (
    LARGEST_DIMENSION,
    MOST_DIMENSIONS,
    MOST_FIELDS,
    MOST_NAME_CHARACTERS,
    MOST_VALUES,
    ObjectType,
    Program,
    Tensor,
)
from easeml_db.decisions.templates.scanning import END, Token, refusal, shown, tokens_of
from easeml_db.errors import InvalidArgument

T = TypeVar("T")
NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


def parse_program(text: str) -> Program:
    """Return the program that a text says. Raises InvalidArgument with line and column."""
    return _Parser(text).program()


class _Parser:
    """A reader of tokens, one ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._next = next(self._tokens)

    def program(self) -> Program:
        program = self._full() if self._next.text == "{" else self._short()
        if self._next.kind != END:
            raise self._refused("the end of the program")
        return program

    def _full(self) -> Program:
        self._take("{")
        inputs = self._side("input", ":", self._type)
        self._skip(",")
        outputs = self._side("output", ":", self._type)
        self._take("}")
        return Program(inputs, outputs)

    def _short(self) -> Program:
        """Read the shorthand: one input tensor and one output tensor."""
        if self._next.text.lower() != "input":
            raise self._refused("'{' or 'Input ='")
        inputs = self._side("input", "=", self._shape)
        self._skip(",")
        outputs = self._side("output", "=", self._shape)
        return Program(ObjectType((Tensor(inputs),)), ObjectType((Tensor(outputs),)))

    def _side(self, word: str, sign: str, read: Callable[[], T]) -> T:
        if self._next.text.lower() != word:
            raise self._refused(repr(word))
        self._advance()
        self._take(sign)
        return read()

    def _type(self) -> ObjectType:
        self._take("{")
        used: set[str] = set()
        tensors = self._list(lambda place: self._tensor(place, used))
        self._take(",")
        recursive = self._list(lambda place: self._name(used))
        self._take("}")
        return ObjectType(tensors, recursive)

    def _list(self, read: Callable[[int], T]) -> tuple[T, ...]:
        """Read the possibly empty list in brackets; each item's reader gets its place, from 1."""
        self._take("[")
        items: list[T] = []
        while self._next.text != "]":
            if items:
                self._take(",", "',' or ']'")
            if len(items) == MOST_FIELDS:
                raise self._refused(f"at most {MOST_FIELDS} fields")
            items.append(read(len(items) + 1))
        self._take("]")
        return tuple(items)

    def _tensor(self, place: int, used: set[str]) -> Tensor:
        start, name = self._next, None
        if start.kind == "word" and start.text != "Tensor":
            name = self._name(used, "'Tensor' or ")
            self._take("::", "'::' after a name, and 'Tensor' where there is none")
        else:
            self._claim(f"field{place}", start, used)
        if self._next.text != "Tensor":
            raise self._refused("'Tensor'" if name else "'Tensor' or a name")
        self._advance()
        return Tensor(self._shape(), name)

    def _shape(self) -> tuple[int, ...]:
        start = self._take("[", "'[' and dimensions")
        shape = [self._dimension()]
        while self._next.text == ",":
            self._advance()
            if len(shape) == MOST_DIMENSIONS:
                raise self._refused(f"at most {MOST_DIMENSIONS} dimensions")
            shape.append(self._dimension())
        self._take("]", "',' or ']'")
        tensor = Tensor(tuple(shape))
        if tensor.n_values > MOST_VALUES:
            raise refusal(self._text, start.place, f"expected at most {MOST_VALUES} numbers, got {tensor.n_values}")
        return tensor.shape

    def _dimension(self) -> int:
        token = self._next
        if token.kind != "number" or token.text.startswith("-") or not token.text.strip("0"):
            raise self._refused("a dimension >= 1")
        # A number of a million digits should not be multiplied.
        if len(token.text.lstrip("0")) > 9 or int(token.text) > LARGEST_DIMENSION:
            raise self._refused(f"a dimension <= {LARGEST_DIMENSION}")
        self._advance()
        return int(token.text)

    def _name(self, used: set[str], other: str = "") -> str:
        token = self._next
        if token.kind != "word" or not NAME.fullmatch(token.text):
            raise self._refused(f"{other}a name of lower-case letters, digits and _")
        if len(token.text) > MOST_NAME_CHARACTERS:
            raise self._refused(f"a name of at most {MOST_NAME_CHARACTERS} characters")
        self._claim(token.text, token, used)
        self._advance()
        return token.text

    def _claim(self, name: str, token: Token, used: set[str]) -> None:
        if name in used:
            raise refusal(self._text, token.place, f"expected names that differ, got {name!r} twice")
        used.add(name)

    def _take(self, sign: str, expected: str | None = None) -> Token:
        if self._next.text != sign:
            raise self._refused(expected or repr(sign))
        return self._advance()

    def _skip(self, sign: str) -> None:
        if self._next.text == sign:
            self._advance()

    def _advance(self) -> Token:
        taken, self._next = self._next, next(self._tokens)
        return taken

    def _refused(self, expected: str) -> InvalidArgument:
        return refusal(self._text, self._next.place, f"expected {expected}, got {shown(self._next)}")
