"""A bound for the whole run is that of its iterations, or there is none."""

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import pytest
import torch

import tacit
from support.bounds import RING, ledger_of, threat, whole_run_of
from support.written import Rule, Two, WithZeros
from tacit import Gaussian, Laplace
from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import ModelState
from tacit.auditing.audit import run_audit
from tacit.auditing.bounds.added_noise import noise_loss, total_bound
from tacit.auditing.bounds.whole_run import sample_uses
from tacit.auditing.options import AuditOptions
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.engines.setting import Setting
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.clipping import Clip
from tacit.tasks.parts import Parts

L2, L1 = Clip(0.5), Clip(0.5, "l1")


def whole(algorithm, steps, clip=L2, graph=RING, uses=None):
    return whole_run_of(algorithm, steps=steps, clip=clip, graph=graph, uses=uses)


def ledger(algorithm, steps, clip=L2):
    return ledger_of(algorithm, steps=steps, clip=clip).upper


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize(
    ("algorithm", "clip"),
    [
        (tacit.PDLMS(lr=0.1, noise=Gaussian(0.3)), L2),
        (tacit.PDLMS(lr=0.1, noise=Laplace(0.3)), L1),
        (tacit.PDLMS(lr=tacit.Exponential(0.1, 0.7), noise=Gaussian(0.3)), L2),
    ],
)
def test_short_runs_have_the_bound_of_the_ledger(algorithm, clip, steps):
    found, expected = whole(algorithm, steps, clip), ledger(algorithm, steps, clip)
    assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-9)


def test_ten_thousand_iterations_of_fifty_clients():
    graph = tacit.Topology.erdos_renyi(50, 0.1, seed=1).mixing("metropolis", lazy=True)
    found = whole(tacit.PDLMS(lr=0.1, noise=Gaussian(4.0)), 10_000, graph=graph)
    assert found.epsilon == pytest.approx(gaussian_epsilon(1e-5, 100 * 0.1 * 1.0 / 4.0), rel=1e-9)


@pytest.mark.parametrize(
    "algorithm",
    [
        tacit.PSGT(lr=0.1),  # its noise changes over time
        tacit.DSG(lr=0.1),
        tacit.LPPA(lr=0.1),
        tacit.LPPA(lr=0.1, fresh=True),
        tacit.DPDSGT(lr=0.1, noise=Gaussian(0.3), inject="start"),
        tacit.DPDSGT(lr=0.1, noise=Gaussian(0.3), inject="every", local_steps=2),
    ],
)
def test_a_state_with_secrets_that_noise_does_not_cover_has_none(algorithm):
    assert whole(algorithm, 20) is None


STEADY = {
    "own term without noise": (tacit.MDSG(lr=0.1, noise=Gaussian(0.3)), L2),
    "the same, Laplace": (tacit.MDSG(lr=0.1, noise=Laplace(0.3)), L1),
    "tracker": (tacit.DPDSGT(lr=0.1, noise=Gaussian(3.0), inject="every"), L2),
    "tracker, Laplace": (tacit.DPDSGT(lr=0.1, noise=Laplace(3.0), inject="every"), L1),
}


@pytest.mark.parametrize(("algorithm", "clip"), STEADY.values(), ids=STEADY)
@pytest.mark.parametrize("steps", [1, 2, 3, 6])
def test_a_state_with_secrets_is_bounded_if_all_iterations_are_alike(algorithm, clip, steps):
    """Never less than what the ledger finds for these iterations, nor more than for one more."""
    found = whole(algorithm, steps, clip).epsilon
    assert found >= ledger(algorithm, steps, clip).epsilon * (1 - 1e-9)
    assert found <= ledger(algorithm, steps + 1, clip).epsilon * (1 + 1e-6)


def test_ten_thousand_iterations_with_a_tracker_and_fifty_clients():
    graph = tacit.Topology.erdos_renyi(50, 0.1, seed=1).mixing("metropolis", lazy=True)
    algorithm = tacit.DPDSGT(lr=0.1, noise=Gaussian(200.0), inject="every")
    found = whole(algorithm, 10_000, graph=graph)
    # Every gradient is in two shifts, with opposite signs: it is added and taken back.
    assert found.epsilon == pytest.approx(gaussian_epsilon(1e-5, 2 * 100 / 200.0), rel=0.01)


