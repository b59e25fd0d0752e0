"""Groups go whole to splits: shares come out within the size of a group, and each label reaches each split."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from easeml_plpy.packing.group_dealing import Group, GroupDealer


def deal(groups: list[Group], wanted: tuple[int, int, int]) -> list[int]:
    dealer = GroupDealer(wanted)
    return [dealer.deal(group) for group in groups]


@pytest.mark.parametrize("seed", range(5))
def test_shares_come_out_within_the_size_of_a_group(seed: int) -> None:
    sizes = np.random.default_rng(seed).integers(1, 60, 400)
    groups = [Group(str(i), int(n), 1) for i, n in enumerate(sizes)]
    n_rows = int(sizes.sum())
    wanted = (n_rows - n_rows // 5 - n_rows // 10, n_rows // 5, n_rows // 10)
    rows: Counter[int] = Counter()
    for group, place in zip(groups, deal(groups, wanted), strict=True):
        rows[place] += group.n_rows
    for place, n in enumerate(wanted):
        assert abs(rows[place] - n) <= 2 * sizes.max()


def test_three_groups_of_a_label_reach_three_splits() -> None:
    groups = [Group(f"{rarity} {i}", 10, rarity) for rarity in range(1, 6) for i in range(3)]
    groups += [Group(f"common {i}", 10, 9) for i in range(100)]
    places = defaultdict(set)
    for group, place in zip(groups, deal(groups, (800, 175, 175)), strict=True):
        places[group.rarity].add(place)
    assert all(found == {0, 1, 2} for found in places.values())


@pytest.mark.parametrize("place", range(10))
def test_a_group_of_half_the_rows_trains_whenever_it_comes(place: int) -> None:
    groups = [Group(str(i), 10, 1) for i in range(50)]
    groups.insert(place, Group("giant", 500, 1))
    chosen = deal(groups, (700, 150, 150))
    assert chosen[place] == 0
    assert set(chosen) == {0, 1, 2}
