import math
from dataclasses import dataclass

import pytest

from tacit.core.errors import Misuse
from tacit.core.schedules import (
    Constant,
    Cosine,
    Exponential,
    Inverse,
    MultiStep,
    Timed,
    Warmup,
    check_rate,
    in_steps,
    rate_at,
)


def test_constant():
    assert [Constant(0.3)(t) for t in (0, 7, 10**6)] == [0.3] * 3


def test_exponential_decays_once_every_so_many_iterations():
    rate = Exponential(0.8, decay=0.5, steps=3)
    assert [rate(t) for t in range(7)] == pytest.approx([0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2])
    assert Exponential(1.0, 0.9)(5) == pytest.approx(0.9**5)


def test_inverse_is_halved_after_its_steps_and_a_third_after_twice():
    rate = Inverse(0.6, steps=10)
    assert [rate(0), rate(10), rate(20)] == pytest.approx([0.6, 0.3, 0.2])


def test_cosine_goes_from_start_over_the_middle_to_end_and_stays():
    rate = Cosine(1.0, steps=100, end=0.2)
    assert rate(0) == pytest.approx(1.0)
    assert rate(25) == pytest.approx(0.6 + 0.4 * math.sqrt(0.5))
    assert rate(50) == pytest.approx(0.6)
    assert [rate(100), rate(1000)] == pytest.approx([0.2, 0.2])
    assert Cosine(0.5, 10)(10) == pytest.approx(0.0)


def test_multi_step_is_multiplied_at_each_of_its_times():
    rate = MultiStep(1.0, steps=(20, 30), factor=0.5)
    assert [rate(t) for t in (0, 19, 20, 29, 30, 1000)] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_warm_up_rises_in_equal_steps_and_hands_over():
    rate = Warmup(4, then=Cosine(0.5, steps=10, end=0.1))
    assert [rate(t) for t in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert [rate(t) for t in (4, 9, 14, 50)] == pytest.approx([0.5, 0.3, 0.1, 0.1])


def test_a_warm_up_of_a_warm_up_is_one_after_the_other():
    rate = Warmup(1, then=Warmup(1, then=0.4))
    assert [rate(t) for t in range(4)] == pytest.approx([0.1, 0.2, 0.4, 0.4])


@dataclass(frozen=True)
class Options:
    lr: float | Timed
    inner: object = None


def test_epochs_become_steps_when_their_length_is_known():
    rate = Warmup(epochs=0.5, then=MultiStep(0.4, epochs=(1, 2.5)))
    expected = Warmup(2, then=MultiStep(0.4, (4, 10)))
    assert in_steps(rate, 4) == expected
    assert in_steps(Options(0.1, Options(rate)), 4) == Options(0.1, Options(expected))
    assert in_steps(Cosine(1.0, epochs=0.01), 4) == Cosine(1.0, steps=1)
    same = Options(Exponential(0.1, 0.9))
    assert in_steps(same, 4) is same


@pytest.mark.parametrize(
    "rate",
    [
        Exponential(0.1, 0.9, epochs=1),
        Inverse(0.1, epochs=1),
        Cosine(0.1, epochs=1),
        MultiStep(0.1, epochs=(1,)),
        Warmup(epochs=1, then=0.1),
    ],
)
def test_epochs_of_unknown_length_are_refused(rate):
    with pytest.raises(Misuse, match=r"counts epochs.*tacit\.run"):
        rate(0)


def test_a_rate_is_a_number_or_any_function():
    assert rate_at(0.1, 50) == 0.1
    assert rate_at(1, 0) == 1.0
    assert rate_at(lambda t: 1 / (1 + t), 3) == 0.25
    check_rate("lr", lambda t: 0.1)
    check_rate("lr", 3)


BAD = [0, -0.1, math.nan, math.inf]


@pytest.mark.parametrize("start", BAD)
@pytest.mark.parametrize(
    "schedule",
    [
        Constant,
        lambda start: Exponential(start, 0.9),
        lambda start: Inverse(start),
        lambda start: Cosine(start, 10),
        lambda start: MultiStep(start, (3,)),
    ],
)
def test_a_start_that_is_not_positive_is_refused(schedule, start):
    with pytest.raises(Misuse, match=r"start is .*finite number above 0"):
        schedule(start)


@pytest.mark.parametrize("rate", [*BAD, "0.1", None, True])
def test_a_rate_that_is_not_positive_is_refused_by_name(rate):
    with pytest.raises(Misuse, match=r"lr is .*positive number or a schedule"):
        check_rate("lr", rate)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Exponential(1.0, 0.0), "decay"),
        (lambda: Exponential(1.0, 1.1), "decay"),
        (lambda: Exponential(1.0, math.nan), "decay"),
        (lambda: Exponential(1.0, 0.9, steps=0), "steps"),
        (lambda: Inverse(1.0, epochs=0), "epochs"),
        (lambda: Cosine(1.0, steps=0), "steps"),
        (lambda: MultiStep(1.0, steps=()), "steps"),
        (lambda: MultiStep(1.0, steps=(3, 2)), "steps"),
        (lambda: MultiStep(1.0, epochs=(0, 2)), "epochs"),
        (lambda: MultiStep(1.0, steps=5), "steps"),
        (lambda: MultiStep(1.0, (2,), factor=0), "factor"),
        (lambda: Warmup(0, then=0.1), "steps"),
        (lambda: Warmup(2, then=-0.1), "then"),
        (lambda: Cosine(1.0, steps=5, end=1.5), "end"),
        (lambda: Cosine(1.0, steps=5, end=-0.5), "end"),
    ],
)
def test_other_impossible_schedules_are_refused(make, what):
    with pytest.raises(Misuse, match=f"{what} is "):
        make()


@pytest.mark.parametrize("rate", [lambda: 0.1, lambda t: 1 / t, lambda t: "0.1 or so"])
def test_a_schedule_that_fails_is_named_with_the_iteration(rate):
    with pytest.raises(Misuse, match="step size fails at iteration 0"):
        rate_at(rate, 0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MultiStep(1.0, steps=(2,), epochs=(2,)), "Both are given"),
        (lambda: MultiStep(1.0), "Neither steps nor epochs is given"),
        (lambda: Cosine(1.0), "Neither steps nor epochs is given"),
        (lambda: Warmup(then=0.1), "Neither steps nor epochs is given"),
    ],
)
def test_a_length_is_given_once(make, words):
    with pytest.raises(Misuse, match=words):
        make()
