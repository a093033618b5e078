"""Client canaries: near the ledger's bound for what is right, above it for what is broken."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import optimize

import tacit
from tacit.algorithms.diffusion import ModelState, adapt
from tacit.auditing.adversary import Adversary
from tacit.auditing.canaries.client import ClientCanaries, ClientLikelihood, worst_signs
from tacit.auditing.canaries.copies import disjoint_copies, random_directions, run_copies
from tacit.auditing.canaries.trials import canary_trials
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.core.randomness import Philox
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.setting import Setting
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.clipping import Clip

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
DELTA, STEPS, LR = 1e-5, 6, 0.1
L2 = Clip(1.0)


def pd_lms(epsilon, kind=tacit.PDLMS):
    """PD-LMS with the noise that the ledger bounds by ε."""
    mu = optimize.brentq(lambda m: gaussian_epsilon(DELTA, m) - epsilon, 1e-3, 20)
    return kind(lr=LR, noise=tacit.Gaussian(LR * 2 * math.sqrt(STEPS) / mu))


def measured(algorithm, *, clip=L2, adversary="curious(1)", trials=20_000, **options):
    """Client canaries of client 0."""
    task = tacit.quadratic(torch.eye(7).repeat(5, 1, 1), torch.zeros(5, 7))
    setting = Setting(algorithm, replace(task, clip=clip), RING)
    return canary_trials(setting, adversary, iterations=STEPS, trials=trials, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "seed"), [(1.0, 0), (3.0, 1), (8.0, 2)])
def test_the_lower_bound_is_within_a_factor_of_the_upper_bound(epsilon, seed):
    found = measured(pd_lms(epsilon), trials=100_000, seed=seed)
    assert found.upper.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert epsilon / 2.5 <= found.lower.epsilon <= epsilon
    assert 0.85 * epsilon <= found.gaussian_epsilon <= epsilon
    assert not found.is_defect


def test_a_correct_implementation_is_no_defect():
    found = measured(pd_lms(3.0))
    assert 1.2 <= found.lower.epsilon <= found.gaussian_epsilon <= found.upper.epsilon
    assert "the ledger proves ε ≤ 3" in str(found)
    assert "20,000 trials" in str(found)
    assert found.as_dict()["unit"] == "client"


@dataclass(frozen=True)
class HalfNoise(tacit.PDLMS):
    """Draws what it declares, but the fast engine adds half of it."""

    name: ClassVar[str] = "half-noise"

    def step(self, s, here) -> ModelState:
        share = 0.5 if isinstance(here, LazyClients) else 1.0
        psi = adapt(s.theta, here, self.lr) + share * here.noise("z", self.noise)
        return ModelState(*here.net.mix(psi=psi))


@dataclass(frozen=True)
class ReusedNoise(tacit.PDLMS):
    """The fast engine draws the noise of the first iteration in all of them."""

    name: ClassVar[str] = "reused-noise"

    def step(self, s, here) -> ModelState:
        drawing = here.at(0) if isinstance(here, LazyClients) else here
        psi = adapt(s.theta, here, self.lr) + drawing.noise("z", self.noise)
        return ModelState(*here.net.mix(psi=psi))


@pytest.mark.parametrize("kind", [HalfNoise, ReusedNoise])
@pytest.mark.parametrize(
    ("epsilon", "trials"), [(3.0, 30_000), pytest.param(1.0, 100_000, marks=pytest.mark.slow)]
)
def test_broken_noise_is_caught(kind, epsilon, trials):
    found = measured(pd_lms(epsilon, kind), trials=trials)
    assert found.lower.epsilon > found.upper.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert found.is_defect
    assert "a defect of the analysis" in str(found)


def test_laplace_noise_and_an_l1_clip():
    algorithm = tacit.PDLMS(lr=LR, noise=tacit.Laplace(0.5))
    found = measured(algorithm, clip=Clip(1.0, "l1"))
    assert found.gaussian_epsilon is None
    assert 0.4 * found.upper.epsilon <= found.lower.epsilon <= found.upper.epsilon


@pytest.mark.parametrize("adversary", ["eavesdropper", "curious(1,4)"])
def test_trackers_and_shared_noise(adversary):
    """Other clients' coins and corrupt clients' noise are subtracted: else the sign is lost."""
    algorithm = tacit.DPDSGT(lr=LR, noise=tacit.Gaussian(20.0), inject="every")
    found = measured(algorithm, adversary=adversary)
    assert 0.2 * found.upper.epsilon <= found.lower.epsilon <= found.upper.epsilon


@pytest.mark.parametrize("who", ["eavesdropper+theta0", "curious(1)+eavesdropper+theta0"])
def test_scores_have_the_distribution_that_the_ledger_assumes(who):
    """Scores of Gaussian noise are N(±μ²/2, μ²), with the ledger's μ.

    From messages alone, and less the noise that a corrupt client knows.
    """
    algorithm, clip = pd_lms(3.0), Clip(1.0)
    run = run_on_symbols(algorithm, RING, STEPS)
    likelihood = ClientLikelihood.of(run, Adversary.parse(who), 0, clip)
    canaries, _ = likelihood.draw(4000, 3, 0, torch.float64, "cpu")
    noise = Philox(0, 3, torch.float64)
    observed = run_copies(algorithm, disjoint_copies(RING, 4000), STEPS, canaries, noise)
    centred = likelihood.scores(observed) * canaries.coins[:, 0].numpy()
    mu = LR * 2 * math.sqrt(STEPS) / algorithm.noise.scale
    assert centred.mean() == pytest.approx(mu**2 / 2, abs=5 * mu / math.sqrt(4000))
    assert centred.std() == pytest.approx(mu, rel=5 / math.sqrt(2 * 4000))


def test_every_copy_runs_as_the_graph_alone():
    """Copy r of a union sends what the coefficients of the run on one graph say."""
    clip, algorithm = Clip(2.0), tacit.FedAvg(lr=0.1)
    star = tacit.Topology.star(4).mixing()
    coins = torch.tensor([[1.0, -1, 1, 1], [-1, -1, 1, -1]])
    directions = random_directions(2, 3, clip, 0)
    canaries = ClientCanaries(coins, directions, 4, torch.float64, "cpu", {}, clip)
    seen = run_copies(
        algorithm, disjoint_copies(star, 2), 2, canaries, Philox(0, 3, torch.float64)
    ).seen
    run = run_on_symbols(algorithm, star, 2)
    for message, rows in zip(run.transcript.messages, seen, strict=True):
        for copy in range(2):
            values = torch.tensor(
                [
                    2.0 * coins[copy, u.client] if u.kind == "gradient" else 0.0
                    for u in run.unknowns[: message.rows.shape[1]]
                ],
                dtype=torch.float64,
            )
            torch.testing.assert_close(rows[copy], message.rows @ values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_canaries_are_as_long_as_the_clip_allows(norm):
    clip = Clip(3.0, norm)
    objective = ClientCanaries(
        torch.ones(5, 2), random_directions(5, 4, clip, 1), 2, torch.float32, "cpu", {7: -1.0}, clip
    )
    rows = objective.grad(torch.zeros(10, 4), 0)
    length = rows.double().norm(p=1 if norm == "l1" else 2, dim=1)
    assert (length <= 3.0).all()
    torch.testing.assert_close(length, torch.full_like(length, 3.0), rtol=1e-5, atol=0)
    torch.testing.assert_close(objective.grad(torch.zeros(10, 4), 7), -rows)


def test_signs_follow_the_information():
    assert worst_signs(np.eye(4)).tolist() == [1, -1, 1, -1]
    assert abs(worst_signs(np.ones((5, 5))).sum()) == 5
    rng = np.random.default_rng(0)
    for _ in range(10):
        root = rng.normal(size=(6, 6))
        fisher = root @ root.T
        every = np.array(np.meshgrid(*[(-1, 1)] * 6)).reshape(6, -1)
        best = np.einsum("ik,ij,jk->k", every, fisher, every).max()
        found = worst_signs(fisher)
        assert found @ fisher @ found > 0.7 * best


def test_time_is_limited_and_said_so():
    calls = []
    found = measured(
        pd_lms(3.0), trials=100_000, seconds=0.0,
        progress=lambda what, done, of: calls.append((done, of)),
    )  # fmt: skip
    assert found.stopped
    assert 1_000 <= found.trials < 100_000
    assert calls == [(found.trials, 100_000)]


def test_what_cannot_be_measured_is_said():
    algorithm = tacit.PDLMS(lr=LR, noise=tacit.Gaussian(0.0))
    with pytest.raises(Misuse, match="no guarantee"):
        measured(algorithm)
    algorithm = pd_lms(3.0)
    run = run_on_symbols(algorithm, RING, STEPS)
    unseen = replace(run, plain_messages=frozenset(range(len(run.transcript.messages))))
    reason = ClientLikelihood.of(unseen, Adversary.curious(1), 0, Clip(1.0))
    assert "no message depends" in reason
