"""The ledger gives a number only with a proof, and then the number derived by hand."""

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import tacit
from support.accounting import masked_mu, sum_delta
from support.bounds import DELTA, RING, threat
from support.written import FromFirstModels, Rule
from tacit.algorithms.diffusion import ModelState
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import apply_combination, evidence
from tacit.auditing.bounds.added_noise import NO_GUARANTEE
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.scoring.lower_bound import lower_bound
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.core.noise import Gaussian, Laplace, Noise
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.laplace import sum_log_density
from tacit.privacy.accounting.randomized_response import response_epsilon
from tacit.privacy.clipping import Clip
from tacit.record.transcript import Keep
from tacit.record.unknowns import Unknown

LAPLACE, GAUSSIAN = Laplace(0.5), Gaussian(0.4)
LISTENERS = ("eavesdropper", "curious(1)", "curious(2)", "curious(1,4)")
L1, L2 = Clip(1.5, "l1"), Clip(1.5, "l2")


@dataclass(frozen=True)
class Sum(FromFirstModels):
    """Clients send gradients with own noise and pairwise masks, and descend along the mixture."""

    name: ClassVar[str] = "sum"
    own: tuple[Noise, ...] = ()
    mask: Noise = GAUSSIAN
    masked: bool = False
    lr: float = 0.0

    def step(self, s, here):
        sent = here.grad(s.theta)
        for number, law in enumerate(self.own):
            sent = sent + here.noise(f"own{number}", law)
        if self.masked:
            sent = sent + here.graph.net_out(*here.edge_noise("mask", self.mask))
        (mixed,) = here.net.mix(sent=sent)
        return ModelState(s.theta - self.lr * mixed)


def signs(s, here):
    """Also sends a function of the gradient without noise and without a budget."""
    grad = here.grad(s.theta)
    here.net.mix(sent=grad + here.noise("own", LAPLACE) + here.nonlinear("sign", torch.sign, grad))


def hot(s, here):
    """Moves the point of the gradient by its own noise, so the noise is not only added."""
    noise = here.noise("own", LAPLACE)
    here.net.mix(sent=noise + here.grad(s.theta + noise))


def early(s, here):
    """Moves the point of a gradient by noise that is sent only in a later message."""
    later = here.noise("later", GAUSSIAN)
    here.net.mix(sent=here.grad(s.theta + later) + here.noise("own", GAUSSIAN))
    here.net.mix(afterwards=later + 0.0 * s.theta)


@cache
def symbols(algorithm, steps, graph=RING):
    return run_on_symbols(algorithm, graph, steps)


def ledger_of(
    algorithm, adversary="eavesdropper", steps=3, *, clip=L1, victim=0, graph=RING, parameters=7
):
    run = symbols(algorithm, steps, graph)
    return compute_ledger(run, threat(adversary, victim, clip, parameters))


def epsilon_of(*arguments, **options):
    return ledger_of(*arguments, **options).upper.epsilon


def check_no_guarantee(ledger, *reasons):
    assert math.isinf(ledger.upper.epsilon)
    assert str(ledger.upper) == NO_GUARANTEE == "no differential-privacy guarantee"
    plain = ledger.as_dict()
    assert (plain["epsilon"], plain["delta"], plain["guarantee"]) == (None, 0, NO_GUARANTEE)
    assert "ε =" not in ledger.upper.why
    for reason in reasons:
        assert reason in ledger.upper.why


# --- No guarantee ---


@pytest.mark.parametrize("adversary", LISTENERS)
@pytest.mark.parametrize(
    "algorithm",
    [kind(lr=0.1) for kind in (tacit.DSGT, tacit.DSG, tacit.FedAvg, tacit.MDSG, tacit.DSGRMS)]
    + [tacit.DPDSGT(lr=0.1, noise=law, inject="every") for law in (LAPLACE, GAUSSIAN)]
    + [tacit.LPPA(lr=0.1, noise=LAPLACE)],
    ids=lambda algorithm: algorithm.name,
)
def test_without_clipping_there_is_no_guarantee(algorithm, adversary):
    ledger = ledger_of(algorithm, adversary, clip=None)
    assert ledger.single_message is None
    check_no_guarantee(ledger)


