"""Local parameters: equations by plain loops, what travels, and what a guarantee may say."""

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.auditing.attacks.reconstruction_attacks import why_not_attackable
from tacit.core.randomness import derive_key
from tacit.core.schedules import Exponential

CLIENTS, STEPS = 4, 6
GRAPH = tacit.Topology.ring(CLIENTS).mixing("metropolis")


def net():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def parts():
    draw = torch.Generator().manual_seed(2)
    return [
        (
            torch.randn(9 + k, 3, generator=draw, dtype=torch.float64),
            torch.randint(2, (9 + k,), generator=draw),
        )
        for k in range(CLIENTS)
    ]


def task(**options):
    return tacit.Task(net(), parts(), local=["2"], **options)


def gradient(body, head, x, y):
    """∂/∂(W₁, b₁, W₂, b₂) of the mean cross-entropy, by hand."""
    w1, b1 = body[:12].reshape(4, 3), body[12:]
    w2, b2 = head[:8].reshape(2, 4), head[8:]
    h = np.tanh(x @ w1.T + b1)
    z = h @ w2.T + b2
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    dz = (p - np.eye(2)[y]) / len(x)
    dh = dz @ w2 * (1 - h**2)
    shared = np.concatenate([(dh.T @ x).ravel(), dh.sum(0)])
    return shared, np.concatenate([(dz.T @ h).ravel(), dz.sum(0)])


def loops(algorithm, lr, local_lr=None, clip=None):
    """θ and φ of all clients after STEPS iterations of full gradients."""
    start = np.concatenate([p.detach().numpy().ravel() for p in net().parameters()])
    theta, phi = np.tile(start[:16], (CLIENTS, 1)), np.tile(start[16:], (CLIENTS, 1))
    w = np.asarray(GRAPH.weights.todense() if hasattr(GRAPH.weights, "todense") else GRAPH.weights)
    data = [(x.numpy(), y.numpy()) for x, y in parts()]

    def grad(t):
        nonlocal phi
        both = [gradient(theta[i], phi[i], *data[i]) for i in range(CLIENTS)]
        phi = phi - (local_lr or lr(t)) * np.stack([h for _, h in both])
        g = np.stack([g for g, _ in both])
        if clip is not None:
            g *= np.minimum(1, clip / np.linalg.norm(g, axis=1, keepdims=True))
        return g

    if algorithm == "d-psgd":
        for t in range(STEPS):
            theta = w @ (theta - lr(t) * grad(t))
        return theta, phi
    old = grad(0)
    gamma = old
    for t in range(STEPS):
        theta, mixed = w @ theta - lr(t) * gamma, w @ gamma
        new = grad(t)
        gamma, old = mixed + new - old, new
    return theta, phi


@pytest.mark.parametrize("gradients", ["looped", "stacked"])
@pytest.mark.parametrize("name", ["d-psgd", "dsgt"])
def test_the_trajectory_is_that_of_plain_loops(name, gradients):
    lr = Exponential(0.4, decay=0.8, steps=2)
    algorithm = tacit.ALGORITHMS[name](lr=lr)
    run = tacit.run(task(), algorithm, GRAPH, steps=STEPS, gradients=gradients)
    theta, phi = loops(name, lr)
    np.testing.assert_allclose(run.theta.numpy(), theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.local.numpy(), phi, rtol=0, atol=1e-12)


def test_their_own_step_size_and_clipping_of_what_travels():
    found = task(local_lr=0.05).clipped(0.1)
    run = tacit.run(found, tacit.DPSGD(lr=0.3), GRAPH, steps=STEPS, gradients="looped")
    theta, phi = loops("d-psgd", lambda t: 0.3, local_lr=0.05, clip=0.1)
    np.testing.assert_allclose(run.theta.numpy(), theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.local.numpy(), phi, rtol=0, atol=1e-12)


def test_only_shared_numbers_travel():
    run = tacit.run(task(), tacit.LPPA(lr=0.1), GRAPH, steps=3, transcript=True)
    widths = {message.rows.shape[1] for message in run.transcript.messages}
    assert widths == {16}
    whole = tacit.Task(net(), parts())
    assert whole.parameters == 16 + 10
    other = tacit.run(whole, tacit.LPPA(lr=0.1), GRAPH, steps=3)
    assert run.history[-1].bytes_sent == other.history[-1].bytes_sent * 16 // 26


def test_a_gradient_computed_again_starts_from_the_same_local_parameters():
    setting = tacit.Setting(tacit.DPSGD(lr=0.3), task(), GRAPH, gradients="looped")
    simulation = tacit.Simulation(setting)
    objective = simulation.here.objective
    theta = objective.theta0()
    first = objective.grad(theta, 1)
    after = objective.rows.value
    assert torch.equal(objective.grad(theta, 1), first)
    assert torch.equal(objective.rows.value, after)
    assert not torch.equal(objective.grad(theta, 2), first)


