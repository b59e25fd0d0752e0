"""Whole numbers that order like the finite floating-point numbers that they stand for, so that bisection can find one
between two others.
"""

from __future__ import annotations

import struct

SIGN = 1 << 63


def key_of(number: float) -> int:
    """Return the key of a finite number; zero has one, whatever its sign."""
    bits: int = struct.unpack("<Q", struct.pack("<d", number))[0]
    return bits if bits < SIGN else SIGN - bits


def number_of(key: int) -> float:
    """Return the number of a key."""
    number: float = struct.unpack("<d", struct.pack("<Q", key if key >= 0 else SIGN - key))[0]
    return number