def test_missing_clipping_is_named_as_the_reason():
    assert "not clipped" in ledger_of(tacit.DPDSGT(lr=0.1, inject="every"), clip=None).upper.why
    assert "not clipped" in ledger_of(tacit.DPDSGT(lr=0.1), steps=1, clip=None).upper.why
    finite = ledger_of(tacit.DPDSGT(lr=0.1), steps=1).upper
    assert finite.delta == 0
    assert str(finite) == f"ε = {finite.epsilon:.4g}"


@pytest.mark.parametrize("clip", [L1, L2], ids=["l1", "l2"])
@pytest.mark.parametrize(
    ("kind", "combination"),
    [(tacit.DSGT, "+1·g[0](0)")]
    + [(kind, "+1·g[0](1)") for kind in (tacit.DSG, tacit.FedAvg, tacit.DeFLVP)],
)
def test_gradients_sent_without_noise(kind, combination, clip):
    for adversary in LISTENERS:
        ledger = ledger_of(kind(lr=0.1), adversary, clip=clip)
        check_no_guarantee(ledger)
        assert "sent without noise" in ledger.upper.why
        assert ledger.upper.why.endswith(f": {combination}")
        assert ledger.single_message is None or math.isinf(ledger.single_message.epsilon)


@pytest.mark.parametrize("masks", ["derived", "sent"])
def test_masks_that_cancel_are_named(masks):
    """Kept masks cancel in a difference, fresh masks only in the sum over honest clients."""
    kept = tacit.LPPA(lr=0.1, noise=LAPLACE, masks=masks)
    fresh = tacit.LPPA(lr=0.1, noise=LAPLACE, masks=masks, fresh=True)
    everyone = " ".join(f"+1·g[{i}](0)" for i in range(5))
    for algorithm, adversary, steps, combination in [
        (kept, "eavesdropper", 3, "+1·g[0](1) -1·g[0](0)"),
        (kept, "curious(1)", 3, "+1·g[0](1) -1·g[0](0)"),
        (kept, "eavesdropper", 1, everyone),
        (fresh, "eavesdropper", 3, everyone),
        (fresh, "curious(1)", 3, everyone.replace("+1·g[1](0) ", "")),
        (kept, "curious(1,4)", 3, "+1·g[0](0)"),
        (fresh, "curious(1,4)", 3, "+1·g[0](0)"),
    ]:
        ledger = ledger_of(algorithm, adversary, steps)
        check_no_guarantee(ledger)
        assert ledger.upper.why.startswith("noise cancels in a combination of messages")
        assert ledger.upper.why.endswith(f": {combination}")
        assert adversary in ledger.scope
        assert f"{steps} iterations" in ledger.scope


def test_the_named_combination_computes_what_it_claims():
    """Applied to a recorded run it yields the sum of the honest clients' gradients."""
    algorithm = tacit.LPPA(lr=0.1, noise=LAPLACE, fresh=True)
    bound = ledger_of(algorithm, "curious(1)", steps=2).upper
    task = tacit.quadratic(torch.eye(3).repeat(5, 1, 1), torch.arange(15.0).view(5, 3))
    keep = Keep(insides=(0, 1, 2, 3, 4), theta0=True)
    sent = tacit.run(task, algorithm, RING, steps=2, transcript=keep).transcript
    stronger = replace(Adversary.parse("curious(1)+eavesdropper"), knows_theta0=True)
    total = apply_combination(bound.combination, Knowledge(symbols(algorithm, 2), stronger), sent)
    truth = sum(sent.held[Unknown("gradient", 0, client)].double() for client in (0, 2, 3, 4))
    torch.testing.assert_close(total, truth, rtol=1e-4, atol=1e-4)


def test_noise_added_once_cancels_after_the_second_message():
    algorithm = tacit.DPDSGT(lr=0.1, noise=LAPLACE)
    assert epsilon_of(algorithm, steps=1) == pytest.approx(L1.sensitivity / LAPLACE.scale)
    check_no_guarantee(ledger_of(algorithm, steps=2))
    assert "+1·g[0](1) -1·g[0](0)" in ledger_of(algorithm, steps=2).upper.why