@pytest.mark.parametrize(
    "graph", [RING, tacit.Topology.erdos_renyi(50, 0.1, seed=1).mixing("metropolis", lazy=True)]
)
def test_ten_thousand_iterations_without_a_tracker(graph):
    own = float(graph.weights[0, 0])
    found = whole(tacit.MDSG(lr=0.1, noise=Gaussian(40.0)), 10_000, graph=graph)
    # A gradient stays in the own term, by a factor a in every iteration: 1 + a + a² + …
    expected = gaussian_epsilon(1e-5, 100 * 0.1 / 40.0 / (1 - own))
    assert found.epsilon == pytest.approx(expected, rel=0.01)


def test_per_sample_all_later_gradients_count_if_the_victim_moves():
    """One use moves the own term, so that the victim takes every later gradient elsewhere."""
    algorithm = tacit.MDSG(lr=0.1, noise=Gaussian(0.3))
    assert whole(algorithm, 50, uses=1).epsilon == whole(algorithm, 50).epsilon


def test_per_sample_a_tracker_costs_its_uses():
    algorithm = tacit.DPDSGT(lr=0.1, noise=Gaussian(30.0), inject="every")
    few, all_of_them = whole(algorithm, 1000, uses=3), whole(algorithm, 1000)
    # Three gradients, each in two shifts.
    assert few.epsilon == pytest.approx(gaussian_epsilon(1e-5, 3 * 2**0.5 / 30.0), rel=1e-6)
    assert few.epsilon < all_of_them.epsilon


def perturbed(s, here, moved):
    """The victim's gradient is taken at a model that its own noise has moved."""
    noise = here.noise("z", Gaussian(1.0))
    gradient = here.grad(s.theta + moved * noise)
    (theta,) = here.net.mix(m=s.theta - 0.1 * gradient + noise)
    # The own term keeps what was not sent.
    return ModelState(theta - here.graph.own(noise))


def test_gradients_that_depend_on_hidden_noise_have_none():
    """Such a gradient can cancel the noise: no shift of noise makes the messages equal."""
    assert whole(Rule(partial(perturbed, moved=0.0)), 5) is not None
    assert whole(Rule(partial(perturbed, moved=1.0)), 5) is None


def test_without_clipping_there_is_none():
    assert whole(tacit.PDLMS(lr=0.1), 20, clip=None) is None


@dataclass(frozen=True)
class Written(Algorithm):
    """Diffusion under noise, with something else at the start or at some iteration."""

    at_start: bool = False
    careless_at: int | None = None
    name = "written"

    def start(self, here) -> ModelState:
        theta = here.theta0
        if self.at_start:
            here.net.mix(hello=here.grad(theta) + here.noise("hello", Gaussian(0.3)))
        return ModelState(theta)

    def step(self, s, here) -> ModelState:
        noise = here.noise("z", Gaussian(0.3))
        if self.careless_at is not None and here.t == self.careless_at:
            noise = 0.0 * noise
        (theta,) = here.net.mix(psi=s.theta - 0.1 * here.grad(s.theta) + noise)
        return ModelState(theta)


def test_what_the_start_sends_is_not_forgotten():
    assert math.isfinite(whole(Written(), 20).epsilon)
    assert whole(Written(at_start=True), 20) is None


def test_an_algorithm_that_reads_the_iteration_has_none():
    """What it does later was not compared with numbers."""
    assert whole(Written(careless_at=100), 50) is None


def diffused(s, here, noise):
    return ModelState(*here.net.mix(psi=s.theta - 0.1 * here.grad(s.theta) + noise))


def inline(s, here):
    """Noise that decays by a schedule which is no option."""
    return diffused(s, here, here.noise("z", Gaussian(here.rate(lambda t: 3.0 * 0.1**t))))


def test_schedules_are_followed_wherever_they_come_from():
    found, expected = whole(Rule(inline), 6), ledger(Rule(inline), 6)
    assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-9)