def sampled():
    return tacit.Task(net(), parts(), batch_size=3, local=["2"])


def test_a_sample_moves_the_sum_of_clipped_gradients_by_more_than_the_bound():
    """Why ε for one sample is refused: the sensitivity of a sum is not C, but grows with samples.

    One sample changes φ, and through φ the clipped gradients of the client's other samples.
    """
    draw = torch.Generator().manual_seed(derive_key(1, "test") >> 1)
    x = torch.randn(40, 3, generator=draw, dtype=torch.float64).numpy()
    y = np.zeros(40, dtype=int)
    body = torch.randn(16, generator=draw, dtype=torch.float64).numpy()
    head, far = np.zeros(10), np.array([[50.0, -20.0, 30.0]])
    bound = 0.01

    def clipped_sum(phi):
        rows = np.stack([gradient(body, phi, x[k : k + 1], y[k : k + 1])[0] for k in range(40)])
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows * np.minimum(1, bound / np.maximum(norms, 1e-30))).sum(0)

    # The local step with and without one more sample of the other class.
    def step(inputs, labels):
        return head - 5.0 * gradient(body, head, inputs, labels)[1]

    without = step(x[:4], y[:4])
    more = step(np.concatenate([x[:4], far]), np.append(y[:4], 1))
    assert np.linalg.norm(clipped_sum(without) - clipped_sum(more)) > 3 * bound


def test_a_guarantee_for_one_sample_is_refused_and_one_for_a_client_is_kept():
    algorithm = tacit.PrivateSGD(lr=0.1)
    promise = tacit.Privacy(epsilon=8, delta=1e-3, clip=0.5)
    with pytest.raises(tacit.Misuse, match='unit = "client"'):
        tacit.run(sampled(), algorithm, GRAPH, steps=2, privacy=promise)
    promise = tacit.Privacy(epsilon=20, delta=1e-2, unit="client", clip=0.5)
    run = tacit.run(sampled(), algorithm, GRAPH, steps=3, privacy=promise)
    assert run.setting.algorithm.budget.spent(3) <= 20
    assert torch.equal(run.theta, run.theta[:1].expand_as(run.theta))
    assert not torch.equal(run.local[0], run.local[1])


def test_what_a_client_sends_stays_within_its_bound_whatever_its_local_parameters_are():
    """What the guarantee for clients rests on."""
    setting = tacit.Setting(tacit.DPSGD(lr=0.3), task().clipped(0.01), GRAPH, gradients="looped")
    objective = tacit.Simulation(setting).here.objective
    theta = objective.theta0()
    for scale in (0.0, 1.0, 1e3, 1e6):
        objective.rows.restore(scale * torch.randn(CLIENTS, 10, dtype=torch.float64))
        norms = torch.linalg.norm(objective.grad(theta, 1), dim=1)
        assert bool((norms <= 0.01 * (1 + 1e-9)).all())


def test_the_audit_is_about_shared_parameters_and_says_so():
    algorithm = tacit.PDLMS(lr=0.1, noise=tacit.Gaussian(2.0))
    whole = tacit.Task(net(), parts(), batch_size=3)
    found, other = (
        tacit.audit(
            tacit.run(one.clipped(0.5), algorithm, GRAPH, steps=8),
            adversary="curious(1)",
            iterations=3,
            attacks=False,
        )
        for one in (sampled(), whole)
    )
    assert any("never sent" in remark for remark in found.remarks)
    [ours], [theirs] = found.results[0].ledgers, other.results[0].ledgers
    # A bound for all data of a client does not depend on what stays with the client.
    assert ours.upper.epsilon == pytest.approx(theirs.upper.epsilon)
    assert ours.whole_run.epsilon == pytest.approx(theirs.whole_run.epsilon)
    # One for a sample does.
    assert theirs.per_sample is not None
    assert ours.per_sample is None
    assert "local parameters" in why_not_attackable(sampled())
    run = tacit.run(sampled(), tacit.DSGT(lr=0.1), GRAPH, steps=3)
    with pytest.raises(tacit.Misuse, match="not measured for models with local"):
        tacit.audit(run, "malicious(1):echo", iterations=2, attacks=False)


def test_exact_solvers_and_missing_step_sizes_are_refused():
    pdmm = tacit.PDMM(rho=0.5, solver=tacit.QuadraticSolver(mu=0.1))
    with pytest.raises(tacit.Misuse, match="local_lr"):
        tacit.run(task(), pdmm, GRAPH, steps=1)
    run = tacit.run(task(local_lr=0.1), pdmm, GRAPH, steps=2)
    assert run.local.shape == (CLIENTS, 10)
    exact = tacit.PDMM(rho=0.5, solver=tacit.ExactSolver())
    with pytest.raises(tacit.Misuse, match="exact solver"):
        tacit.run(task(local_lr=0.1), exact, GRAPH, steps=1)
