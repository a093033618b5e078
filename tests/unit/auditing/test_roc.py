import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from sklearn.metrics import roc_auc_score

from tacit.auditing.scoring.roc import Roc, clopper_pearson
from tacit.core.errors import Misuse


def scores(m, n, shift, seed, decimals=None):
    generator = np.random.default_rng(seed)
    members, others = generator.normal(shift, 1, m), generator.normal(0, 1, n)
    return (
        (members, others) if decimals is None else (members.round(decimals), others.round(decimals))
    )


@pytest.mark.parametrize("decimals", [None, 1, 0])
@pytest.mark.parametrize(("m", "n"), [(50, 50), (7, 90), (200, 3)])
@pytest.mark.parametrize("shift", [0.0, 1.0, -0.7])
def test_the_area_is_that_of_scikit_learn(m, n, shift, decimals):
    members, others = scores(m, n, shift, 0, decimals)
    roc = Roc.from_scores(members, others)
    labels = np.repeat([1, 0], [m, n])
    assert roc.auc == pytest.approx(
        roc_auc_score(labels, np.concatenate([members, others])), abs=1e-12
    )
    assert np.trapezoid(roc.tpr, roc.fpr) == pytest.approx(
        roc.auc, abs=1e-12
    )  # the points are the curve
    assert roc.interval[0] < roc.auc < roc.interval[1]


def test_the_interval_by_the_definition():
    """DeLong's components by loops over pairs, with ties."""
    members, others = scores(23, 17, 0.8, 3, decimals=1)
    win = np.array([[(a > b) + 0.5 * (a == b) for b in others] for a in members])
    variance = win.mean(1).var(ddof=1) / 23 + win.mean(0).var(ddof=1) / 17
    auc = win.mean()
    half = norm.ppf(0.975) * math.sqrt(variance) / (auc * (1 - auc))
    expected = [1 / (1 + math.exp(-(math.log(auc / (1 - auc)) + sign * half))) for sign in (-1, 1)]
    np.testing.assert_allclose(Roc.from_scores(members, others).interval, expected, rtol=1e-10)


@pytest.mark.parametrize("true_auc", [0.5, 0.75, 0.95])
@pytest.mark.parametrize("decimals", [None, 0])
def test_the_interval_covers_as_often_as_it_says(true_auc, decimals):
    shift, runs, inside = math.sqrt(2) * norm.ppf(true_auc), 400, 0
    if decimals == 0:  # rounded to whole numbers: P(a > b) + ½ P(a = b) over the two discrete laws
        cells = np.arange(-9, 14)
        of_member, of_other = (
            norm.cdf(cells + 0.5, s) - norm.cdf(cells - 0.5, s) for s in (shift, 0)
        )
        below = np.cumsum(of_other) - of_other / 2
        true_auc = float((of_member * below).sum())
    for seed in range(runs):
        low, high = Roc.from_scores(*scores(60, 40, shift, seed, decimals)).interval
        inside += low <= true_auc <= high
    # The number of hits of a right interval is binomial: outside these bounds once in a million.
    low, high = binom.ppf([5e-7, 1 - 5e-7], runs, 0.95)
    assert low <= inside <= high


def test_perfect_separation_is_not_a_point():
    few, many = (Roc.from_scores(np.ones(n), np.zeros(n)) for n in (5, 500))
    assert few.auc == many.auc == 1.0
    assert few.interval[1] == many.interval[1] == 1.0
    assert 0.5 < few.interval[0] < 0.8
    assert 0.98 < many.interval[0] < 1
    reverse = Roc.from_scores(np.zeros(5), np.ones(5))
    assert reverse.interval == pytest.approx((0.0, 1 - few.interval[0]), abs=1e-9)
    assert few.interval[0] > 0.5
    assert reverse.interval[0] < 0.5


