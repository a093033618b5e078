"""Means and paired differences, against SciPy's tests."""

import math

import pytest
from scipy import stats

from tacit.core.errors import Misuse
from tacit.report.statistics import mean_and_interval, paired_difference

A, B = [90.1, 91.4, 88.9, 92.0], [89.0, 91.0, 88.1, 91.5]


def test_the_interval_is_that_of_scipy():
    found = mean_and_interval(A)
    expected = stats.ttest_1samp(A, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert found.mean == pytest.approx(sum(A) / 4)


def test_the_difference_is_paired():
    found = paired_difference(A, B)
    expected = stats.ttest_rel(A, B).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert found.excludes_zero
    # Unpaired, the spread over seeds hides the difference.
    assert stats.ttest_ind(A, B).confidence_interval(0.95).low < 0
    same = paired_difference(A, A)
    assert same.is_constant
    assert not same.excludes_zero
    # 0.3 up to rounding.
    # Two sums that differ by rounding only do not differ.
    assert paired_difference([0.1 + 0.2], [0.3]).mean == 0
    shifted = paired_difference([80.4, 70.5, 0.3], [80.1, 70.2, 0.0])
    assert shifted.is_constant
    assert math.isnan(shifted.low)


def test_too_few_values_have_no_interval():
    one = mean_and_interval([3.0])
    assert (one.mean, one.count) == (3.0, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.deviation)
    assert not one.excludes_zero
    assert math.isnan(mean_and_interval([1.0, math.nan]).mean)


def test_what_cannot_be_paired_is_refused():
    with pytest.raises(Misuse, match="cannot be paired"):
        paired_difference([1.0, 2.0], [1.0])
    with pytest.raises(Misuse, match="no value"):
        mean_and_interval([])
