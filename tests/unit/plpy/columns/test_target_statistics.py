"""Mean targets of categories: pulled towards the mean of all, and for a training row made without its own fold."""

from __future__ import annotations

import numpy as np
import pytest

from easeml_plpy.columns.target_statistics import N_FOLDS, PRIOR_ROWS, TargetStatistics, folds_of, outputs_of

CODES = np.array([0, 0, 1, 1, 0, -1, 2])
VALUES = np.array([1.0, 3.0, 10.0, 20.0, 5.0, 7.0, 9.0])
FOLDS = folds_of(3, len(CODES))


def statistics() -> TargetStatistics:
    found = TargetStatistics.empty(2, 1)
    for rows in (slice(0, 3), slice(3, None)):
        found.add(*found.look(CODES[rows], VALUES[rows, None], FOLDS[rows]))
    return found


def mean_of(code: int, is_used: np.ndarray) -> float:
    own = VALUES[is_used & (np.where(CODES < 0, 2, CODES) == code)]
    return float((own.sum() + PRIOR_ROWS * VALUES[is_used].mean()) / (len(own) + PRIOR_ROWS))


def test_rows_take_turns_in_the_folds_over_all_blocks_of_a_partition() -> None:
    assert FOLDS.tolist() == [3, 4, 0, 1, 2, 3, 4]
    assert np.concatenate([folds_of(0, 4), folds_of(4, 6)]).tolist() == folds_of(0, 10).tolist()


def test_a_row_that_does_not_train_gets_the_mean_of_its_category_over_all_folds() -> None:
    everything = np.ones(len(CODES), bool)
    found = statistics().encode(np.array([0, 1, 2, -1]), None)
    np.testing.assert_allclose(found[:, 0], [mean_of(code, everything) for code in (0, 1, 2, 2)])


def test_a_training_row_gets_the_mean_without_its_own_fold() -> None:
    found = statistics().encode(CODES, FOLDS)
    expected = [mean_of(2 if code < 0 else code, fold != FOLDS) for code, fold in zip(CODES, FOLDS, strict=True)]
    np.testing.assert_allclose(found[:, 0], expected)


def test_what_is_stored_is_read_again() -> None:
    found = TargetStatistics.from_json(statistics().to_json())
    np.testing.assert_array_equal(found.encode(CODES, FOLDS), statistics().encode(CODES, FOLDS))
    assert found.counts.shape == (N_FOLDS, 3)


@pytest.mark.parametrize(("n_classes", "n_outputs"), [(None, 1), (2, 1), (3, 3), (8, 8), (9, 0)])
def test_two_classes_need_one_number_and_many_have_none(n_classes: int | None, n_outputs: int) -> None:
    assert outputs_of(n_classes).n_outputs == n_outputs


def test_outputs_are_the_number_or_which_class_it_is() -> None:
    assert outputs_of(None).of(np.array([0.5, 2.0])).tolist() == [[0.5], [2.0]]
    assert outputs_of(2).of(np.array([0, 1])).tolist() == [[0], [1]]
    assert outputs_of(3).of(np.array([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]
