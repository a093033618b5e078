import pytest
import torch

from tacit_papers.measures.sliding_mean_attack import sliding_mean


@pytest.mark.parametrize("window", [1, 2, 7, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_window_against_its_own_mean(window, dtype):
    rows = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    means = sliding_mean(rows, window)
    assert means.shape == (51 - window, 6)
    assert means.dtype == dtype
    for first in range(51 - window):
        torch.testing.assert_close(
            means[first], rows[first : first + window].mean(0), atol=1e-6, rtol=1e-6
        )


def test_the_end_of_a_long_transcript_is_accurate():
    rows = torch.full((100_000, 1), 1000.0)
    rows[-1] += 1e-3
    assert sliding_mean(rows, 1)[-1] == rows[-1]
    assert sliding_mean(rows, 10)[0] == 1000.0
