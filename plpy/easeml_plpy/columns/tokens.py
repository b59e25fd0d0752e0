"""Tokens of texts as hashes: words and pairs of words, or pieces of two to four characters.

Only the first 2,000 characters of a text count. Each token counts once per text. Hashes are CRC-32 in 20 bits: the same
on every machine, and fast for short tokens.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from easeml_plpy.columns.coded_fields import NO_TOKEN, NULL_TEXT, Ids

MOST_CHARACTERS = 2_000
MOST_TOKENS = 128
N_HASHES = 1 << 20
PIECES = (2, 3, 4)
_WORD = re.compile(r"\w+")


def _words(text: str) -> Iterator[str]:
    """Yield words, then pairs of them, so that pairs are left out first if there are too many tokens."""
    words = _WORD.findall(text.lower())
    yield from words
    yield from (f"{one} {other}" for one, other in pairwise(words))


def _characters(text: str) -> Iterator[str]:
    """Yield pieces of the text, with a space at both ends so that beginnings differ from middles."""
    padded = f" {text.lower()} "
    for size in PIECES:
        yield from (padded[start : start + size] for start in range(len(padded) - size + 1))


ANALYZERS: dict[str, Callable[[str], Iterator[str]]] = {"words": _words, "characters": _characters}


class Tokenizer:
    """Makes tokens of texts in one way, and caches the hashes of tokens, because most occur again."""

    def __init__(self, analyzer: str) -> None:
        self._split = ANALYZERS[analyzer]
        self._hashes: dict[str, int] = {}

    def hashes(self, text: str) -> list[int]:
        """Return the hashes of a text's tokens, each once, in the order in which they come."""
        hashes = self._hashes
        tokens = dict.fromkeys(self._split(text[:MOST_CHARACTERS]))
        for token in tokens:
            if token not in hashes:
                hashes[token] = zlib.crc32(token.encode("utf-8", "surrogatepass")) % N_HASHES
        return list(dict.fromkeys(hashes[token] for token in tokens))

    def rows(self, texts: Sequence[str | None], width: int) -> Ids:
        """Return the hashes of texts, int32 (n, width); -1 for no token, -2 in the first place for NULL."""
        if len(self._hashes) > N_HASHES:
            self._hashes.clear()  # rare tokens would fill memory
        rows = np.full((len(texts), width), NO_TOKEN, np.int32)
        for k, text in enumerate(texts):
            if text is None:
                rows[k, 0] = NULL_TEXT
            else:
                hashes = self.hashes(text)[:width]
                rows[k, : len(hashes)] = hashes
        return rows


def token_counts(analyzer: str, texts: Sequence[str]) -> list[int]:
    """Return how many tokens each text has."""
    tokenizer = Tokenizer(analyzer)
    return [len(tokenizer.hashes(text)) for text in texts]


def width_for(counts: Sequence[int]) -> int:
    """Return how many tokens a row keeps, from the numbers of tokens of texts: enough for 99 of 100 texts, a multiple
    of 8, at most 128.
    """
    enough = int(np.quantile(counts or [1], 0.99, method="higher"))
    return min(MOST_TOKENS, max(8, -(-enough // 8) * 8))
