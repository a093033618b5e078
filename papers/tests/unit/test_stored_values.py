import pytest
import torch
from hypothesis import given, strategies as st

from tacit_papers.framework.stored_values import (
    MOST_POINTS,
    packed,
    thinned,
    unpacked,
    without_repeated_pictures,
)


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31))
def test_pictures_come_back_as_they_were_but_for_256_shades(count, height, width, seed):
    pictures = torch.rand(count, height, width, generator=torch.Generator().manual_seed(seed))
    back = [unpacked(text) for text in packed(pictures)]
    assert [picture.shape for picture in back] == [(height, width)] * count
    for picture, original in zip(back, pictures, strict=True):
        assert picture == pytest.approx(original.double().numpy(), abs=0.5 / 255 + 1e-9)


@given(st.integers(1, 1000))
def test_a_thinned_curve_keeps_its_ends_and_its_columns_together(length):
    values = {"curve": {"round": list(range(length)), "loss": [-n for n in range(length)]}}
    curve = thinned(values)["curve"]
    assert len(curve["round"]) == min(length, MOST_POINTS)
    assert (curve["round"][0], curve["round"][-1]) == (0, length - 1)
    assert sorted(set(curve["round"])) == curve["round"]
    assert curve["loss"] == [-n for n in curve["round"]]


def test_columns_of_different_lengths_and_other_values_stay():
    values = {"curve": {"a": list(range(500)), "b": [1]}, "errors": list(range(500)), "mse": 1.0}
    assert thinned(values) == values


def test_pictures_stay_with_the_first_repeat_that_has_them():
    kept = without_repeated_pictures(
        {2: {"mse": 2, "pictures": "c"}, 0: {"mse": 0}, 1: {"mse": 1, "pictures": "b"}}
    )
    assert kept == {0: {"mse": 0}, 1: {"mse": 1, "pictures": "b"}, 2: {"mse": 2}}
