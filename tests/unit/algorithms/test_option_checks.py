"""Algorithms check their options when they are created."""

import pytest
import torch

import tacit
from tacit.core.errors import Caution, Misuse


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: tacit.DSGRMS(0.1, matrix="upper"), "matrix"),
        (lambda: tacit.EDSGRMS(0.1, matrix=tacit.MatrixStep), "matrix"),
        (lambda: tacit.DSGTRMS(0.1, matrix=None), "matrix"),
        (lambda: tacit.DSGRMS(0.1, protection=0.1), "protection"),
        (lambda: tacit.EDSGRMS(0.1, protection=tacit.NormVector), "protection"),
        (lambda: tacit.PDMM(solver="quadratic"), "solver"),
        (lambda: tacit.ADMM(solver=tacit.ExactSolver), "solver"),
        (lambda: tacit.PDMM(noise=tacit.Gaussian), "noise"),
        (lambda: tacit.PDMM(rho=-1), "rho"),
        (lambda: tacit.ADMM(rho=0), "rho"),
        (lambda: tacit.ADMM(masks="kept"), "masks"),
        (lambda: tacit.PDMM(noise=tacit.Gaussian(-0.1)), "-0.1"),
        (lambda: tacit.DSG(tacit.Exponential), "lr"),
        (lambda: tacit.PSGT(0.1, scale=-1.0), "-1.0"),
        (lambda: tacit.MDSG(0.1, noise=0.1), "noise"),
        (lambda: tacit.DeFLVP(0.1, variance_reduction="false"), "variance_reduction"),
        (lambda: tacit.DeFLVP(0.1, codec="qsgd"), "codec"),
        (lambda: tacit.DeFLVP(0.1, codec=tacit.Identity), "codec"),
        (lambda: tacit.DeFLVP(0.1, alpha=0), "alpha"),
        (lambda: tacit.DPSGD(0.1, order="both"), "order"),
        (lambda: tacit.FedAvg(0.1, local_steps=True), "local_steps"),
        (lambda: tacit.InnerSolver(steps=0), "steps"),
        (lambda: tacit.GradientSolver(mu=0), "mu"),
    ],
)
def test_invalid_options_raise(make, word):
    with pytest.raises(Misuse, match=word) as refusal:
        make()
    assert refusal.value.remedy


def test_noise_of_scale_zero_is_allowed():
    for algorithm in (
        tacit.PSGT(0.1, scale=0),
        tacit.PDMM(noise=tacit.Gaussian(0)),
        tacit.MDSG(0.1, tacit.Gaussian(0)),
    ):
        task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
        run = tacit.run(task, algorithm, tacit.Topology.ring(3).mixing("metropolis"), steps=2)
        assert bool(torch.isfinite(run.theta).all())


def test_gradient_steps_that_are_too_long_for_a_dense_graph_are_cautioned_about():
    """The caution is right: they diverge there, and the quadratic solver does not."""
    graph = tacit.Topology.complete(120).mixing("metropolis")
    task = tacit.quadratic(torch.eye(2).double().repeat(120, 1, 1), torch.ones(120, 2).double())
    with pytest.warns(Caution, match=r"too long.*mu < 0\.042"):
        run = tacit.run(task, tacit.PDMM(solver=tacit.GradientSolver(0.05)), graph, steps=60)
    assert not float((run.theta - task.optimum).abs().max()) < 1e6
    run = tacit.run(task, tacit.PDMM(solver=tacit.QuadraticSolver(0.05)), graph, steps=200)
    assert float((run.theta - task.optimum).abs().max()) < 2
