import numpy as np
import pytest
from scipy import stats

from tacit.bench.scaling import fit_exponent


def test_exact_power_law():
    sizes = [10, 20, 50, 300, 1000]
    found = fit_exponent(sizes, [3.0 * size**1.5 for size in sizes])
    assert found.value == pytest.approx(1.5)
    assert found.error == pytest.approx(0.0, abs=1e-12)


def test_standard_error_is_that_of_a_regression():
    rng = np.random.default_rng(0)
    sizes = np.array([1, 2, 4, 8, 16, 32])
    costs = sizes**0.7 * np.exp(rng.normal(0, 0.2, len(sizes)))
    oracle = stats.linregress(np.log(sizes), np.log(costs))
    found = fit_exponent(sizes, costs)
    assert found.value == pytest.approx(oracle.slope)
    assert found.error == pytest.approx(oracle.stderr)


@pytest.mark.parametrize("sizes", [[1, 2], [5, 5, 5]])
def test_too_few_sizes(sizes):
    with pytest.raises(ValueError, match="three different sizes"):
        fit_exponent(sizes, [1.0] * len(sizes))
