import math

import pytest
import torch

from tacit.core.errors import Misuse
from tacit.privacy.matrix_step import DENSE_LIMIT, MatrixStep

STRUCTURES = ["diagonal", "upper", "sparse", "dense"]


def matrices(step, here, width):
    """M of every client [n, P, P], a column at a time."""
    clients = len(here.graph.ids)
    columns = [
        step.times(torch.eye(width, dtype=torch.float64)[k].repeat(clients, 1), here)
        for k in range(width)
    ]
    return torch.stack(columns, dim=2)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_mean_and_variance_are_those_asked_for(structure, hosted):
    width, clients = 4, 20_000
    step = MatrixStep(structure, mean=0.7, deviation=0.2, off_diagonal=0.3)
    M = matrices(step, hosted(clients, width), width)
    one = torch.eye(width, dtype=torch.float64)
    error = 5 * 0.3 / math.sqrt(clients)
    assert float((M.mean(0) - 0.7 * one).abs().max()) < error
    variance = M.var(0)
    assert float((variance.diagonal() - 0.04).abs().max()) < 5 * 0.04 * math.sqrt(2 / clients)
    off = variance[~one.bool()]
    expected = {"diagonal": 0.0, "dense": 0.09, "sparse": 0.09 / (width - 1)}
    if structure == "upper":
        above = torch.ones(width - 1, dtype=torch.float64).diag(1)
        assert float((variance - 0.09 * above)[~one.bool()].abs().max()) < 5 * 0.09 * math.sqrt(
            2 / clients
        )
    else:
        # a sparse entry is there or not, so its square varies more than a Gaussian's
        assert float((off - expected[structure]).abs().max()) < 5 * 0.09 * math.sqrt(9 / clients)


@pytest.mark.parametrize(
    ("structure", "count"), [("diagonal", 6), ("upper", 11), ("sparse", 12), ("dense", 36)]
)
def test_structures_have_as_many_entries_as_they_say(structure, count, hosted):
    M = matrices(MatrixStep(structure), hosted(50, 6), 6)
    assert (M != 0).sum(dim=(1, 2)).tolist() == [count] * 50
    if structure == "upper":
        assert torch.equal(M, M.triu().tril(1))
    if structure == "sparse":
        places = (M[:, ~torch.eye(6, dtype=torch.bool)] != 0).any(0)
        assert bool(places.all())  # every place off the diagonal is drawn


@pytest.mark.parametrize("structure", STRUCTURES)
def test_each_client_and_iteration_has_its_own_matrix(structure, hosted):
    here = hosted(3, 5)
    step = MatrixStep(structure)
    now, again, later = (matrices(step, at, 5) for at in (here.at(3), here.at(3), here.at(4)))
    assert torch.equal(now, again)
    assert not torch.allclose(now, later)
    assert not torch.allclose(now[0], now[1])


def test_a_single_parameter_has_no_off_diagonal(hosted):
    for structure in STRUCTURES:
        M = matrices(MatrixStep(structure, deviation=0.0), hosted(3, 1), 1)
        assert torch.equal(M, torch.ones(3, 1, 1, dtype=torch.float64))


def test_without_deviations_it_is_a_plain_step(hosted):
    rows = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    for structure in STRUCTURES:
        step = MatrixStep(structure, mean=0.5, deviation=0.0, off_diagonal=0.0)
        assert torch.equal(step.times(rows, hosted(3, 4)), rows / 2)


def test_the_product_is_declared_not_linear(hosted):
    """So that the audit does not take M∇J for the gradient."""
    from dataclasses import replace

    declared = []
    here = replace(hosted(3, 4), apply=lambda step, rows: declared.append(step.tag) or rows)
    MatrixStep("dense").times(torch.ones(3, 4), here)
    assert declared == ["M"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"deviation": -0.1}, "deviation"),
        ({"off_diagonal": -1}, "off_diagonal"),
        ({"deviation": math.nan}, "deviation"),
        ({"mean": 0}, "mean"),
        ({"mean": True}, "mean"),
        ({"structure": "full"}, "structure"),
    ],
)
def test_bad_options_are_refused(options, word):
    with pytest.raises(Misuse, match=word) as caught:
        MatrixStep(**options)
    assert caught.value.remedy


def test_dense_is_for_small_models_only():
    MatrixStep("dense").check_width(DENSE_LIMIT)
    for structure in ("diagonal", "upper", "sparse"):
        MatrixStep(structure).check_width(10**9)
    with pytest.raises(Misuse, match="1,000,000 entries") as caught:
        MatrixStep("dense").check_width(1000)
    assert "upper" in caught.value.remedy


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_log_density_is_that_of_products_as_they_are_drawn(structure, hosted):
    """Of normal coordinates: up to ½ log 2π, with the variance of many products."""
    width, clients = 4, 40_000
    step = MatrixStep(structure, mean=0.7, deviation=0.2, off_diagonal=0.3)
    row = torch.tensor([1.0, -2.0, 0.1, 3.0], dtype=torch.float64)
    products = step.times(row.repeat(clients, 1), hosted(clients, width))
    law = torch.distributions.Normal(0.7 * row, products.std(0))
    seen = products[:100]
    expected = law.log_prob(seen) + 0.5 * math.log(2 * math.pi)
    found = torch.stack([step.log_density(one, row, floor=1e-9) for one in seen])
    # The standard error of a variance; that of a sparse product is larger.
    torch.testing.assert_close(found, expected, rtol=0.06, atol=0.06)


def test_the_log_density_is_finite_and_smooth_where_a_row_is_zero():
    product = torch.tensor([0.5, 0.0, 0.0], dtype=torch.float64)
    row = torch.tensor([0.5, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    MatrixStep(deviation=1.0, off_diagonal=1.0).log_density(product, row).sum().backward()
    assert bool(row.grad.isfinite().all())
    zero = torch.zeros(3, dtype=torch.float64)
    assert bool(MatrixStep().log_density(zero, zero).isfinite().all())


def test_a_log_density_is_of_one_row(hosted):
    here, rows = hosted(2, 3), torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(Misuse, match="more than one argument"):
        here.nonlinear("two", torch.mul, rows, rows, log_density=MatrixStep().log_density)
