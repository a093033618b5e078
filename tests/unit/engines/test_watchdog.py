import math

import pytest
import torch

from tacit.engines.watchdog import Finding, Watchdog


def test_the_first_finding_is_kept():
    watchdog = Watchdog()
    fine = torch.ones(3, 4)
    watchdog.look(0, {"theta": fine, "gamma": fine})
    assert watchdog.finding() is None
    broken = fine.clone()
    broken[2, 1] = math.nan
    watchdog.look(1, {"theta": fine, "gamma": broken})
    watchdog.look(2, {"theta": broken * 0, "gamma": broken})
    assert watchdog.finding() == Finding(1, "gamma", 2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_is_enough(value):
    watchdog = Watchdog()
    rows = torch.zeros(5, 7)
    rows[4, 6] = value
    watchdog.look(9, {"theta": rows})
    assert watchdog.finding() == Finding(9, "theta", 4)


def test_what_nobody_will_ask_for_is_forgotten():
    watchdog = Watchdog()
    watchdog.look(0, {"theta": torch.full((1, 2), math.nan)})
    watchdog.forget()
    assert watchdog.finding() is None


def test_large_numbers_are_no_finding():
    watchdog = Watchdog()
    watchdog.look(
        0, {"theta": torch.full((2, 100_000), 3e38), "small": torch.full((1, 70_000), 1.0).half()}
    )
    assert watchdog.finding() is None
