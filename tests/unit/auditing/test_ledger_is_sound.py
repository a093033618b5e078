"""Algorithms made to fool the ledger: each leaks in a way that must not be covered by a number."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import tacit
from tacit.algorithms.diffusion import Model
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.ledger import ledger
from tacit.auditing.symbolic.findings import Findings
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.noise import Gaussian, Laplace
from tacit.privacy.clipping import Clip

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)


@dataclass(frozen=True)
class Rule:
    """An algorithm of one step function."""

    does: Callable[..., Any]
    name: ClassVar[str] = "rule"
    requires: ClassVar[tuple[str, ...]] = ()

    def start(self, here) -> Model:
        return Model(here.theta0)

    def step(self, s, here) -> Model:
        return self.does(s, here) or s


@dataclass(frozen=True)
class Rounded(Laplace):
    """Noise in whole numbers, which hides no fraction."""

    def quantile(self, u):
        return super().quantile(u).round()


def upper(does, *, steps=2, clip=Clip(1.0, "l1"), adversary="eavesdropper"):  # noqa: B008 (frozen)
    run = run_on_symbols(Rule(does), RING, steps)
    return ledger(run, Adversary.parse(adversary), 0, clip=clip, parameters=7).upper


def noise_told_in_disguise(s, here):
    n = here.noise("own", Laplace(1.0))
    here.net.mix(said=here.grad(s.theta) + n, aux=here.nonlinear("cube", lambda x: x**3, n))


def published_by_another(s, here):
    got = here.net.send("g", here.graph.lift(here.grad(s.theta)), private=True)
    here.net.mix(pub=here.nonlinear("cube", lambda x: x**3, here.graph.total_in(got)))


def published_by_way_of_a_model(s, here):
    got = here.net.send("g", here.graph.lift(here.grad(s.theta)), private=True)
    theta = s.theta - 0.1 * here.graph.total_in(got)
    here.net.mix(pub=here.nonlinear("id", lambda x: x, theta))
    return Model(theta)


def published_by_a_gradient_elsewhere(s, here):
    g = here.grad(s.theta)
    theta = s.theta - here.graph.total_in(here.net.send("g", here.graph.lift(g), private=True))
    if here.t:
        here.net.mix(pub=g)
    return Model(theta)


def noise_in_the_point_beside_louder_noise(s, here):
    loud, own = here.noise("loud", Laplace(3e6)), here.noise("own", Laplace(1.0))
    here.net.mix(loud=loud, said=here.grad(s.theta + loud + own) + own)


def noise_of_a_law_unknown(s, here):
    here.net.mix(said=here.grad(s.theta) + here.noise("own", Rounded(1.0)))


def noise_that_is_told_as_well(s, here):
    n = here.noise("own", Laplace(1e10))
    here.net.mix(a=here.grad(s.theta) + n, b=n)


RULES = [
    noise_told_in_disguise,
    published_by_another,
    published_by_way_of_a_model,
    published_by_a_gradient_elsewhere,
    noise_in_the_point_beside_louder_noise,
    noise_of_a_law_unknown,
    noise_that_is_told_as_well,
]


@pytest.mark.parametrize("does", RULES, ids=lambda does: does.__name__)
def test_there_is_no_number_where_something_else_leaks(does):
    entry = upper(does)
    assert math.isinf(entry.epsilon), entry
    assert entry.words == "no differential-privacy guarantee"


def test_what_is_covered_by_one_law_each_is_covered_by_neither_alone():
    def by_turns(s, here):
        g = here.grad(s.theta)
        law = here.noise("l", Laplace(1.0)) if here.t == 0 else here.noise("g", Gaussian(1.0))
        here.net.mix(a=(1.0 if here.t == 0 else 1e-7) * g + law)

    assert math.isinf(upper(by_turns, clip=Clip(1e7, "l1")).epsilon)
    assert upper(by_turns, steps=1).epsilon == pytest.approx(2.0)


def test_the_same_without_the_leak_has_a_number():
    def honest(s, here):
        here.net.mix(said=here.grad(s.theta) + here.noise("own", Laplace(1.0)))

    assert upper(honest, steps=1).epsilon == pytest.approx(2.0)
    assert upper(honest, steps=3).epsilon == pytest.approx(6.0)  # fresh noise: uses add up


@pytest.mark.parametrize("masks", [1.0, 1e4, 1e6, 1e8])
def test_large_masks_do_not_drown_the_noise_that_stays(masks):
    """Secure aggregation with a little noise of one's own: the sum stays noisy, and the guarantee stays."""

    def secure_sum(s, here):
        shared = here.graph.net_out(*here.edge_noise("mask", Gaussian(masks)))
        here.net.mix(said=here.grad(s.theta) + here.noise("own", Gaussian(0.5)) + shared)

    run = run_on_symbols(Rule(secure_sum), RING, 1)
    sums = Findings(Knowledge(run, Adversary.eavesdropper()), 0).of("sum")
    assert sums.statuses == ["noisy"]
    assert sums.variances[0] == pytest.approx(5 * 0.25)
    entry = ledger(run, Adversary.eavesdropper(), 0, clip=Clip(1.0), parameters=3).upper
    assert math.isfinite(entry.epsilon)


def test_updates_of_several_local_steps_are_asked_for():
    run = run_on_symbols(tacit.FedAvg(lr=0.1, local_steps=3), RING, 2)
    found = Findings(Knowledge(run, Adversary.server()), 0)
    assert found.of("gradient").places("exact") == []
    assert found.of("update").statuses == ["exact", "exact"]
    assert (
        "+1·g[0](1) +1·g[0](2) +1·g[0](3)"
        in ledger(run, Adversary.server(), 0, clip=None, parameters=3).upper.why
    )
