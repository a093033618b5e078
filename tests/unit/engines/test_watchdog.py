import math

import pytest
import torch

from tacit.engines.watchdog import NonFiniteRow, Watchdog


def test_the_first_row_is_kept():
    watchdog = Watchdog()
    fine = torch.ones(3, 4)
    watchdog.check(0, {"theta": fine, "gamma": fine})
    assert watchdog.first_found() is None
    broken = fine.clone()
    broken[2, 1] = math.nan
    watchdog.check(1, {"theta": fine, "gamma": broken})
    watchdog.check(2, {"theta": broken * 0, "gamma": broken})
    assert watchdog.first_found() == NonFiniteRow(1, "gamma", 2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_is_enough(value):
    watchdog = Watchdog()
    rows = torch.zeros(5, 7)
    rows[4, 6] = value
    watchdog.check(9, {"theta": rows})
    assert watchdog.first_found() == NonFiniteRow(9, "theta", 4)


def test_cleared_checks_are_dropped():
    watchdog = Watchdog()
    watchdog.check(0, {"theta": torch.full((1, 2), math.nan)})
    watchdog.clear()
    assert watchdog.first_found() is None


def test_large_numbers_are_finite():
    watchdog = Watchdog()
    watchdog.check(
        0, {"theta": torch.full((2, 100_000), 3e38), "small": torch.full((1, 70_000), 1.0).half()}
    )
    assert watchdog.first_found() is None


def test_one_row_that_many_share_counts_for_all():
    watchdog = Watchdog()
    watchdog.check(1, {"theta": torch.tensor([[1.0, torch.nan]]).expand(5, 2)})
    assert watchdog.first_found() == NonFiniteRow(1, "theta", 0)
    rows = torch.ones(1, 2).expand(5, 2)
    assert watchdog.magnitudes(rows).shape == (5,)