def test_noise_that_is_removed_again_is_determined_by_messages_and_data():
    """MDSG removes its own noise: the next gradient's point depends on that of the first message.

    Given that message and the victim's data the noise is known, so there is a bound.
    """
    for steps in (1, 2, 3):
        assert epsilon_of(tacit.MDSG(lr=0.1), steps=steps, clip=L2) < math.inf


def test_a_point_with_noise_in_no_earlier_message_gives_no_bound():
    """The noise of the next message is in the point already: a function of it is sent."""
    check_no_guarantee(ledger_of(Rule(early), steps=2), "not seen")


@pytest.mark.parametrize("algorithm", [tacit.DSGRMS(lr=0.1), tacit.DSGTRMS(lr=0.1), Rule(signs)])
def test_non_linear_steps_without_a_budget_give_no_bound(algorithm):
    for clip in (None, L1, L2):
        check_no_guarantee(ledger_of(algorithm, clip=clip), "declares no budget")


def test_a_single_message_with_such_a_step_has_no_bound():
    assert ledger_of(Rule(signs), steps=1).single_message is None


def test_noise_in_the_point_of_a_gradient_gives_no_bound():
    """The gradient is then any function of the noise: it may cancel or reveal it."""
    ledger = ledger_of(Rule(hot), steps=1)
    check_no_guarantee(ledger, "not seen")
    assert ledger.single_message is None


def test_laplace_noise_needs_the_l1_norm():
    algorithm = tacit.DPDSGT(lr=0.1, noise=LAPLACE, inject="every")
    check_no_guarantee(ledger_of(algorithm, clip=L2), "L1")


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta):
    run = symbols(tacit.DSGT(lr=0.1), 1)
    with pytest.raises(Misuse, match="delta is"):
        compute_ledger(run, replace(threat("eavesdropper"), delta=delta))


# --- A single message ---


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("adversary", "unknown"),
    [("eavesdropper", 4), ("curious(1)", 2), ("curious(4)", 2), ("curious(1)+eavesdropper", 2),
     ("curious(2)+eavesdropper", 4), ("curious(1,4)", 0), ("curious(1,2,4)", 0)],
)  # fmt: skip
def test_one_message_of_lppa_on_a_ring(adversary, unknown, fresh):
    ledger = ledger_of(tacit.LPPA(lr=0.1, noise=LAPLACE, fresh=fresh), adversary)
    check_no_guarantee(ledger)
    single = ledger.single_message
    assert (single.tag, single.tick, single.delta) == ("gamma", 1, DELTA)
    assert single.unknown_terms == unknown
    if not unknown:
        assert single.epsilon == single.epsilon_at_delta == math.inf
        assert str(single).endswith("no guarantee")
        assert (single.as_dict()["epsilon"], single.as_dict()["epsilon_at_delta"]) == (None, None)
        return
    ratio = L1.sensitivity / LAPLACE.scale
    assert single.epsilon == pytest.approx(ratio)
    assert single.epsilon_at_delta < single.epsilon
    assert sum_delta(single.epsilon_at_delta, ratio, unknown) <= DELTA
    assert sum_delta(0.99 * single.epsilon_at_delta, ratio, unknown) > DELTA
    assert f"ε = {single.epsilon:.4g}, or {single.epsilon_at_delta:.4g} at δ = 1e-05" in str(single)


def test_no_single_message_without_a_message_from_the_victim():
    assert ledger_of(tacit.LPPA(lr=0.1), "curious(2)").single_message is None


def test_a_single_message_needs_laplace_noise_and_the_l1_norm():
    assert ledger_of(tacit.LPPA(lr=0.1, noise=LAPLACE), clip=L2).single_message is None
    assert ledger_of(tacit.LPPA(lr=0.1, noise=GAUSSIAN), clip=L1).single_message is None
    two_laws = Sum(own=(Laplace(1.0), Laplace(2.0)))
    assert ledger_of(two_laws).single_message is None


