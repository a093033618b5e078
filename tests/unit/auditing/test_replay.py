"""What is not linear is found on numbers, whatever it looks like on symbols."""

from dataclasses import dataclass

import pytest
import torch

from support.integer_noise import integers
from support.suited import guaranteed, made
from support.written import FromFirstModels, Two, WithZeros, Written
from tacit import ALGORITHMS, Gaussian, Laplace, Topology
from tacit.algorithms.diffusion import ModelState
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.discrete_gaussian import DiscreteGaussian

RING = Topology.ring(5).mixing("metropolis", lazy=True)
LAW = Gaussian(0.5)


def found(algorithm, steps=3, graph=RING):
    return [m.what for m in replay(algorithm, graph, run_on_symbols(algorithm, graph, steps))]


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("common", [True, False])
def test_every_algorithm_is_what_its_symbols_say(name, common):
    algorithm = guaranteed(made(ALGORITHMS[name]), RING)
    run = run_on_symbols(algorithm, RING, 6, common_start=common)
    assert replay(algorithm, RING, run) == []


DECEPTIONS = {
    "sign of the gradient": lambda w, g, here: w - 0.1 * (torch.sign(g) + here.noise("n", LAW)),
    "noise scaled by the norm": lambda w, g, here: (
        w - 0.1 * (g + g.norm(dim=1, keepdim=True) * here.noise("n", LAW))
    ),
    "one number of noise for all": lambda w, g, here: (
        w - 0.1 * (g + here.noise("n", LAW)[:, :1].expand_as(g))
    ),
    "noise zeroed in places": lambda w, g, here: (
        w - 0.1 * (g + here.noise("n", LAW) * (torch.arange(g.shape[1]) % 2))
    ),
    "noise where the model is positive": lambda w, g, here: (
        w - 0.1 * (g + here.noise("n", LAW) * (w > 0))
    ),
    "clipped at one": lambda w, g, here: w - 0.1 * g.clamp(-1, 1) + here.noise("n", LAW),
    "step divided by the width": lambda w, g, here: w - g / g.shape[1] + here.noise("n", LAW),
    "product of gradient and noise": lambda w, g, here: w + g * here.noise("n", LAW),
    "sorted": lambda w, g, here: w - g.sort(dim=1).values + here.noise("n", LAW),
    "other columns": lambda w, g, here: w - g.roll(1, 1) + here.noise("n", LAW),
}


@pytest.mark.parametrize("name", DECEPTIONS)
def test_what_is_not_linear_is_found(name):
    problems = found(Written(DECEPTIONS[name]))
    assert "the message 'psi' is not linear in gradients, models and noise" in problems


def test_a_linear_algorithm_passes_with_numbers_of_any_size():
    for size in (1e-9, 1.0, 1e9):
        algorithm = Written(lambda w, g, here, size=size: w - size * g + here.noise("n", LAW))
        assert found(algorithm) == []


@dataclass(frozen=True)
class WithScalar(FromFirstModels):
    """Sends a number per client beside its model."""

    scalar: object
    name = "with-scalar"

    def step(self, s, here):
        g = here.grad(s.theta)
        (mixed, _) = here.net.mix(psi=s.theta - 0.1 * g, w=self.scalar(s.theta, g))
        return ModelState(mixed)


def test_a_counter_carries_no_symbols_and_passes():
    algorithm = WithScalar(lambda w, g: torch.ones(len(w), 1, dtype=w.dtype))
    run = run_on_symbols(algorithm, RING, 3)
    assert {run.transcript.messages[k].tag for k in run.plain_messages} == {"w"}
    assert replay(algorithm, RING, run) == []


def test_a_number_that_depends_on_the_gradient_is_found():
    problems = found(WithScalar(lambda w, g: g.norm(dim=1, keepdim=True)))
    assert problems == ["the message 'w' is not one number per parameter and depends on them"]


def nonlinear(function, **declared):
    return Written(lambda w, g, here: here.nonlinear("f", function, w, **declared) - 0.1 * g)


