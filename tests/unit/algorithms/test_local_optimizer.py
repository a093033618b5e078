"""Weight decay, momentum and Adam of clients: those of PyTorch, and nothing where they are off."""

import math
from dataclasses import replace

import pytest
import torch

import tacit
from support.suited import COPIES, made, suited
from tacit.algorithms import ALGORITHMS
from tacit.algorithms.algorithm import options_of, tensors_of
from tacit.algorithms.local_optimizer import STABILITY, BiasCorrection
from tacit.config.algorithms import make_algorithm
from tacit.core.errors import Misuse

N, P, STEPS = 4, 3, 12
RING = tacit.Topology.ring(N).mixing("metropolis", lazy=True)
RATE = tacit.Warmup(3, then=tacit.Exponential(0.2, 0.9))
SGD = {
    "decay": {"weight_decay": 0.3},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.8, "nesterov": True},
    "all": {"momentum": 0.7, "nesterov": True, "weight_decay": 0.2},
}
ADAM = {
    "adam": {"optimizer": "adam"},
    "adam, betas": {"optimizer": "adam", "betas": (0.5, 0.8)},
    "adam, decay": {"optimizer": "adam", "weight_decay": 0.3},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.3},
}
# Steps along gradients: with equal clients they are steps of one machine.
STEPPING = ["dsg", "d-psgd", "edsg", "dsgt", "dp-dsgt", "lppa", "psgt", "fedavg"]
QUIET = {
    "lppa": {"noise": tacit.Laplace(0.0)},
    "dp-dsgt": {"noise": tacit.Laplace(0.0)},
    "psgt": {"scale": 0.0},
}


def equal_clients(count):
    draw = torch.Generator().manual_seed(1)
    root = torch.randn(P, P, generator=draw, dtype=torch.float64)
    A, b = root @ root.T / P + torch.eye(P), torch.randn(P, generator=draw, dtype=torch.float64)
    start = 2 + torch.randn(P, generator=draw, dtype=torch.float64)
    return tacit.quadratic(
        A.repeat(count, 1, 1), b.repeat(count, 1), theta0=start.repeat(count, 1)
    ), (A, b, start)


def by_pytorch(problem, optimizer):
    """The models of one machine after each step."""
    A, b, start = problem
    theta = start.clone().requires_grad_()
    optimizer = optimizer([theta])
    models = [start]
    for t in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE(t)
            if "eps" in group:  # ours is added before the bias is corrected
                group["eps"] = STABILITY / math.sqrt(1 - group["betas"][1] ** (t + 1))
        optimizer.zero_grad()
        (theta @ A @ theta / 2 - b @ theta).backward()
        optimizer.step()
        models.append(theta.detach().clone())
    return torch.stack(models)


def trajectory(algorithm, task, graph):
    simulation = tacit.Simulation(tacit.Setting(algorithm, task, graph))
    simulation.start()
    models = [simulation.state.theta.clone()]
    for _ in range(STEPS):
        simulation.step()
        models.append(simulation.state.theta.clone())
    return torch.stack(models)


