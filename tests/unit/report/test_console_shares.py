"""How many of the console's threads each login may hold."""

from __future__ import annotations

import pytest

from easeml_db.console.shares import MOST_OF_ONE, Shares


def taken(shares: Shares, who: str) -> int:
    """Take threads until none is given."""
    n = 0
    while shares.take(who):
        n += 1
    return n


def test_nobody_takes_more_than_a_share_and_what_is_given_back_is_there() -> None:
    shares = Shares(32)
    assert taken(shares, "mallory") == MOST_OF_ONE
    shares.give_back("mallory")
    assert taken(shares, "mallory") == 1


@pytest.mark.parametrize("n_threads", [8, 32])
def test_few_logins_cannot_hold_all_threads(n_threads: int) -> None:
    shares = Shares(n_threads)
    held = [taken(shares, f"mallory_{k}") for k in range(5)]
    assert sum(held[:3]) < n_threads
    assert all(n >= 1 for n in held)
    assert shares.take("anna")
