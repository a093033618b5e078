import math

import pytest
import torch

from tacit.core.errors import Misuse
from tacit.privacy.protection import (
    PROTECTIONS,
    ErfVector,
    NormVector,
    TanhVector,
    check_protection,
    mix_protected,
)

ROWS = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-6.0, 8.0]], dtype=torch.float64)


def test_vectors_are_those_of_the_paper(hosted):
    here = hosted(3, 2)
    norms = torch.tensor([[5.0], [0.0], [10.0]], dtype=torch.float64)
    expected = 0.2 / math.sqrt(2) * norms.expand(3, 2)
    torch.testing.assert_close(NormVector(0.2).vector("c", ROWS, here), expected)
    torch.testing.assert_close(ErfVector(0.2).vector("c", ROWS, here), 0.2 * torch.erf(0.1 * ROWS))
    torch.testing.assert_close(TanhVector(0.2).vector("c", ROWS, here), 0.2 * torch.tanh(ROWS))


def test_combination_is_that_of_the_paper_and_only_the_shifted_row_is_sent(hosted):
    here = hosted(3, 2)
    sent = []
    original = here.net.mix
    here.net.mix = lambda **rows: sent.append(rows) or original(**rows)
    shift = TanhVector(0.3).vector("c", ROWS, here)
    got = mix_protected("psi", ROWS, shift, here)
    shifted = ROWS + shift
    (mixed,) = original(psi=shifted)
    torch.testing.assert_close(got, mixed - shifted + ROWS, rtol=0, atol=1e-14)
    assert len(sent) == 1
    assert torch.equal(sent[0]["psi"], shifted)


@pytest.mark.parametrize("kind", PROTECTIONS.values())
def test_agreeing_clients_are_not_moved(kind, hosted):
    here = hosted(5, 3)
    rows = torch.tensor([0.3, -2.0, 5.0], dtype=torch.float64).repeat(5, 1)
    shift = kind(0.9).vector("c", rows, here)
    assert float(shift.abs().min()) > 0
    torch.testing.assert_close(mix_protected("psi", rows, shift, here), rows, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", PROTECTIONS.values())
def test_lipschitz_constants_hold_and_are_reached(kind, hosted):
    one = torch.randn(500, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    other = one * (1 + 1e-6)  # along the model the norm changes most
    small, close = 1e-3 * one, 1e-3 * other  # near zero erf and tanh change most
    here = hosted(500, 4)
    ratios = []
    for w, u in ((one, other), (small, close), (one, one.flip(0))):
        moved = (kind(0.7).vector("c", w, here) - kind(0.7).vector("c", u, here)).norm(dim=1)
        ratios.append(moved / (0.7 * (w - u).norm(dim=1)))
    worst = float(torch.cat(ratios).max())
    assert 0.99 * kind.lipschitz < worst <= kind.lipschitz * (1 + 1e-6)


def test_bad_input_is_refused():
    for tau in (math.inf, math.nan, "much", True):
        with pytest.raises(Misuse, match="tau"):
            NormVector(tau)
    with pytest.raises(Misuse, match="protection is"):
        check_protection(0.1)
