import pytest
import torch

from tacit.auditing.attacks.sliding_mean import sliding_mean
from tacit.core.errors import Misuse


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


def test_masks_shrink_with_the_window_and_the_rest_stays():
    masks = 10 * torch.randn(4000, 3, generator=torch.Generator().manual_seed(1))
    means = sliding_mean(masks + torch.tensor([1.0, -2.0, 3.0]), 2500)
    torch.testing.assert_close(means[0], torch.tensor([1.0, -2.0, 3.0]), atol=0.6, rtol=0)


@pytest.mark.parametrize(
    ("rows", "window", "message"),
    [
        (torch.zeros(3, 2), 0, "window is 0"),
        (torch.zeros(3, 2), 4, "window is 4 for 3 rows"),
        (torch.zeros(3, 2), 2.0, "window is 2.0"),
        (torch.zeros(3), 1, "shape (3,)"),
        (torch.zeros(3, 2, dtype=torch.int64), 1, "int64"),
        (torch.tensor([[1.0], [float("nan")]]), 1, "not finite"),
    ],
)
def test_invalid_arguments(rows, window, message):
    with pytest.raises(Misuse) as refusal:
        sliding_mean(rows, window)
    assert message in refusal.value.problem
    assert refusal.value.remedy
