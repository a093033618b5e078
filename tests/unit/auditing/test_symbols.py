from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch

import tacit
from support.integer_noise import integers
from support.written import FromFirstModels
from tacit.algorithms.diffusion import ModelState
from tacit.auditing.symbolic import symbols
from tacit.auditing.symbolic.symbols import run_on_symbols, step_on_symbols
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.errors import Misuse
from tacit.record.transcript import Keep
from tacit.record.unknowns import Unknown

LAW = DiscreteGaussian(7)
RING = tacit.Topology.ring(4).mixing("metropolis", lazy=True)


@dataclass(frozen=True)
class Toy(FromFirstModels):
    """An algorithm with any step, starting from the first models."""

    does: object
    gradients_per_step: int = 1
    name: ClassVar[str] = "toy"

    def step(self, s, here):
        return ModelState(self.does(s.theta, here))


def nonlinear_twice(theta, here, tags=("sign", "sign")):
    return sum(here.nonlinear(tag, torch.sign, theta) for tag in tags)


def words_inside(theta, here):
    return here.nonlinear("coin", lambda rows: rows * (here.words("w", rows.shape[1]) % 2), theta)


def integer_noise(here):
    return integers(here.randomness, "i", LAW, 0, here.graph.ids, 1)


# --- Errors ---


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (
            lambda theta, here: here.grad(theta) + here.grad(2 * theta),
            "gradient on batch 1 twice.*gradients_per_step",
        ),
        (
            lambda theta, here: here.grad(theta) + here.minimise(theta, torch.ones(4, 1)),
            "gradient on batch 1 twice",
        ),
        (nonlinear_twice, "non-linear step 'sign' twice in one iteration.*different tags"),
        (lambda theta, here: theta * here.words("w", 1), "words 'w' outside of here.nonlinear"),
        (lambda theta, here: theta + integer_noise(here), "integers 'i' outside of here.nonlinear"),
    ],
)
def test_steps_that_symbols_cannot_express(does, words):
    with pytest.raises(Misuse, match=words):
        run_on_symbols(Toy(does), RING, 2)


@pytest.mark.parametrize(
    "toy",
    [
        Toy(lambda theta, here: here.grad(theta)),  # a batch per iteration
        Toy(lambda theta, here: here.grad(theta) + here.grad(theta, 1), gradients_per_step=2),
        Toy(partial(nonlinear_twice, tags=("sign", "again"))),
        Toy(words_inside),
    ],
)
def test_steps_that_symbols_can_express(toy):
    assert run_on_symbols(toy, RING, 3).steps == 3


def test_a_run_that_is_too_large_is_refused_early(monkeypatch):
    monkeypatch.setattr(symbols, "MAX_BYTES", 2e5)
    run_on_symbols(tacit.DSGT(lr=0.1), RING, 5)
    with pytest.raises(
        Misuse, match=r"100 iterations of 4 clients have 408 unknowns.*Audit fewer.*about 27 fit"
    ):
        run_on_symbols(tacit.DSGT(lr=0.1), RING, 100)  # 8 · 408 unknowns · 100 · 2 · 4 rows


def test_an_unsuitable_graph_is_refused():
    plain = tacit.Topology.star(4).mixing("metropolis")
    with pytest.raises(Misuse, match="edsg"):
        run_on_symbols(tacit.EDSG(lr=0.1), plain, 1)


# --- Unknowns ---


def test_unknowns_of_lppa():
    run = run_on_symbols(tacit.LPPA(lr=0.1, fresh=True), RING, 3)
    count = {
        kind: sum(u.kind == kind for u in run.unknowns) for kind in ("theta0", "gradient", "noise")
    }
    # 8 directed edges, `start` and 3 steps.
    assert count == {"theta0": 4, "gradient": 4 * 4, "noise": 8 * 4}
    assert len(run.columns) == len(run.unknowns)
    assert set(run.laws) == {u for u in run.unknowns if u.kind == "noise"}
    assert run.gradients(2) == [Unknown("gradient", when, 2) for when in range(4)]
    assert (run.clients, run.steps) == (4, 3)
    assert {u.when for u in run.laws} == {0, 1, 2, 3}


def test_noise_has_unit_coefficients_and_zero_noise_is_no_unknown():
    def first_tracker(scale):
        run = run_on_symbols(tacit.DPDSGT(lr=0.1, noise=tacit.Laplace(scale)), RING, 1)
        return run, run.transcript.of("gamma")[0].rows[0]

    run, row = first_tracker(0.5)
    assert row[run.columns[Unknown("noise", 0, 0, tag="zeta")]] == 1
    assert row[run.columns[Unknown("gradient", 0, 0)]] == 1
    assert float(row.abs().sum()) == 2  # and nothing else
    run, row = first_tracker(0.0)
    assert run.laws == {}
    assert float(row.abs().sum()) == 1