@pytest.mark.parametrize("options", SGD.values(), ids=SGD)
@pytest.mark.parametrize("name", STEPPING)
@pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")
def test_sgd_is_that_of_pytorch(name, options):
    task, problem = equal_clients(N)
    algorithm = ALGORITHMS[name](lr=RATE, **QUIET.get(name, {}), **options)
    expected = by_pytorch(problem, lambda theta: torch.optim.SGD(theta, 1.0, **options))
    found = trajectory(algorithm, task, RING)
    torch.testing.assert_close(found, expected[:, None].expand_as(found), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("options", ADAM.values(), ids=ADAM)
@pytest.mark.parametrize("name", ["dsg", "d-psgd", "fedavg"])
def test_adam_is_that_of_pytorch(name, options):
    task, problem = equal_clients(N)
    given = {key: value for key, value in options.items() if key != "optimizer"}
    kind = torch.optim.AdamW if options["optimizer"] == "adamw" else torch.optim.Adam
    decay = {"weight_decay": options.get("weight_decay", 0.0)}
    expected = by_pytorch(problem, lambda theta: kind(theta, 1.0, **given | decay))
    found = trajectory(ALGORITHMS[name](lr=RATE, **options), task, RING)
    torch.testing.assert_close(found, expected[:, None].expand_as(found), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", [SGD["decay"], *ADAM.values()], ids=["decay", *ADAM])
def test_private_totals_without_noise_are_optimized_as_by_pytorch(options):
    """Of all data, so that sums are exact but for their integers."""
    task, (A, b, start) = equal_clients(N)
    plain = tacit.PrivateSGD(lr=RATE, **options)
    nothing = tacit.Privacy(epsilon=math.inf, clip=math.inf)
    algorithm, task = suited(plain, task, RING, promise=nothing, batch_size=COPIES)
    given = {key: value for key, value in options.items() if key != "optimizer"}
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(
        options.get("optimizer"), torch.optim.SGD
    )
    decay = {"weight_decay": options.get("weight_decay", 0.0)}
    expected = by_pytorch((A, b, start), lambda theta: kind(theta, 1.0, **given | decay))
    found = trajectory(algorithm, task, RING)
    torch.testing.assert_close(found, expected[:, None].expand_as(found), rtol=1e-6, atol=1e-6)


def test_momentum_of_dsg_is_that_of_d_psgd():
    task, _ = equal_clients(N)
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
    one, other = (trajectory(kind(**options), task, RING) for kind in (tacit.DSG, tacit.DPSGD))
    assert torch.equal(one, other)


@pytest.mark.parametrize("name", [*STEPPING, "decor"])
@pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")
def test_options_that_are_off_cost_no_memory(name):
    """Momentum is one more tensor of the state; without it there is none."""
    task, _ = equal_clients(N)
    plain = made(ALGORITHMS[name])
    kept = []
    for momentum in (0.0, 0.9):
        algorithm, one = suited(replace(plain, momentum=momentum), task, RING)
        simulation = tacit.Simulation(tacit.Setting(algorithm, one, RING))
        simulation.start()
        simulation.step()
        kept.append(set(tensors_of(simulation.state)))
    assert "momentum" not in kept[0]
    assert kept[1] == kept[0] | {"momentum"}


def test_every_algorithm_has_weight_decay_or_says_why_not():
    for name, kind in ALGORITHMS.items():
        known = {*options_of(kind), *kind.unsupported}
        assert {"weight_decay", "momentum", "optimizer"} <= known, name
        assert not set(options_of(kind)) & set(kind.unsupported), name


@pytest.mark.parametrize(
    ("name", "option", "reason"),
    [
        ("lppa", "optimizer", "masks would not cancel"),
        ("dsgt", "optimizer", "Adam is not linear in trackers"),
        ("edsg", "optimizer", "the limit would not be the optimum"),
        ("pd-lms", "momentum", "noise made for one gradient"),
        ("pdmm", "momentum", "new local problem"),
        ("dsg-rms", "momentum", "secret matrix"),
    ],
)
def test_what_theory_does_not_support_is_refused_with_the_reason(name, option, reason):
    value = "adam" if option == "optimizer" else 0.9
    given = {} if name == "pdmm" else {"lr": 0.1}
    with pytest.raises(Misuse, match=reason) as refusal:
        make_algorithm(name, {**given, option: value}, round_length=10, steps=100)
    assert f"algorithm.{option}" in str(refusal.value)
    assert refusal.value.remedy


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: tacit.DSGT(0.1, momentum=1.0), "momentum"),
        (lambda: tacit.LPPA(0.1, weight_decay=-1e-4), "weight_decay"),
        (lambda: tacit.EDSG(0.1, nesterov=True), "nesterov needs momentum"),
        (lambda: tacit.DSG(0.1, momentum=0.9, nesterov="yes"), "nesterov"),
        (lambda: tacit.DSG(0.1, optimizer="adagrad"), "optimizer"),
        (lambda: tacit.DPSGD(0.1, optimizer="adam", betas=(0.9, 1.0)), "betas"),
        (lambda: tacit.DPSGD(0.1, optimizer="adam", betas=0.9), "betas"),
        (lambda: tacit.FedAvg(0.1, optimizer="adam", momentum=0.9), "is for SGD"),
        (lambda: tacit.PDMM(weight_decay=math.nan), "weight_decay"),
        (lambda: tacit.PDLMS(0.1, weight_decay=-1), "weight_decay"),
        (lambda: tacit.DSGRMS(0.1, weight_decay="0.1"), "weight_decay"),
        (lambda: tacit.DeFLVP(0.1, weight_decay=None), "weight_decay"),
        (lambda: tacit.PrivateSGD(0.1, weight_decay=-1), "weight_decay"),
    ],
)
def test_impossible_options(make, word):
    with pytest.raises(Misuse, match=word) as refusal:
        make()
    assert refusal.value.remedy


def test_the_first_gradient_follows_from_the_first_message_of_adam():
    """What its remark in audits says: signs exactly, and sizes through ϵ."""
    draw = torch.Generator().manual_seed(2)
    grad = 1e-3 * torch.randn(N, 50, generator=draw, dtype=torch.float64)
    A = torch.eye(50, dtype=torch.float64).repeat(N, 1, 1)
    task = tacit.quadratic(A, -grad, theta0=torch.zeros(N, 50, dtype=torch.float64))
    algorithm, rate = tacit.DSG(lr=0.01, optimizer="adam"), 0.01
    run = tacit.run(task, algorithm, RING, steps=1, transcript=tacit.Keep())
    (message,) = [m for m in run.transcript.messages if m.tag == "psi"]
    # d = (1 − β₁)g/(√(1 − β₂)|g| + ϵ), times the correction.
    d = -message.rows[:N] / (rate * BiasCorrection(algorithm.betas)(0))
    one, two = (1 - beta for beta in algorithm.betas)
    found = d.sign() * STABILITY * d.abs() / (one - math.sqrt(two) * d.abs())
    assert torch.equal(found.sign(), grad.sign())
    torch.testing.assert_close(found, grad, rtol=1e-6, atol=0)


def test_audits_of_local_adam_say_that_it_protects_nothing():
    adam, sgd = tacit.DSG(0.1, optimizer="adam"), tacit.DSG(0.1)
    assert "protects nothing" in adam.audit_remarks(RING)[0]
    assert not sgd.audit_remarks(RING)
    # Moments of the mean follow from what everybody knows.
    assert not tacit.FedAvg(0.1, optimizer="adam").audit_remarks(RING)
