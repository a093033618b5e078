import math

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.core.errors import Misuse
from tacit.core.noise import LAWS, Gaussian, Laplace
from tacit.core.randomness import Philox

SAME = [
    (Laplace(0.025), stats.laplace(scale=0.025)),
    (Laplace(3.0), stats.laplace(scale=3.0)),
    (Gaussian(1.5), stats.norm(scale=1.5)),
    (Gaussian(2), stats.norm(scale=2)),
]


@pytest.mark.parametrize(("law", "oracle"), SAME)
def test_quantiles_are_scipys(law, oracle):
    word = np.unique(np.logspace(0, np.log10(2**31), 200).astype(np.int64))
    u = (
        np.concatenate([[0], word, 2**32 - 1 - word, [2**32 - 1]]) + 0.5
    ) * 2.0**-32  # what can be drawn
    np.testing.assert_allclose(
        law.quantile(torch.from_numpy(u)).numpy(), oracle.ppf(u), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("law", [Laplace(1.0), Gaussian(1.0)])
def test_quantile_leaves_its_argument_alone(law):
    u = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    law.quantile(u)
    assert u.tolist() == [0.1, 0.5, 0.9]


@pytest.mark.parametrize(("law", "oracle"), SAME)
def test_draws_follow_the_law(law, oracle):
    source = torch.arange(20)
    drawn = (
        Philox(11, 2000, torch.float64)
        .rows("test", law, 4, source, None)
        .tensor()
        .flatten()
        .numpy()
    )
    assert stats.kstest(drawn, oracle.cdf).pvalue > 1e-3
    assert law.variance == pytest.approx(oracle.var())
    kurtosis = oracle.stats(moments="k")
    spread = oracle.var() * math.sqrt(
        (kurtosis + 2) / drawn.size
    )  # standard error of the sample variance
    assert abs(drawn.var() - oracle.var()) < 5 * spread
    assert abs(drawn.mean()) < 5 * math.sqrt(oracle.var() / drawn.size)


@pytest.mark.parametrize("kind", LAWS.values())
def test_no_noise_is_zero(kind):
    rows = Philox(0, 50).rows("test", kind(0), 0, torch.arange(3), None).tensor()
    assert kind(0).variance == 0
    assert not rows.any()


@pytest.mark.parametrize("kind", LAWS.values())
@pytest.mark.parametrize("scale", [-1.0, math.nan, math.inf, -math.inf, True, False, "0.1", None])
def test_a_scale_that_is_no_size_is_refused(kind, scale):
    with pytest.raises(Misuse, match=r"scale of .* noise is .*finite number"):
        kind(scale)
