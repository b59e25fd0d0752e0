"""Places for steps that tenants may make as long as they like: everybody begins soon, and long steps are finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.postgres.chores.work_slots import MOST_AT_ONCE, SHORT_SECONDS, Places, change_of

LOOK = 5.0
MOST_SECONDS = 1800.0


class Service:
    """Tenants whose steps take so many seconds, each with a next one at once, looked at every five seconds."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.now, self.places = seconds, 0.0, Places()
        self.at_work: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.waits: dict[str, float] = dict.fromkeys(seconds, 0.0)
        self.finished: list[str] = []
        self.longest_wait: dict[str, float] = dict.fromkeys(seconds, 0.0)

    def look(self) -> None:
        for tenant, began in list(self.at_work.items()):
            if self.now - began >= min(self.seconds[tenant], MOST_SECONDS):
                self.over(tenant)
                self.finished += [tenant] if self.seconds[tenant] <= MOST_SECONDS else []
        if (change := self.change()).ends:
            for tenant in change.ends:
                self.over(tenant)
            change = self.change()
        for tenant in change.begins:
            self.longest_wait[tenant] = max(self.longest_wait[tenant], self.now - self.waits.pop(tenant))
            self.at_work[tenant] = self.last[tenant] = self.now
        assert len(self.at_work) <= MOST_AT_ONCE
        self.now += LOOK

    def over(self, tenant: str) -> None:
        del self.at_work[tenant]
        self.waits[tenant] = self.now

    def change(self):  # type: ignore[no-untyped-def]
        waiting = sorted(self.waits, key=lambda tenant: self.last.get(tenant, -1.0))
        change = change_of(self.places, self.at_work, waiting, self.now, short_seconds=SHORT_SECONDS)
        self.places = change.places
        return change

    def look_until(self, seconds: float) -> None:
        while self.now <= seconds:
            self.look()


def test_two_that_hold_both_places_for_ever_keep_a_third_waiting_for_a_minute() -> None:
    service = Service({"mallory": 1e9, "minnie": 1e9, "victim": 20.0})
    service.look_until(4 * 3600)
    assert service.longest_wait["victim"] <= SHORT_SECONDS + LOOK
    assert service.finished.count("victim") > 100


@given(st.lists(st.sampled_from([5.0, 50.0, 100.0, 700.0, 1e9]), min_size=2, max_size=6))
def test_who_is_quick_waits_a_minute_for_each_other_tenant_at_most(others: list[float]) -> None:
    service = Service({f"other {number}": seconds for number, seconds in enumerate(others)} | {"victim": 20.0})
    service.look_until(3 * 3600)
    assert service.longest_wait["victim"] <= len(others) * (SHORT_SECONDS + LOOK)


@pytest.mark.parametrize("n_others", [2, 3, 5])
def test_a_long_step_is_finished_however_many_hold_places_for_as_long_as_they_can(n_others: int) -> None:
    service = Service({f"mallory {number}": 1e9 for number in range(n_others)} | {"big": 1500.0})
    service.look_until((n_others + 1) * (MOST_SECONDS + SHORT_SECONDS))
    assert "big" in service.finished


def test_while_nobody_else_waits_steps_take_as_long_as_they_take() -> None:
    service = Service({"ann": 1700.0, "ben": 1700.0})
    service.look_until(1750.0)
    assert sorted(service.finished) == ["ann", "ben"]


def test_one_long_step_beside_short_ones_is_never_ended() -> None:
    service = Service({"big": 1500.0, "ann": 5.0, "ben": 5.0})
    service.look_until(1600.0)
    assert "big" in service.finished
