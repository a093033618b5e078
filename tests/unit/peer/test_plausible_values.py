import math

import pytest
import torch

from tacit.peer.node.plausible_values import check_values, is_finite, largest, largest_of_each
from tacit.peer.wire.messages import Rejected

ROW = torch.tensor([0.5, -2.0])


def test_the_largest_magnitude_counts_signs_and_ignores_integers():
    assert largest(ROW) == 2
    assert largest(torch.tensor([-7, 3])) == largest(torch.empty(0)) == 0
    messages = [{"theta": ROW, "step": torch.tensor([9])}, {"theta": 3 * ROW}]
    assert largest_of_each(messages) == {"theta": 6, "step": 0}


@pytest.mark.parametrize("value", [3e38, -3e38, 1.1e6])
def test_a_number_beyond_any_model_is_rejected(value):
    with pytest.raises(Rejected, match=r"theta holds .* the largest number of this node, 2") as why:
        check_values({"theta": torch.tensor([0.0, value])}, {"theta": 2.0})
    assert why.value.reason == "too large"


def test_large_numbers_are_accepted_where_ours_are_large_too():
    assert check_values({"theta": torch.tensor([1e12])}, {"theta": 1.1e9}) == pytest.approx(1e12)
    assert check_values({"theta": torch.tensor([9e5])}, {"theta": 0.0}) == 9e5


def test_integers_of_masked_sums_are_not_bounded():
    assert check_values({"sum": torch.tensor([2**31 - 1], dtype=torch.int32)}, {}) == 0


NOT_FINITE = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("place", [0, 2, 999])
@pytest.mark.parametrize("value", NOT_FINITE)
def test_numbers_that_are_not_finite_are_rejected(value, place, dtype):
    rows = torch.ones(1000, dtype=dtype)
    assert is_finite(rows)
    rows[place] = value
    assert not is_finite(rows)
    # However large ours are.
    for own in ({}, {"theta": 1e30}, {"theta": float("inf")}):
        with pytest.raises(Rejected, match="theta holds NaN or infinity") as caught:
            check_values({"gamma": ROW, "theta": rows}, own)
        assert caught.value.reason == "not finite"


def test_large_numbers_whose_sum_overflows_are_finite():
    rows = torch.full((4,), 3e38)
    assert is_finite(rows)
    assert check_values({"x": rows}, {"x": 3e38}) == float(rows[0])


def test_integers_and_no_numbers_are_finite():
    assert is_finite(torch.tensor([2**31 - 1], dtype=torch.int32))
    assert is_finite(torch.empty(0))


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_not_finite_in_one_message_is_not_hidden_by_others(value, place):
    messages = [{"theta": torch.tensor([float(i)])} for i in (5, 7, 9)]
    messages[place] = {"theta": torch.tensor([1.0, value])}
    assert not math.isfinite(largest_of_each(messages)["theta"])
