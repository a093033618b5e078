import math

import pytest

from tacit.core.checks import (
    check_choice,
    check_count,
    check_flag,
    check_methods,
    check_number,
    check_positive,
    is_count,
    is_number,
)
from tacit.core.errors import Misuse


@pytest.mark.parametrize("value", [True, "1", None, math.nan, math.inf, 1j, [1]])
def test_what_is_not_a_finite_number_is_refused(value):
    assert not is_number(value)
    assert not is_count(value)
    with pytest.raises(Misuse, match="finite number"):
        check_number("x", value)
    with pytest.raises(Misuse, match="whole number"):
        check_count("x", value)


@pytest.mark.parametrize(
    ("bounds", "good", "bad", "wanted"),
    [
        ({"above": 0}, [1e-300, 5], [0, -1], "finite number above 0."),
        ({"at_least": 0}, [0, 5], [-1e-300], "finite number of at least 0."),
        ({"above": 0, "below": 1}, [0.5], [0, 1], "finite number above 0 and below 1."),
        ({"at_least": 0, "at_most": 1}, [0, 1], [2], "finite number of at least 0 and at most 1."),
        ({"example": 0.1, "hint": "a rate"}, [-1], ["x"], "finite number, e.g. 0.1 (a rate)."),
        ({"above": 0, "infinite": True}, [math.inf], [-math.inf, 0], "number above 0."),
    ],
)
def test_bounds_are_tested_and_named(bounds, good, bad, wanted):
    for value in good:
        check_number("x", value, **bounds)
    for value in bad:
        with pytest.raises(Misuse) as caught:
            check_number("x", value, **bounds)
        assert caught.value.problem == f"x is {value!r}."
        assert caught.value.remedy == f"Give a {wanted}"


def test_other_checks_name_the_value_and_the_remedy():
    check_positive("x", 1)
    check_count("x", 0, at_least=0)
    check_flag("x", False)
    check_choice("x", "b", ("a", "b"))
    check_methods("x", "text", "upper", "lower", remedy="Help.")
    for check, message in (
        (
            lambda: check_positive("x", 0, example=0.5),
            "x is 0. Give a finite number above 0, e.g. 0.5.",
        ),
        (lambda: check_count("x", 1, at_least=2), "x is 1. Give a whole number of at least 2."),
        (lambda: check_flag("x", 1), "x is 1. Give True or False."),
        (lambda: check_choice("x", "d", ("a", "b", "c")), 'x is \'d\'. Choose "a", "b" or "c".'),
        (
            lambda: check_choice("x", [], {"a": "good", "b": ""}),
            'x is []. Choose "a" (good) or "b".',
        ),
        (lambda: check_methods("x", str, "upper", remedy="Help."), "x is <class 'str'>. Help."),
    ):
        with pytest.raises(Misuse) as caught:
            check()
        assert str(caught.value) == message
