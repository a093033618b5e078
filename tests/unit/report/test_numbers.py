"""Means and deviations as text: the same decimal place, and nothing rounded away."""

import math

import pytest

from tacit.report.numbers import format_alike, format_pair


@pytest.mark.parametrize(
    ("mean", "deviation", "form", "text"),
    [
        (81.2345, 1.5, ".2f", "81.23 ± 1.50"),
        (81.2345, 12.345, ".2f", "81.23 ± 12.35"),
        (81.2345, 0.0312, ".2f", "81.234 ± 0.031"),
        (81.2345, 0.0012, ".2f", "81.2345 ± 0.0012"),
        (0.34412, 0.02, ".4g", "0.3441 ± 0.0200"),
        (0.34412, 0.00021, ".4g", "0.34412 ± 0.00021"),
        (1234.5, 3.21, ".4g", "1234.5 ± 3.2"),
        (1.2345e-05, 2e-07, ".4g", "1.234e-05 ± 0.020e-05"),
        (2.5e9, 1e7, ".3g", "2.500e+09 ± 0.010e+09"),
        (-0.031, 0.2, "+.2f", "-0.03 ± 0.20"),
        (0.0, 0.0, ".2f", "0.00 ± 0.00"),
        (81.0, 0.0, ".2f", "81.00 ± 0.00"),
        (0.5, 1e-12, ".4g", "0.5 ± 1e-12"),
        (50.0, 1e-12, ".2f", "50.00 ± 1.0e-12"),
        (81.2345, math.nan, ".2f", "81.23"),
        (math.nan, 1.0, ".2f", "–"),
    ],
)
def test_mean_and_deviation_have_the_same_decimals(mean, deviation, form, text):
    assert format_pair(mean, deviation, form) == text


def test_an_interval_shows_its_width():
    shown = format_alike((0.00412, 0.00402, 0.00422), 0.0001, "+.2f")
    assert shown == ["+0.00412", "+0.00402", "+0.00422"]
