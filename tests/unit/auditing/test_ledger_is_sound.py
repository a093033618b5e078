"""Algorithms made to mislead the ledger: each has a leak, so none may get a guarantee."""

import math
from dataclasses import dataclass

import pytest

import tacit
from support.bounds import RING, ledger_of, threat
from support.written import Rule
from tacit.algorithms.diffusion import ModelState
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.noise import Gaussian, Laplace
from tacit.privacy.clipping import Clip


@dataclass(frozen=True)
class Rounded(Laplace):
    """Noise in whole numbers, which hides no fractions."""

    def quantile(self, u):
        return super().quantile(u).round()


def upper(does, *, steps=2, clip=Clip(1.0, "l1"), adversary="eavesdropper"):  # noqa: B008 (frozen)
    return ledger_of(Rule(does), adversary, steps, clip=clip).upper


def noise_sent_in_disguise(s, here):
    n = here.noise("own", Laplace(1.0))
    here.net.mix(sent=here.grad(s.theta) + n, aux=here.nonlinear("cube", lambda x: x**3, n))


def published_by_another(s, here):
    got = here.net.send("g", here.graph.lift(here.grad(s.theta)), private=True)
    here.net.mix(pub=here.nonlinear("cube", lambda x: x**3, here.graph.total_in(got)))


def published_by_way_of_a_model(s, here):
    got = here.net.send("g", here.graph.lift(here.grad(s.theta)), private=True)
    theta = s.theta - 0.1 * here.graph.total_in(got)
    here.net.mix(pub=here.nonlinear("id", lambda x: x, theta))
    return ModelState(theta)


def published_by_a_gradient_elsewhere(s, here):
    g = here.grad(s.theta)
    theta = s.theta - here.graph.total_in(here.net.send("g", here.graph.lift(g), private=True))
    if here.t:
        here.net.mix(pub=g)
    return ModelState(theta)


def noise_in_the_point_beside_louder_noise(s, here):
    loud, own = here.noise("loud", Laplace(3e6)), here.noise("own", Laplace(1.0))
    here.net.mix(loud=loud, sent=here.grad(s.theta + loud + own) + own)


def noise_of_a_law_unknown(s, here):
    here.net.mix(sent=here.grad(s.theta) + here.noise("own", Rounded(1.0)))


def noise_sent_as_well(s, here):
    n = here.noise("own", Laplace(1e10))
    here.net.mix(a=here.grad(s.theta) + n, b=n)


RULES = [
    noise_sent_in_disguise,
    published_by_another,
    published_by_way_of_a_model,
    published_by_a_gradient_elsewhere,
    noise_in_the_point_beside_louder_noise,
    noise_of_a_law_unknown,
    noise_sent_as_well,
]


@pytest.mark.parametrize("does", RULES, ids=lambda does: does.__name__)
def test_other_leaks_leave_no_guarantee(does):
    bound = upper(does)
    assert math.isinf(bound.epsilon), bound
    assert str(bound) == "no differential-privacy guarantee"


def test_each_law_must_cover_all_gradients():
    def by_turns(s, here):
        g = here.grad(s.theta)
        law = here.noise("l", Laplace(1.0)) if here.t == 0 else here.noise("g", Gaussian(1.0))
        here.net.mix(a=(1.0 if here.t == 0 else 1e-7) * g + law)

    assert math.isinf(upper(by_turns, clip=Clip(1e7, "l1")).epsilon)
    assert upper(by_turns, steps=1).epsilon == pytest.approx(2.0)


def test_without_the_leak_there_is_a_guarantee():
    def honest(s, here):
        here.net.mix(sent=here.grad(s.theta) + here.noise("own", Laplace(1.0)))

    assert upper(honest, steps=1).epsilon == pytest.approx(2.0)
    assert upper(honest, steps=3).epsilon == pytest.approx(6.0)  # fresh noise: uses add up


@pytest.mark.parametrize("masks", [1.0, 1e4, 1e6, 1e8])
def test_large_masks_do_not_hide_own_noise_from_the_audit(masks):
    """Secure aggregation with a little own noise: the sum is noisy, and there is a guarantee."""

    def secure_sum(s, here):
        shared = here.graph.net_out(*here.edge_noise("mask", Gaussian(masks)))
        here.net.mix(sent=here.grad(s.theta) + here.noise("own", Gaussian(0.5)) + shared)

    run = run_on_symbols(Rule(secure_sum), RING, 1)
    sums = Leakage(Knowledge(run, Adversary.eavesdropper()), 0).of("sum")
    assert sums.statuses == ["noisy"]
    assert sums.variances[0] == pytest.approx(5 * 0.25)
    bound = compute_ledger(run, threat("eavesdropper", clip=Clip(1.0))).upper
    assert math.isfinite(bound.epsilon)


def test_updates_of_several_local_steps_are_audited():
    run = run_on_symbols(tacit.FedAvg(lr=0.1, local_steps=3), RING, 2)
    found = Leakage(Knowledge(run, Adversary.server()), 0)
    assert found.of("gradient").indices("exact") == []
    assert found.of("update").statuses == ["exact", "exact"]
    assert "+1·g[0](1) +1·g[0](2) +1·g[0](3)" in compute_ledger(run, threat("server")).upper.why
