import json
import math

import pytest

from tacit.core.missing_numbers import finite_or_none, nan_if_none, without_nan


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "1", [1.0], 10**400])
def test_what_is_no_finite_number_is_none(value):
    assert finite_or_none(value) is None
    assert finite_or_none(2) == 2


def test_missing_numbers_survive_json():
    value = {"a": [1, math.nan, (math.inf, "x")], 2: {"b": None}}
    assert json.loads(json.dumps(without_nan(value), allow_nan=False)) == {
        "a": [1, None, [None, "x"]],
        "2": {"b": None},
    }
    assert math.isnan(nan_if_none(without_nan(math.nan)))
