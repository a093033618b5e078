"""Robust mixing: what liars can do, up to the breakdown point and beyond it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.engines.robust_mixing import centred_clipping, trimmed_mean

WIDTH = 3
ANYTHING = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=64),
    st.sampled_from([1e300, -1e300, 1e30, -1e30, 0.0]),
)


@st.composite
def neighbourhoods(draw, least):
    """(b, own row, honest rows, rows of b liars in random places); `least` neighbours for b."""
    liars = draw(st.integers(0, 3))
    degree = draw(st.integers(max(1, least(liars)), max(1, least(liars)) + 3))
    numbers = st.lists(st.floats(-10, 10), min_size=WIDTH, max_size=WIDTH)
    own = draw(numbers)
    honest = [draw(numbers) for _ in range(degree - liars)]
    lies = [draw(st.lists(ANYTHING, min_size=WIDTH, max_size=WIDTH)) for _ in range(liars)]
    order = draw(st.permutations(range(degree)))
    rows = [[*honest, *lies][k] for k in order]

    def tensor(values):
        return torch.tensor([values], dtype=torch.float64)

    return liars, tensor(own), [tensor(row) for row in honest], [tensor(row) for row in rows]


@given(neighbourhoods(lambda liars: 2 * liars))
@settings(deadline=None)
def test_a_trimmed_mean_lies_between_honest_values(case):
    liars, own, honest, rows = case
    present = [torch.ones(1, 1, dtype=torch.bool)] * len(rows)
    result = trimmed_mean(own, rows, present, liars)
    values = torch.cat([own, *honest])
    assert (result >= values.amin(0) - 1e-9).all()
    assert (result <= values.amax(0) + 1e-9).all()


@given(neighbourhoods(lambda liars: liars + 1))
@settings(deadline=None)
def test_centred_clipping_stays_in_the_ball_of_the_honest_rows(case):
    liars, own, honest, rows = case
    weights = [torch.full((1, 1), 1 / (len(rows) + 1), dtype=torch.float64)] * len(rows)
    result = centred_clipping(own, rows, weights, liars)
    farthest = max(float((row - own).norm()) for row in honest)
    assert float((result - own).norm()) <= farthest * len(rows) / (len(rows) + 1) + 1e-9


@pytest.mark.parametrize("liars", [0, 1, 2])
def test_one_liar_more_breaks_both(liars):
    own, lie = torch.zeros(1, WIDTH), torch.full((1, WIDTH), 1e6)
    rows = [lie] * (liars + 1) + [torch.ones(1, WIDTH)] * (liars + 1)
    weight, there = torch.full((1, 1), 0.1), torch.ones(1, 1, dtype=torch.bool)
    assert float(trimmed_mean(own, rows, [there] * len(rows), liars).min()) > 1e4
    assert float(centred_clipping(own, rows, [weight] * len(rows), liars).min()) > 1e4
    rows[0] = torch.ones(1, WIDTH)
    assert float(trimmed_mean(own, rows, [there] * len(rows), liars).max()) <= 1
    assert float(centred_clipping(own, rows, [weight] * len(rows), liars).max()) <= 1


def test_without_liars_clipping_is_plain_mixing():
    graph = tacit.Topology.erdos_renyi(7, 0.5, seed=1).mixing("metropolis")
    start = torch.randn(7, WIDTH, dtype=torch.float64)
    task = tacit.quadratic(torch.eye(WIDTH).double().repeat(7, 1, 1), start, theta0=start)
    plain = tacit.run(task, tacit.DSG(lr=0.1), graph, steps=5)
    robust = tacit.run(task, tacit.Robust(tacit.DSG(lr=0.1), liars=0), graph, steps=5)
    torch.testing.assert_close(robust.theta, plain.theta)
    assert robust.history[-1].bytes_sent == plain.history[-1].bytes_sent


@pytest.mark.parametrize("rule", ["centred-clipping", "trimmed-mean"])
@pytest.mark.parametrize(("degree", "liars"), [(4, 2), (4, 1), (6, 3)])
def test_neighbours_that_echo_a_row_decide_the_result(rule, degree, liars):
    """The price in privacy that the audit tells: they know the result without other rows."""
    own, draw = torch.randn(1, 5), torch.Generator().manual_seed(1)
    rows = [own] * (degree - liars)
    rows += [torch.randn(1, 5, generator=draw) for _ in range(liars)]
    if rule == "trimmed-mean":
        result = trimmed_mean(own, rows, [torch.ones(1, 1, dtype=torch.bool)] * degree, liars)
    else:
        result = centred_clipping(own, rows, [torch.full((1, 1), 0.2)] * degree, liars)
    torch.testing.assert_close(result, own)


EXACT = {
    "dsgt": "sum to the gradients",
    "psgt": "sum to the gradients",
    "dp-dsgt": "sum to the gradients",
    "lppa": "leaves a part of its mask",
    "edsg": "last combination",
    "edsg-rms": "last combination",
    "dsgt-rms": "sum to the gradients",
    "defl-vp": "control variates",
    "push-sum": "keeps both sums",
}
NEVER = {
    "private-sgd": "masked rows",
    "decor": "guarantee",
    "pdmm": "does not mix",
    "admm": "does not mix",
    "fedavg": "does not mix",
}
FINE = {"dsg", "dsg-rms", "d-psgd", "mdsg", "pd-lms"}


def made(name):
    kind = tacit.ALGORITHMS[name]
    return kind(lr=0.05) if "lr" in kind.__dataclass_fields__ else kind()


def test_every_algorithm_is_known_here():
    assert {*EXACT, *NEVER, *FINE} == set(tacit.ALGORITHMS)


@pytest.mark.parametrize("name", EXACT)
def test_algorithms_that_need_exact_averages_are_refused_with_the_reason(name):
    assert_mentions(misuse_message(tacit.Robust, made(name)), name, EXACT[name], "allow_inexact")
    graph = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
    allowed = tacit.Robust(made(name), allow_inexact=True)
    assert any(EXACT[name] in caution for caution in allowed.cautions(graph))
    assert any(EXACT[name] in remark for remark in allowed.audit_remarks(graph))


@pytest.mark.parametrize("name", NEVER)
def test_others_are_always_refused(name):
    assert_mentions(misuse_message(tacit.Robust, made(name), allow_inexact=True), name, NEVER[name])


@pytest.mark.parametrize("name", sorted(FINE))
def test_algorithms_that_only_mix_run_and_resume(name, tmp_path):
    graph = tacit.Topology.complete(5).mixing("metropolis")
    task = tacit.quadratic(torch.eye(2).double().repeat(5, 1, 1), torch.ones(5, 2).double())
    algorithm = tacit.Robust(made(name), "trimmed-mean", 2)
    assert algorithm.state_class is made(name).state_class
    run = tacit.run(task, algorithm, graph, steps=3)
    assert run.theta.isfinite().all()
    assert not algorithm.cautions(graph)


@pytest.mark.parametrize(
    ("rule", "liars", "needed"), [("trimmed-mean", 2, 4), ("centred-clipping", 2, 3)]
)
def test_too_few_neighbours_are_refused(rule, liars, needed):
    task = tacit.quadratic(torch.eye(2).repeat(6, 1, 1), torch.ones(6, 2))
    graph = tacit.Topology.ring(6).mixing("metropolis")
    algorithm = tacit.Robust(tacit.DSG(lr=0.1), rule, liars)
    message = misuse_message(tacit.run, task, algorithm, graph, steps=1)
    assert_mentions(message, "2 neighbours", f"needs {needed}")


def test_compressed_rows_are_refused():
    graph = tacit.Topology.ring(4).mixing("metropolis")
    task = tacit.quadratic(torch.eye(2).repeat(4, 1, 1), torch.ones(4, 2))
    algorithm = tacit.Robust(tacit.DeFLVP(lr=0.1), allow_inexact=True)
    with pytest.warns(tacit.Caution):
        message = misuse_message(tacit.run, task, algorithm, graph, steps=1)
    assert_mentions(message, "compressed")


def test_a_row_that_is_not_a_number_changes_nothing_beyond_its_own_weight():
    own, lie = torch.zeros(2, WIDTH), torch.full((2, WIDTH), torch.nan)
    rows, weight = [lie, torch.ones(2, WIDTH)], torch.full((2, 1), 0.25)
    result = centred_clipping(own, rows, [weight, weight], 1)
    np.testing.assert_allclose(result, 0.25)