@dataclass(frozen=True)
class Counting(Algorithm):
    """Noise that decays with a counter in the state."""

    name = "counting"

    def start(self, here) -> Two:
        return Two(here.theta0, torch.zeros(len(here.theta0), 1, dtype=here.theta0.dtype))

    def step(self, s, here) -> Two:
        noise = 0.1**s.extra * here.noise("z", Gaussian(3.0))
        (theta,) = here.net.mix(psi=s.theta - 0.1 * here.grad(s.theta) + noise)
        return Two(theta, s.extra + 1)


@dataclass(frozen=True)
class Hub(WithZeros):
    """A hub publishes its gradient at a model made of private gradients, one iteration later."""

    name = "hub"

    @property
    def gradients_per_step(self):
        return 2

    def step(self, s, here) -> Two:
        sent = here.graph.lift(here.grad(s.theta, 0))
        got = here.graph.total_in(here.net.send("p", sent, private=True))
        here.net.mix(published=s.extra)
        return Two(s.theta, here.grad(s.theta - got, 1))


def test_counters_and_unseen_gradients_in_the_state_have_none():
    assert whole(Counting(), 8) is None
    assert whole(Hub(), 8) is None


# --- Per sample ---


def test_a_sample_counts_once_in_every_epoch():
    assert [sample_uses(10, gradients) for gradients in (1, 10, 11, 20, 21)] == [1, 1, 2, 2, 3]
    assert sample_uses(1, 7) == 7
    algorithm = tacit.PDLMS(lr=0.1, noise=Gaussian(4.0))
    found = whole(algorithm, 100, uses=sample_uses(10, 100))
    # Ten gradients, each with sensitivity 2 · 0.5 · 0.1, under noise of deviation 4.
    assert found.epsilon == pytest.approx(gaussian_epsilon(1e-5, 10**0.5 * 0.1 / 4.0), rel=1e-9)
    assert found.epsilon < whole(algorithm, 100).epsilon
    assert whole(algorithm, 100, uses=100).epsilon == whole(algorithm, 100).epsilon


@pytest.mark.parametrize(
    ("noise", "clip"), [(Gaussian(0.3), L2), (Laplace(0.3), L1)], ids=["gaussian", "laplace"]
)
@pytest.mark.parametrize("lr", [0.1, tacit.Exponential(0.1, 0.7)], ids=["constant", "falling"])
def test_no_choice_of_batches_costs_more_than_the_bound_per_sample(noise, clip, lr):
    """Every way to put a sample into one of three batches in each of two epochs."""
    algorithm = tacit.PDLMS(lr=lr, noise=noise)
    bound = whole(algorithm, 6, clip, uses=sample_uses(3, 6))
    run = run_on_symbols(algorithm, RING, 6)
    view = threat("curious(1)").view(run)
    laws = [run.laws[unknown] for unknown in view.noise]
    costs = []
    for batches in product(range(3), range(3, 6)):
        signal = view.signal[:, list(batches)]
        loss = noise_loss(clip, signal, view.added, laws)
        costs.append(total_bound([(loss, 1)], clip, 1e-5).epsilon)
    assert max(costs) <= bound.epsilon * (1 + 1e-9)
    # It is the dearest choice, or the dearest iteration twice if step sizes change.
    assert bound.epsilon <= (1 + 1e-6 if lr == 0.1 else 1.5) * max(costs)


def test_an_audit_states_the_bound_per_sample_of_the_whole_run():
    x, y = torch.randn(5 * 40, 4), torch.randint(0, 2, (200,))
    parts = [(x[i * 40 : (i + 1) * 40], y[i * 40 : (i + 1) * 40]) for i in range(5)]
    task = tacit.Task(torch.nn.Linear(4, 2), parts, batch_size=4).clipped(0.5, "l2")
    setting = Setting(tacit.PDLMS(lr=0.1, noise=Gaussian(2.0)), task, RING)
    audit = run_audit(setting, ["curious(1)"], AuditOptions(iterations=3, steps=100, attacks=False))
    (ledger,) = audit.results[0].ledgers
    # 100 gradients, ten batches in an epoch, and one for a gradient at the start.
    assert ledger.per_sample.epsilon == whole(setting.algorithm, 100, uses=11).epsilon
    assert any("sample is replaced" in line for line in audit.results[0].verdicts[0].bounded)
    plain = ledger.as_dict()["whole_run"]
    assert plain["per_sample"]["epsilon"] < plain["epsilon"]
    assert plain["per_sample"]["delta"] == ledger.per_sample.delta