def test_perfect_separation_covers():
    """At an area of 0.99 ten of each are often separated; the interval must still hold 0.99."""
    shift, runs = math.sqrt(2) * norm.ppf(0.99), 300
    found = [Roc.from_scores(*scores(10, 10, shift, seed)) for seed in range(runs)]
    assert sum(roc.auc == 1 for roc in found) > runs / 3
    assert sum(roc.interval[0] <= 0.99 <= roc.interval[1] for roc in found) > 0.9 * runs


def test_equal_scores_reveal_nothing():
    roc = Roc.from_scores(np.ones(30), np.ones(20))
    assert roc.auc == 0.5
    assert roc.interval[0] == pytest.approx(1 - roc.interval[1])
    assert 0.25 < roc.interval[0] < 0.45
    assert (roc.fpr.tolist(), roc.tpr.tolist()) == ([0, 1], [0, 1])
    assert roc.interval[0] <= 0.5


def test_only_corners_are_kept_and_infinite_scores_are_fine():
    roc = Roc.from_scores(torch.tensor([math.inf, 3.0, 1.0]), torch.tensor([2.0, 0.0, -math.inf]))
    assert roc.fpr.tolist() == [0, 0, 1 / 3, 1 / 3, 1]
    assert roc.tpr.tolist() == [0, 2 / 3, 2 / 3, 1, 1]
    assert roc.auc == pytest.approx(8 / 9)


def test_true_positives_at_low_false_positive_rates():
    others = np.arange(1000.0)  # at most ten of them may be accused: those from 990 up
    members = np.concatenate([np.full(30, 995.5), np.full(20, 989.5), np.full(50, 5.5)])
    at, rarer = Roc.from_scores(members, others).at
    assert (at.fpr, at.tpr, at.reason) == (0.01, 0.5, None)
    assert at.interval == pytest.approx(np.array(clopper_pearson(50, 100, 0.025)))
    assert rarer.tpr is rarer.interval is None
    assert "1,000 non-members are too few for a rate of 0.001: it needs 10,000" in rarer.reason
    tied = np.where(others >= 989, 989.0, others)  # eleven in one step: taking it would be too many
    assert Roc.from_scores(members, tied).at[0].tpr == 0.5
    assert Roc.from_scores(np.full(9, 989.0), tied).at[0].tpr == 0.0


def test_no_rate_from_too_few_non_members():
    members = np.ones(50)
    assert Roc.from_scores(members, np.zeros(999)).at[0].tpr is None
    assert Roc.from_scores(members, np.zeros(1000)).at[0].tpr == 1.0
    assert Roc.from_scores(members, np.zeros(10_000)).at[1].tpr == 1.0


def test_clopper_pearson_by_its_definition():
    for found, of in itertools.product((0, 1, 7, 20), (20,)):
        low, high = clopper_pearson(found, of, 0.025)
        assert found == 0 or binom.sf(found - 1, of, low) == pytest.approx(0.025, rel=1e-8)
        assert found == of or binom.cdf(found, of, high) == pytest.approx(0.025, rel=1e-8)
    assert clopper_pearson(0, 20, 0.025)[0] == 0
    assert clopper_pearson(20, 20, 0.025)[1] == 1


def test_plain_values_for_json():
    read = json.loads(
        json.dumps(Roc.from_scores(*scores(40, 1000, 1, 0)).as_dict(), allow_nan=False)
    )
    assert read["non_members"] == 1000
    assert read["at"][0]["interval"][0] < read["at"][0]["tpr"] < read["at"][0]["interval"][1]
    assert read["at"][1]["tpr"] is None
    assert "DeLong" in read["method"]


@pytest.mark.parametrize(
    ("members", "others", "words"),
    [
        ([1.0, math.nan], [0.0, 1.0], "member scores .* some NaN"),
        ([1.0], [0.0, 1.0], "at least two"),
        ([1.0, 2.0], [[0.0, 1.0]], "one number per candidate"),
    ],
)
def test_bad_input_is_refused(members, others, words):
    with pytest.raises(Misuse, match=words):
        Roc.from_scores(members, others)
