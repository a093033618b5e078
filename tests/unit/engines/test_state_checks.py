"""What authors of algorithms read when `start` or `step` returns something wrong."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.algorithms import Algorithm


@dataclass(frozen=True)
class State:
    theta: Tensor
    more: Tensor | None = None


def simulate(step, start=lambda here: State(here.theta0)):
    @dataclass(frozen=True)
    class Own(Algorithm):
        name = "own"

        def start(self, here) -> State:
            return start(here)

        def step(self, state, here) -> State:
            return step(state, here)

    task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
    graph = tacit.Topology.ring(3).mixing("metropolis")
    return tacit.run(task, Own(), graph, steps=2)


WRONG = {
    "nothing": (lambda s, here: None, ["Own.step returns None", "dataclass"]),
    "a list": (lambda s, here: [s.theta], ["Own.step returns a list", "theta"]),
    "the class": (lambda s, here: State, ["Own.step returns a type"]),
    "another width": (lambda s, here: State(s.theta[:, :1]), ["[3, 1]", "[3, 2]"]),
    "too few rows": (lambda s, here: State(s.theta[:1]), ["[1, 2]", "[3, 2]"]),
    "other numbers": (lambda s, here: State(s.theta.double()), ["float64", "float32"]),
    "no models": (lambda s, here: State(None), ["no theta"]),
    "not a tensor": (lambda s, here: State(s.theta, 3), ["more", "a int"]),
    "two gradients": (
        lambda s, here: State(s.theta - here.grad(s.theta) - here.grad(s.theta, local=1)),
        ["Gradient 1", "gradients_per_step = 2"],
    ),
    "gradients elsewhere": (
        lambda s, here: State(here.grad(s.theta[:, :1])),
        ["models of 1 numbers", "have 2", "here.theta0"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_step_that_returns_something_else(case):
    step, words = WRONG[case]
    assert_mentions(misuse_message(simulate, step), *words)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (lambda here: None, ["Own.start returns None"]),
        (lambda here: State(here.theta0[:, :1]), ["Own.start", "[3, 1]"]),
    ],
)
def test_a_start_that_returns_something_else(start, words):
    assert_mentions(misuse_message(simulate, lambda s, here: s, start), *words)


def test_a_state_that_fits():
    assert simulate(lambda s, here: State(s.theta, s.theta)).theta.shape == (3, 2)