@pytest.mark.parametrize(
    ("algorithm", "problem"),
    [
        (nonlinear(torch.tanh, deterministic=True, inverse=torch.atanh, lipschitz=1.0), None),
        (nonlinear(torch.tanh, deterministic=True, lipschitz=0.1), "Lipschitz"),
        (nonlinear(lambda x: x**3, deterministic=True, inverse=lambda y: y), "inverse"),
        (nonlinear(lambda x: x - x.mean(0), deterministic=True), "not a function of each row"),
        (nonlinear(lambda x: x[:, :2]), "another shape"),
    ],
)
def test_what_steps_declare_is_checked(algorithm, problem):
    if problem == "another shape":
        with pytest.raises((RuntimeError, ValueError)):
            found(algorithm)
        return
    problems = found(algorithm)
    assert (problem is None and not problems) or any(problem in one for one in problems)


def test_noise_that_is_also_used_inside_of_a_step_is_found():
    def sent(w, g, here):
        own = here.noise("n", LAW)
        return w - 0.1 * (g + own) + here.nonlinear("f", lambda x: x * here.noise("n", LAW), w)

    assert found(Written(sent)) == ["the noise 'n' is used both inside and outside of a step"]


def test_other_messages_on_numbers_are_found():
    def sent(w, g, here):
        if bool(w.abs().sum() > 100):
            here.net.mix(extra=w)
        return w - g + here.noise("n", Laplace(1.0))

    assert found(Written(sent), steps=1) == ["other messages are sent on numbers than on symbols"]


def test_a_step_that_uses_more_than_its_rows_is_found():
    def sent(w, g, here):
        size = g.norm(dim=1, keepdim=True)
        return here.nonlinear("scaled", lambda x: x * size, w) + here.noise("n", LAW)

    assert "the result of the non-linear step 'scaled' depends on more than its rows" in found(
        Written(sent)
    )


def test_a_step_that_mixes_clients_is_found():
    def sent(w, g, here):
        return here.nonlinear("all", lambda x: x / x.abs().max(), g, epsilon=1.0)

    assert "the non-linear step 'all' of one client depends on the rows of others" in found(
        Written(sent)
    )


def test_two_steps_with_one_random_stream_are_found():
    def sent(w, g, here):
        coins = [
            here.nonlinear(tag, lambda x: x * (here.words("w", x.shape[1]) % 2), rows)
            for tag, rows in (("a", w), ("b", g))
        ]
        return coins[0] + coins[1]

    assert "two non-linear steps draw the same random numbers 'words w'" in found(Written(sent))


def test_two_steps_with_the_same_integer_noise_are_found():
    law = DiscreteGaussian(7)

    def noisy(here, x):
        return x + integers(here.randomness, "i", law, here.tick, here.graph.ids, x.shape[1])

    def sent(w, g, here):
        return sum(
            here.nonlinear(tag, lambda x: noisy(here, x), rows)
            for tag, rows in (("a", w), ("b", g))
        )

    assert "two non-linear steps draw the same random numbers 'integers i'" in found(Written(sent))


@dataclass(frozen=True)
class Unheard(FromFirstModels):
    """Averages the rows of all clients without sending anything."""

    name = "unheard"

    def step(self, s, here):
        return ModelState(s.theta - 0.1 * here.grad(s.theta).mean(0, keepdim=True))


def test_rows_of_others_that_were_never_sent_are_found():
    assert found(Unheard()) == ["clients have parts of others in 'theta' that were never sent"]


def test_noise_on_the_first_parameters_only_is_found_at_the_width_of_the_model():
    def sent(w, g, here):
        noise = here.noise("n", LAW)
        return w - 0.1 * (g + torch.cat([noise[:, :100], 0 * noise[:, 100:]], 1))

    algorithm = Written(sent)
    run = run_on_symbols(algorithm, RING, 3)
    assert replay(algorithm, RING, run) == []
    problems = [one.what for one in replay(algorithm, RING, run, width=500)]
    assert "the message 'psi' is not linear in gradients, models and noise" in problems


def test_a_state_that_is_not_linear_is_found():
    @dataclass(frozen=True)
    class Hidden(WithZeros):
        name = "hidden"

        def step(self, s, here) -> Two:
            g = here.grad(s.theta)
            (mixed,) = here.net.mix(psi=s.theta + s.extra - 0.1 * g)
            return Two(mixed, g.abs())

    assert "the state 'extra' is not linear in the unknowns" in found(Hidden(), steps=1)
