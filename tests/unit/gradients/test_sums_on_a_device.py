import pytest
import torch

from tacit.gradients.masked_sums import write_masked_sums
from tacit.gradients.products import OuterProducts, write_clipped_sums


@pytest.mark.parametrize("counts", [(3, 0, 5, 1), (9,), (0, 9)])
@pytest.mark.parametrize("bad", [0.0, torch.nan, torch.inf])
def test_sums_without_reading_bounds_are_those_of_each_client(counts, bad):
    """The three last samples belong to no client."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(12, width, generator=generator) for width in (3, 4))
    left[1, 2] += bad
    blocks = [OuterProducts(right, left), OuterProducts(left)]
    bounds = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])
    found, expected = torch.empty(2, len(counts), 15)
    write_masked_sums(blocks, 0.5, bounds, found)
    write_clipped_sums(blocks, 0.5, [(bounds, expected)])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