@settings(max_examples=25)
@given(st.data())
def test_unknown_terms_are_the_masks_with_honest_ends(data):
    clients = data.draw(st.integers(4, 9))
    if data.draw(st.booleans()):
        degree = data.draw(st.sampled_from([d for d in range(3, clients) if d * clients % 2 == 0]))
        graph = tacit.Topology.random_regular(clients, degree, seed=data.draw(st.integers(0, 99)))
    else:
        graph = tacit.Topology.random_directed(clients, 0.4, seed=data.draw(st.integers(0, 99)))
    graph = graph.mixing("sinkhorn" if graph.directed else "metropolis", lazy=True)
    victim = data.draw(st.integers(0, clients - 1))
    others = st.integers(0, clients - 1).filter(lambda i: i != victim)
    corrupt = data.draw(st.sets(others, max_size=4))
    adversary = Adversary(corrupt=frozenset(corrupt), listens=True)
    edges = graph.edges.tolist()
    masks = [edge for edge in edges if victim in edge and corrupt.isdisjoint(edge)]
    algorithm = tacit.LPPA(lr=0.1, noise=LAPLACE)
    ledger = ledger_of(algorithm, adversary, steps=1, victim=victim, graph=graph)
    check_no_guarantee(ledger)
    assert ledger.single_message.unknown_terms == len(masks)
    expected = L1.sensitivity / LAPLACE.scale if masks else math.inf
    assert ledger.single_message.epsilon == pytest.approx(expected)


# --- Laplace noise ---


@pytest.mark.parametrize("law", [Laplace, Gaussian])
@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-9])
def test_very_small_noise_is_neither_ignored_nor_overrated(law, scale):
    """Alone, or with masks that cannot help, ε is never too small."""
    least = epsilon_of(Sum(own=(law(1.0),)), steps=1)
    for masked in (False, True):
        algorithm = Sum(own=(law(scale),), mask=law(1.0), masked=masked)
        assert epsilon_of(algorithm, steps=1) > 0.999 * least / scale


def test_epsilon_is_zero_only_without_messages():
    silent = ledger_of(tacit.DSGT(lr=0.1), steps=0).upper
    assert (silent.epsilon, silent.why) == (0, "no message depends on the victim's data")
    assert epsilon_of(Sum(own=(Laplace(1e9),)), steps=1) == pytest.approx(3e-9)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_tracking_under_laplace_noise(steps):
    """Messages are g⁰ + ζ⁰, g¹ − g⁰ + ζ¹, …: two noise terms on each gradient but the last."""
    algorithm = tacit.DPDSGT(lr=0.1, noise=LAPLACE, inject="every")
    expected = pytest.approx((2 * steps - 1) * L1.sensitivity / LAPLACE.scale, rel=1e-6)
    # All of them are assumed to read every message.
    for adversary in ("eavesdropper", "curious(1)", "curious(2)"):
        assert epsilon_of(algorithm, adversary, steps) == expected
    star = tacit.Topology.star(4).mixing("metropolis", lazy=True)
    assert epsilon_of(algorithm, steps=steps, graph=star) == expected


@settings(max_examples=15)
@given(
    steps=st.integers(1, 4),
    scale=st.floats(0.05, 5),
    bound=st.floats(0.05, 5),
    factor=st.floats(1.01, 3),
    law=st.sampled_from([Laplace, Gaussian]),
)
def test_more_iterations_longer_gradients_and_less_noise_cost_more(
    steps, scale, bound, factor, law
):
    def epsilon(steps, scale, bound):
        algorithm = tacit.DPDSGT(lr=0.1, noise=law(scale), inject="every")
        return epsilon_of(algorithm, steps=steps, clip=Clip(bound, "l1"))

    base = epsilon(steps, scale, bound)
    assert 0 < base < math.inf
    assert epsilon(steps + 1, scale, bound) > base
    assert epsilon(steps, scale / factor, bound) > base
    assert epsilon(steps, scale, bound * factor) > base
    assert epsilon(steps, scale * factor, bound * factor) == pytest.approx(base, rel=1e-6)


def test_the_widest_of_several_noises_counts():
    """Shifting one of them hides a difference, so the cheapest one counts."""
    for scales in [(1.0, 2.0), (2.0, 1.0), (0.1, 0.2, 0.3)]:
        algorithm = Sum(own=tuple(Laplace(scale) for scale in scales))
        assert epsilon_of(algorithm, steps=1) == pytest.approx(L1.sensitivity / max(scales))


