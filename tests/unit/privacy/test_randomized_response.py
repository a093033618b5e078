import math

import pytest
import torch

from tacit.core.errors import Misuse
from tacit.privacy.randomized_response import WORDS, RandomizedResponse


def test_signs_are_told_with_one_size(hosted):
    v = torch.tensor([[3.0, -0.5, 0.0, -1e-300]], dtype=torch.float64).repeat(4, 1)
    response = RandomizedResponse(50.0)  # so large that nothing is flipped here
    answer = response.respond("rr", v, hosted(4, 4))
    assert torch.equal(
        answer,
        torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64).repeat(4, 1) * response.scale,
    )


def test_a_coin_decides_for_zeros_alone(hosted):
    v = torch.tensor([2.0, -2.0, 0.0, -0.0], dtype=torch.float64).repeat(4, 10_000)
    here = hosted(4, v.shape[1])
    plus, coin = (
        RandomizedResponse(1.0, zeros).respond("rr", v, here) for zeros in ("plus", "coin")
    )
    assert torch.equal(plus[v != 0], coin[v != 0])
    scale = RandomizedResponse(1.0).scale
    assert set(coin.unique().tolist()) == {-scale, scale}
    spread = scale / (v == 0).sum() ** 0.5
    assert abs(float(coin[v == 0].mean())) < 4 * spread
    assert abs(float(plus[v == 0].mean()) - 1) < 4 * spread


def test_what_decides_for_zeros_is_one_of_two():
    with pytest.raises(Misuse, match="zeros is 'minus'"):
        RandomizedResponse(1.0, "minus")


def test_the_budget_is_never_exceeded():
    """The 32-bit threshold gives a likelihood ratio of at most e^ε, and nearly that."""
    for epsilon in (1e-6, 0.01, 0.5, 1.0, 4.0, 8.0, 20.0):
        response = RandomizedResponse(epsilon)
        ratio = response.threshold / (WORDS - response.threshold)
        assert ratio <= math.exp(epsilon)
        assert ratio > math.exp(epsilon) * (1 - 1e-8 * math.exp(epsilon))
        assert response.scale == pytest.approx(1 / math.tanh(epsilon / 2), rel=1e-3)
    assert (
        RandomizedResponse(700.0).threshold == WORDS - 1
    )  # e^ε beyond 32 bits: still flips now and then


def test_flips_are_keyed_by_client_and_iteration(hosted):
    v = torch.ones(3, 200, dtype=torch.float64)
    response, here = RandomizedResponse(0.5), hosted(3, 200)
    one, again, later = (response.respond("rr", v, at) for at in (here, here, here.at(0)))
    assert torch.equal(one, again)
    assert not torch.equal(one, later)
    assert not torch.equal(one[0], one[1])


def test_not_a_number_is_not_sent(hosted):
    v = torch.tensor([[1.0, math.nan]], dtype=torch.float64).repeat(3, 1)
    answer = RandomizedResponse(1.0).respond("rr", v, hosted(3, 2))
    assert answer.isfinite().all()
    assert set(answer.abs().flatten().tolist()) == {RandomizedResponse(1.0).scale}


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, "4", True, 1e-9])
def test_a_budget_must_be_positive(epsilon):
    with pytest.raises(Misuse, match="epsilon") as caught:
        RandomizedResponse(epsilon)
    assert caught.value.remedy
