"""Facts of the dual-protection paper (DSG-RMS, EDSG-RMS) and of its baselines."""

import math

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings, strategies as st

import tacit
from tacit.algorithms import ALGORITHMS
from tacit.algorithms.dual_protection import diffusion_bound, exact_diffusion_bound
from tacit.core.errors import Caution, Misuse
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.privacy.matrix_step import MatrixStep
from tacit.privacy.protection import PROTECTIONS, NormVector
from tacit.record.transcript import Transcript
from tacit.tasks.filtering import adaptive_filtering

CLIENTS, WIDTH = 5, 5
MATRIX = MatrixStep("upper", deviation=0.01, off_diagonal=0.01)  # the paper's variance of 10⁻⁴

pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")


def decibels(value):
    return 10 * math.log10(value)


@pytest.fixture(scope="module")
def graph():
    return tacit.Topology.erdos_renyi(CLIENTS, 0.6, seed=3).mixing("laplacian", lazy=True)


@pytest.fixture(scope="module")
def heterogeneous():
    """Least squares with exact gradients; every client has a different optimum."""
    return adaptive_filtering(CLIENTS, WIDTH, seed=1, exact=True)


def steady_state(name, task, graph, lr=0.2, steps=500, **options):
    """The mean-square deviation over the last iterations, in dB."""
    algorithm = ALGORITHMS[name](lr=lr, **options)
    run = tacit.run(task, algorithm, graph, steps=steps, record_every=steps // 50)
    return decibels(float(np.mean(run.history.column("msd")[-10:])))


def test_exact_diffusion_ends_far_below_diffusion_on_heterogeneous_data(heterogeneous, graph):
    dsg = steady_state("dsg", heterogeneous, graph)
    dsg_rms = steady_state("dsg-rms", heterogeneous, graph, matrix=MATRIX)
    edsg = steady_state("edsg", heterogeneous, graph)
    edsg_rms = steady_state("edsg-rms", heterogeneous, graph, matrix=MATRIX)
    assert abs(dsg_rms - dsg) < 2
    assert edsg_rms < dsg_rms - 20
    # The noise of M does not vanish: the clients' own gradients at w* are not zero.
    assert edsg < edsg_rms - 40


def test_tau_does_not_change_the_steady_state(heterogeneous, graph):
    for name in ("dsg-rms", "edsg-rms"):
        without, with_shift = (
            steady_state(
                name, heterogeneous, graph, lr=0.1, matrix=MATRIX, protection=NormVector(tau)
            )
            for tau in (0.0, 0.3)
        )
        assert abs(with_shift - without) < 1


def test_the_variance_of_the_matrix_changes_the_steady_state(heterogeneous, graph):
    """By 20 dB for a tenfold deviation, since the noise enters linearly (Theorem 2, eq. 21)."""
    small, large = (
        steady_state(
            "edsg-rms", heterogeneous, graph, matrix=MatrixStep("diagonal", deviation=deviation)
        )
        for deviation in (0.01, 0.1)
    )
    assert 16 < large - small < 24


def test_gradient_tracking_with_matrix_steps_ends_at_the_optimum(heterogeneous, graph):
    assert steady_state("dsgt-rms", heterogeneous, graph, matrix=MATRIX) < -120


@pytest.mark.parametrize(
    ("name", "structure"),
    [("norm", "diagonal"), ("erf", "upper"), ("tanh", "sparse"), ("norm", "dense")],
)
def test_every_matrix_and_protection_works_with_exact_diffusion(
    name, structure, heterogeneous, graph
):
    matrix = MatrixStep(structure, deviation=0.01, off_diagonal=0.01)
    options = {"matrix": matrix, "protection": PROTECTIONS[name](0.05)}
    assert steady_state("edsg-rms", heterogeneous, graph, steps=250, **options) < -45


def transmitted(algorithm, task, graph, tag, steps, window):
    """An eavesdropper's mean of each client's last messages, [K, L]."""
    transcript = Transcript()
    simulation = Simulation(Setting(algorithm, task, graph), transcript=transcript)
    simulation.start()
    for _ in range(steps):
        simulation.step()
    return torch.stack([message.rows for message in transcript.of(tag)[-window:]]).mean(0)


def test_a_sliding_mean_reveals_the_model_of_pd_lms_and_not_that_of_dsg_rms(graph):
    """Streaming least squares with one optimum for all clients; noise variances of the paper."""
    task = adaptive_filtering(CLIENTS, WIDTH, seed=1, homogeneous=True)
    target = task.optimum_at(0)
    noisy = ALGORITHMS["pd-lms"](lr=0.02, noise=tacit.Gaussian(math.sqrt(1e-5)))
    shifted = ALGORITHMS["dsg-rms"](lr=0.02, matrix=MATRIX, protection=NormVector(0.3))
    errors = {}
    for algorithm in (noisy, shifted):
        mean = transmitted(algorithm, task, graph, "psi", steps=900, window=200)
        errors[algorithm.name] = (mean - target).norm(dim=1) / target.norm()
    assert float(errors["pd-lms"].max()) < 0.1
    # The shift is τ = 0.3 of the model's norm.
    assert float(errors["dsg-rms"].min()) > 0.2


def test_shifts_of_edsg_rms_are_random_first_and_then_from_the_previous_model(heterogeneous, graph):
    algorithm = ALGORITHMS["edsg-rms"](lr=0.05, protection=NormVector(0.3))
    simulation = Simulation(Setting(algorithm, heterogeneous, graph, seed=2))
    simulation.start()
    states = [simulation.state]
    for _ in range(3):
        simulation.step()
        states.append(simulation.state)
    # The first shift is no multiple of 1, unlike all later ones.
    assert float(states[0].shift.std(dim=1).min()) > 0
    for n in (1, 2, 3):
        w = states[n - 1].theta
        expected = 0.3 / math.sqrt(WIDTH) * w.norm(dim=1, keepdim=True).expand_as(w)
        torch.testing.assert_close(states[n].shift, expected)


SOME_GRAPHS = st.builds(
    lambda n, p, seed: tacit.Topology.erdos_renyi(n, p, seed=seed).mixing("metropolis", lazy=True),
    n=st.integers(3, 8),
    p=st.floats(0.5, 1.0),
    seed=st.integers(0, 50),
)


@settings(max_examples=30)
@given(graph=SOME_GRAPHS)
def test_bounds_on_tau_are_those_of_the_theorems(graph):
    eigenvalues = np.linalg.eigvalsh(graph.W.numpy())[:-1]  # without the first, which is 1
    D = np.diag(eigenvalues)
    norm, distance = np.linalg.norm(D, 2), np.linalg.norm(D - np.eye(len(D)), 2)
    smallest = eigenvalues.min()
    assert diffusion_bound(graph) == pytest.approx((1 - norm) / (math.sqrt(8) * distance))
    exact = (1 - norm) * math.sqrt(smallest) / math.sqrt(32 * (1 - smallest))
    assert exact_diffusion_bound(graph) == pytest.approx(exact)


@settings(max_examples=10, phases=[Phase.explicit, Phase.generate])
@given(graph=SOME_GRAPHS, share=st.floats(0.1, 0.95), seed=st.integers(0, 20))
def test_within_the_bound_differences_between_clients_die_out(graph, share, seed):
    """Without gradients, protected diffusion is consensus: it contracts by Theorem 1."""
    tau = share * diffusion_bound(graph)
    n = graph.clients
    start = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    task = tacit.quadratic(
        torch.zeros(n, 3, 3, dtype=torch.float64), torch.zeros(n, 3).double(), theta0=start
    )
    run = tacit.run(
        task, ALGORITHMS["dsg-rms"](lr=1.0, protection=NormVector(tau)), graph, steps=60
    )
    # Shifts cancel in the mean.
    torch.testing.assert_close(run.theta.mean(0), start.mean(0), rtol=0, atol=1e-12)
    before, after = ((rows - rows.mean(0)).norm() for rows in (start, run.theta))
    assert float(after) < 0.2 * float(before)


def test_a_tau_beyond_its_bound_is_cautioned_about(heterogeneous, graph):
    for name in ("dsg-rms", "edsg-rms"):
        strong = ALGORITHMS[name](lr=0.01, protection=NormVector(0.9))
        with pytest.warns(Caution, match=r"strength 0\.9 is beyond the bound 0\.\d+ of Theorem"):
            tacit.run(heterogeneous, strong, graph, steps=1)
        weak = Simulation(
            Setting(ALGORITHMS[name](lr=0.01, protection=NormVector(0.01)), heterogeneous, graph)
        )
        assert weak.cautions == []
        assert "within the bound" in weak.remarks[0]


def test_exact_diffusion_refuses_a_matrix_that_is_not_positive_definite_and_offers_the_lazy_one(
    heterogeneous,
):
    eager = tacit.Topology.ring(CLIENTS).mixing("metropolis")
    assert eager.smallest_eigenvalue < 0
    for name in ("edsg", "edsg-rms"):
        with pytest.raises(Misuse, match="positive definite") as refusal:
            tacit.run(heterogeneous, ALGORITHMS[name](lr=0.1), eager, steps=1)
        assert "(I + W)/2" in refusal.value.remedy
        tacit.run(heterogeneous, ALGORITHMS[name](lr=0.1), eager.lazy(), steps=1)


def test_psgt_tracks_the_gradient_plus_all_noise_so_far(heterogeneous, graph):
    algorithm = ALGORITHMS["psgt"](lr=0.05)
    simulation = Simulation(Setting(algorithm, heterogeneous, graph, seed=4))
    simulation.start()
    noise = torch.zeros(WIDTH, dtype=torch.float64)
    for t in range(20):
        law = tacit.Gaussian(algorithm.scale(t))
        assert law.variance == pytest.approx(math.sqrt(0.1 * 0.8**t))
        noise += simulation.here.at(t).noise("zeta", law).sum(0)
        simulation.step()
        tracked = simulation.state.gamma.sum(0) - simulation.state.grad.sum(0)
        torch.testing.assert_close(tracked, noise, rtol=0, atol=1e-10)


def test_shifts_cancel_in_the_sum_of_trackers(heterogeneous, graph):
    """Σγ = Σ∇L at every iteration of dsgt-rms, however strong the protection."""
    simulation = Simulation(
        Setting(tacit.DSGTRMS(lr=0.05, protection=NormVector(0.9)), heterogeneous, graph, seed=4)
    )
    simulation.start()
    for _ in range(20):
        simulation.step()
        s = simulation.state
        torch.testing.assert_close(s.gamma.sum(0), s.grad.sum(0), rtol=0, atol=1e-11)


def test_mdsg_keeps_its_own_term_exact(heterogeneous, graph):
    """With the same noise, one step of mdsg and pd-lms differs by the client's own noise term."""
    models = {}
    for name in ("mdsg", "pd-lms"):
        simulation = Simulation(
            Setting(ALGORITHMS[name](lr=0.05, noise=tacit.Gaussian(0.5)), heterogeneous, graph)
        )
        simulation.start()
        simulation.step()
        models[name] = simulation.state.theta
    z = simulation.here.at(0).noise("z", tacit.Gaussian(0.5))
    own = graph.W.diagonal()[:, None] * z
    torch.testing.assert_close(models["pd-lms"] - models["mdsg"], own, rtol=0, atol=1e-14)