@pytest.mark.parametrize("steps", [1, 3])
def test_laplace_masks_do_not_help_if_all_other_data_are_known(steps):
    """The sum of all messages has own noise only, so a shift must end in some own noise."""
    algorithm = Sum(own=(Laplace(0.5),), mask=Laplace(50.0), masked=True, lr=0.1)
    expected = pytest.approx(steps * L1.sensitivity / 0.5, rel=1e-6)
    assert epsilon_of(algorithm, steps=steps) == expected


# --- Gaussian noise ---


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_tracking_under_gaussian_noise(steps):
    """μ² = Δ²/σ² (1 + 4(T − 1)): differences of 2Δ after the first, if gradients alternate."""
    algorithm = tacit.DPDSGT(lr=0.1, noise=GAUSSIAN, inject="every")
    mu_one = 2 * L2.bound / GAUSSIAN.scale
    expected = gaussian_epsilon(DELTA, mu_one * math.sqrt(4 * steps - 3))
    # A vector within the L1 bound is within the L2 bound too.
    for clip in (L2, L1):
        bound = ledger_of(algorithm, steps=steps, clip=clip).upper
        assert (bound.epsilon, bound.delta) == (pytest.approx(expected, rel=1e-6), DELTA)
    assert f"μ = {mu_one * math.sqrt(4 * steps - 3):.4g}" in bound.why


GRAPHS = {
    "ring": (tacit.Topology.ring(5), ()),
    "ring and a corrupt one": (tacit.Topology.ring(6), (2,)),
    "ring in two pieces": (tacit.Topology.ring(7), (1, 4)),
    "alone": (tacit.Topology.ring(5), (1, 4)),
    "star": (tacit.Topology.star(6), (3,)),
    "complete": (tacit.Topology.complete(5), (1, 2)),
    "grid": (tacit.Topology.grid(2, 3), (5,)),
    "regular": (tacit.Topology.random_regular(8, 3, seed=1), (1, 6)),
    "irregular": (tacit.Topology.erdos_renyi(7, 0.5, seed=4), ()),
}


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_pairwise_gaussian_masks_with_own_noise_are_correlated_noise(name, steps):
    """The ledger finds the closed form μᵢ = 2C √[(σ²I + σ_cor²L)⁻¹]ᵢᵢ."""
    topology, corrupt = GRAPHS[name]
    graph = topology.mixing("metropolis", lazy=True)
    sigma, sigma_mask = 0.7, 1.3
    algorithm = Sum(own=(Gaussian(sigma),), mask=Gaussian(sigma_mask), masked=True, lr=0.1)
    honest = [i for i in range(graph.clients) if i not in corrupt]
    inside = [edge for edge in graph.edges.tolist() if set(edge) <= set(honest)]
    # A pair shares a mask in each direction: together √2 σ_mask.
    pair = math.sqrt(2) * sigma_mask
    each = masked_mu(L2.bound, np.array(inside).reshape(-1, 2), graph.clients, sigma, pair)
    adversary = Adversary(corrupt=frozenset(corrupt), listens=True)
    for victim in honest:
        found = epsilon_of(algorithm, adversary, steps, clip=L2, victim=victim, graph=graph)
        expected = gaussian_epsilon(DELTA, each[victim] * math.sqrt(steps))
        assert found == pytest.approx(expected, rel=1e-6)
    assert each[honest].min() < 2 * L2.bound / sigma * 0.99 or name == "alone"  # masks do help here


def test_masks_alone_give_no_guarantee():
    check_no_guarantee(ledger_of(Sum(mask=GAUSSIAN, masked=True), steps=1, clip=L2))


def test_the_better_bound_of_two_laws_counts():
    """Each law covers the gradient; the other is treated as known."""
    wide, narrow = Laplace(10.0), Laplace(1e-3)
    pure = ledger_of(Sum(own=(wide, Gaussian(0.5))), steps=1).upper
    assert (pure.epsilon, pure.delta) == (pytest.approx(L1.sensitivity / 10.0), 0)
    with_delta = ledger_of(Sum(own=(narrow, Gaussian(0.5))), steps=1).upper
    expected = gaussian_epsilon(DELTA, L1.sensitivity / 0.5)
    assert (with_delta.epsilon, with_delta.delta) == (pytest.approx(expected), DELTA)