def test_there_is_no_bound_per_sample_if_samples_repeat():
    x, y = torch.randn(40, 4), torch.randint(0, 2, (40,))
    indices = [[*range(8 * i, 8 * i + 8), *([0] * 4 if i == 0 else [])] for i in range(5)]
    parts = Parts.split((x, y), indices)
    assert parts.has_repeats
    assert not Parts.split((x, y), [range(8 * i, 8 * i + 8) for i in range(5)]).has_repeats
    held = [parts.of(i) for i in range(5)]
    task = tacit.Task(torch.nn.Linear(4, 2), held, batch_size=4).clipped(0.5, "l2")
    task = replace(task, parts=parts)
    setting = Setting(tacit.PDLMS(lr=0.1, noise=Gaussian(2.0)), task, RING)
    audit = run_audit(setting, ["curious(1)"], AuditOptions(iterations=3, steps=100, attacks=False))
    (ledger,) = audit.results[0].ledgers
    assert ledger.whole_run is not None
    assert ledger.per_sample is None


# --- Found by attacks on these bounds ---


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e9, 1e12, 1e-6, 1e-12])
def test_the_bound_does_not_depend_on_the_units_of_gradients(unit):
    algorithm = tacit.MDSG(lr=0.1 / unit, noise=Gaussian(1.0))
    found = whole(algorithm, 30, Clip(1.0 * unit))
    expected = whole(tacit.MDSG(lr=0.1, noise=Gaussian(1.0)), 30, Clip(1.0))
    assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-6)


def warm_up(s, here):
    """Reads the scale of its noise only after a warm-up."""
    warm = here.rate(lambda t: float(t < 3))
    scale = 1.0 if warm else here.rate(lambda t: 0.5**t)
    return diffused(s, here, here.noise("z", Gaussian(scale)))


def test_schedules_that_are_read_only_sometimes_have_none():
    assert whole(Rule(warm_up), 30) is None


@dataclass(frozen=True)
class Lazy(WithZeros):
    """Adds much less noise in its first iteration, which it knows by a field of zeros."""

    name = "lazy"

    def step(self, s, here) -> Two:
        first = not s.extra.any()
        noise = (0.01 if first else 1.0) * here.noise("z", Gaussian(1.0))
        (theta,) = here.net.mix(psi=s.theta - 0.1 * here.grad(s.theta) + noise)
        return Two(theta, theta)


def test_a_whole_run_that_costs_less_than_its_beginning_has_no_bound():
    task = tacit.quadratic(torch.eye(3).repeat(5, 1, 1), torch.randn(5, 3)).clipped(1.0)
    setting = Setting(Lazy(), task, RING)
    audit = run_audit(setting, ["curious(1)"], AuditOptions(iterations=2, steps=20, attacks=False))
    (ledger,) = audit.results[0].ledgers
    assert ledger.whole_run is None


def numbered(s, here):
    """Knows the iteration by the number of its batch."""
    noise = (1.0 if here.batch(0) <= 5 else 1e-3) * here.noise("z", Gaussian(1.0))
    return diffused(s, here, noise)


def test_an_algorithm_that_reads_the_number_of_its_batch_has_none():
    assert whole(Rule(numbered), 8) is None


@dataclass(frozen=True)
class Three:
    theta: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor


@dataclass(frozen=True)
class Growing(Algorithm):
    """Nearly equal terms cancel, and what is left of them grows in every iteration."""

    name = "growing"

    def start(self, here) -> Three:
        return Three(here.theta0, 0.0 * here.theta0, 0.0 * here.theta0)

    def step(self, s, here) -> Three:
        noise = here.noise("z", Gaussian(1.0))
        (_,) = here.net.mix(w=s.theta + noise)
        gradient = here.grad(here.theta0)
        return Three(1.5 * s.theta + s.first - s.second, (1 + 1e-10) * gradient, gradient)


def test_what_is_left_of_terms_that_cancel_may_grow():
    found = whole(Growing(), 60)
    assert found is None or found.epsilon >= ledger(Growing(), 60).epsilon * (1 - 1e-6)
    assert found is not None