def test_points_of_gradients_and_inputs_of_nonlinear_steps():
    run = run_on_symbols(tacit.DSG(lr=0.25), RING, 2)
    torch.testing.assert_close(run.points[1], run.models[0][:, : run.points[1].shape[1]])
    after = run.models[1]
    torch.testing.assert_close(run.points[2][:, : after.shape[1]], after)
    sent = run.transcript.of("psi")[0].rows
    assert sent[1, run.columns[Unknown("gradient", 1, 1)]] == -0.25

    def halved(theta, here):
        return here.nonlinear("sign", torch.sign, theta / 2, epsilon=0.7)

    step = run_on_symbols(Toy(halved), RING, 1).nonlinear_steps[
        Unknown("nonlinear", 1, 3, tag="sign")
    ]
    assert step.epsilon == 0.7
    assert step.inputs[0].tolist()[3] == 0.5


def test_a_minimiser_is_linear_in_the_gradient_at_it():
    """∇f(w) + b + cw = 0."""
    toy = Toy(
        lambda theta, here: here.minimise(3 * theta, torch.full((4, 1), 2.0, dtype=torch.float64))
    )
    run = run_on_symbols(toy, RING, 1)
    w = run.models[1][0]
    assert w[run.columns[Unknown("theta0", 0, 0)]] == -1.5
    assert w[run.columns[Unknown("gradient", 1, 0)]] == -0.5
    assert torch.equal(run.points[1], run.models[1])


def test_unknowns_as_text():
    names = [
        Unknown("theta0", 0, 3),
        Unknown("gradient", 2, 1),
        Unknown("noise", 4, 0, 2, "delta"),
        Unknown("nonlinear", 1, 5, tag="sign"),
    ]
    assert [str(name) for name in names] == ["θ⁰[3]", "g[1](2)", "delta[0→2](4)", "sign[5](1)"]


# --- Recording ---


@pytest.mark.parametrize(
    "algorithm", [tacit.LPPA(lr=0.1, masks="sent", fresh=True), tacit.PDMM(), tacit.FedAvg(lr=0.1)]
)
@pytest.mark.parametrize(
    "keep",
    [
        Keep(clients=(1,)),
        Keep(ticks=(2, 3)),
        Keep(tags=("gamma", "dz", "grad")),
        Keep((0, 2), (1, 2)),
    ],
)
def test_a_partial_transcript_has_the_same_rows(algorithm, keep):
    whole = run_on_symbols(algorithm, RING, 4)
    part = run_on_symbols(algorithm, RING, 4, keep)
    assert part.unknowns == whole.unknowns
    assert all(torch.equal(a, b) for a, b in zip(part.models, whole.models, strict=True))

    def sent(run):
        rows = {}
        for m in run.transcript.messages:
            target = [None] * len(m.rows) if m.target is None else m.target.tolist()
            for source, to, row in zip(m.source.tolist(), target, m.rows, strict=True):
                rows[m.tick, m.verb, m.tag, source, to] = row
        return rows

    def wanted(tick, verb, tag, source, to):
        ends = {source, to} if verb == "send" else {source, (source + 1) % 4, (source - 1) % 4}
        ends = {source} if verb == "average" else ends
        near = keep.clients is None or verb == "broadcast" or ends & set(keep.clients)
        return near and keep.includes(tick) and (keep.tags is None or tag in keep.tags)

    everything, kept = sent(whole), sent(part)
    assert list(kept) == [name for name in everything if wanted(*name)]
    assert kept
    for name, row in kept.items():
        assert torch.equal(row, everything[name]), name


def test_negative_steps_are_refused():
    with pytest.raises(Misuse, match="steps is -1"):
        run_on_symbols(tacit.DSG(lr=0.1), RING, -1)


def test_iterations_from_an_unknown_state_send_what_they_send_in_a_run():
    graph = tacit.Topology.ring(4).mixing("metropolis")
    algorithm = tacit.DSGT(lr=0.1)
    whole = run_on_symbols(algorithm, graph, 5)
    late = step_on_symbols(algorithm, graph, 3, steps=2, keep=Keep(clients=(0,)))
    assert late.steps == 2
    assert [message.tick for message in late.transcript.messages] == [4, 4, 5, 5]
    assert sorted(late.points) == [4, 5]
    # As combinations of the state after three iterations.
    state = {name: rows.numpy() for name, rows in whole.states[3].items()}
    width = len(whole.unknowns)
    basis = np.zeros((len(late.unknowns), width))
    for column, unknown in enumerate(late.unknowns):
        row = state[unknown.tag][unknown.client] if unknown.kind == "theta0" else None
        if row is None:
            basis[column, whole.columns[unknown]] = 1.0
        else:
            basis[column, : len(row)] = row
    sent = [message for message in whole.transcript.messages if message.tick > 3]
    for found, expected in zip(late.transcript.messages, sent, strict=True):
        rows = expected.rows.numpy()[found.source.numpy()]
        made = found.rows.numpy() @ basis[: found.rows.shape[1]]
        np.testing.assert_allclose(made[:, : rows.shape[1]], rows, atol=1e-12)