# --- Randomized response ---


@pytest.mark.parametrize("clip", [None, L1], ids=["unclipped", "l1"])  # budgets need no clipping
@pytest.mark.parametrize(
    ("steps", "epsilon", "parameters"), [(1, 0.01, 300), (3, 0.5, 40), (4, 2.0, 9)]
)
def test_private_variates_spend_their_budget_in_every_coordinate(steps, epsilon, parameters, clip):
    algorithm = tacit.DeFLVP(lr=0.1, epsilon=epsilon, private_variates=True)
    for adversary in LISTENERS:
        ledger = ledger_of(algorithm, adversary, steps, clip=clip, parameters=parameters)
        assert ledger.single_message is None
        bound = ledger.upper
        pure = steps * parameters * epsilon
        assert f"pure ε = {pure:.4g}" in bound.why
        assert bound.delta == DELTA
        assert bound.epsilon < pure
        assert bound.epsilon == pytest.approx(response_epsilon(DELTA, epsilon, steps * parameters))


def test_published_variates_undo_it_from_the_second_message_on():
    algorithm = tacit.DeFLVP(lr=0.1, epsilon=0.5)
    assert epsilon_of(algorithm, steps=1) <= 0.5 * 7  # the first variate is zero
    check_no_guarantee(ledger_of(algorithm, steps=2))


# --- Against attacks ---


def first_message(gradient, algorithm, parameters, seed):
    """The first message of client 0 if every coordinate of its gradient is `gradient`."""
    ones = torch.ones(parameters, dtype=torch.float64)
    parts = [value * ones for value in (gradient, 0.3, -0.2, 0.1, 0.0)]
    task = tacit.Task(0 * ones, parts, loss=lambda theta, c: theta @ c)
    run = tacit.run(task, algorithm, RING, steps=1, seed=seed, transcript=Keep(insides=(1,)))
    found = Leakage(Knowledge(symbols(algorithm, 1), Adversary.curious(1)), 0)
    held = evidence(found, "gradient", 0, run.transcript)
    torch.testing.assert_close(held.points[0], 0 * ones)
    return held.values.numpy()


@pytest.mark.parametrize(
    ("algorithm", "unknown"),
    [(tacit.DPDSGT(lr=0.1, noise=Laplace(1.0)), 1), (tacit.LPPA(lr=0.1, noise=Laplace(1.0)), 2)],
    ids=["own noise", "two unknown masks"],
)
def test_the_best_attack_on_one_message_stays_within_the_bound(algorithm, unknown):
    """Neighbouring gradients are ±C; the likelihood ratio is the best test between them.

    The attack shows more than half of the claimed ε, so the bound is nearly tight.
    """
    bound, trials = 0.5, 40_000
    ledger = ledger_of(algorithm, "curious(1)", 1, clip=Clip(bound, "l1"))
    claimed = ledger.single_message
    assert (claimed.epsilon, claimed.unknown_terms) == (pytest.approx(1.0), unknown)

    def ratio(values):
        ratios = sum_log_density(unknown, values - bound) - sum_log_density(unknown, values + bound)
        # The last bits of ±C + z reveal the sign: the ledger assumes a continuous law.
        return ratios.round(9)

    ones = ratio(first_message(bound, algorithm, trials, seed=1))
    others = ratio(first_message(-bound, algorithm, trials, seed=2))
    shown = lower_bound(ones, others, DELTA)
    assert 0.6 < shown.epsilon <= claimed.epsilon


def test_plain_values():
    plain = ledger_of(tacit.LPPA(lr=0.1, noise=LAPLACE), "curious(1)").as_dict()
    assert (plain["victim"], plain["adversary"]) == (0, "curious(1)")
    assert (plain["epsilon"], plain["delta"], plain["guarantee"]) == (None, 0, NO_GUARANTEE)
    assert plain["one_message_alone"]["message"] == "gamma(1)"
    assert plain["one_message_alone"]["unknown_terms"] == 2
    assert plain["one_message_alone"]["epsilon"] == pytest.approx(6.0)
    json.dumps(plain, allow_nan=False)
