"""Cerebro's table 2 as formulas: numbers worked out by hand, and what holds for every workload."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.errors import InvalidArgument
from easeml_experiments import communication_cost as cost

# VGG16 (792 MiB) on ImageNet (1.2 million rows, 250 GB): 16 configs, 10 epochs, 8 workers, batch 32 (tables 4 and 5).
VGG16 = cost.Workload(
    n_epochs=10, state_bytes=792 * 2**20, n_workers=8, n_configs=16, batch_rows=32, n_rows=1_200_000,
    data_bytes=250 * 10**9,
)  # fmt: skip
POSITIVE = st.integers(1, 10**6)
WORKLOADS = st.builds(
    cost.Workload, n_epochs=POSITIVE, state_bytes=POSITIVE, n_workers=st.integers(1, 100), n_configs=POSITIVE,
    batch_rows=POSITIVE, n_rows=POSITIVE, data_bytes=POSITIVE,
)  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "n_bytes"),
    [
        (cost.epoch_states, 1_063_004_405_760),
        (cost.model_hopping, 1_076_291_960_832),
        (cost.shared_store_hopping, 2_126_008_811_520),
        (cost.task_parallel, 2_013_287_555_072),
        (cost.bulk_synchronous, 2_126_008_811_520),
        (cost.all_reduce, 4_983_364_654_202_880),
        (cost.parameter_server, 9_966_729_308_405_760),
    ],
)
def test_the_papers_setting(formula, n_bytes):
    assert formula(VGG16) == n_bytes


def test_the_last_short_batch_of_an_epoch_counts_as_a_step():
    assert VGG16.n_steps_per_epoch == 4688  # 1,200,000 / 256 = 4687.5


@given(WORKLOADS)
def test_hopping_never_costs_more_than_what_synchronises_more_often(work):
    assert cost.model_hopping(work) <= cost.bulk_synchronous(work) <= cost.parameter_server(work)
    assert cost.epoch_states(work) <= cost.all_reduce(work)


@given(WORKLOADS, POSITIVE)
def test_hopping_does_not_depend_on_the_batch_and_all_reduce_falls_with_it(work, batch_rows):
    other = replace(work, batch_rows=batch_rows)
    assert cost.model_hopping(other) == cost.model_hopping(work)
    larger, smaller = sorted((work, other), key=lambda each: -each.batch_rows)
    assert cost.all_reduce(larger) <= cost.all_reduce(smaller)


@given(WORKLOADS)
def test_every_cost_but_the_data_grows_with_the_state(work):
    double = replace(work, state_bytes=2 * work.state_bytes)
    for formula in (cost.model_hopping, cost.bulk_synchronous, cost.all_reduce, cost.parameter_server):
        assert formula(double) == 2 * formula(work)


def test_two_workers_of_a_ring_send_what_the_paper_counts_and_many_send_twice_that():
    assert [cost.ring_share(n) for n in (1, 2, 4)] == [0.0, 1.0, 1.5]


@pytest.mark.parametrize("name", vars(VGG16))
def test_numbers_that_mean_nothing_are_refused(name):
    with pytest.raises(InvalidArgument, match=name):
        replace(VGG16, **{name: 0})
