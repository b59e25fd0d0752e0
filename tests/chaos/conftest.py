"""Options of the tests that kill things."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what makes the long form of the faults."""
    parser.addoption("--node-faults", type=int, default=4, help="how many faults happen to nodes and coordinator")
    parser.addoption("--node-faults-seed", type=int, default=0, help="which faults, and in which order")
