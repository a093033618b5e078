from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

import tacit
from support.integer_noise import integers
from tacit import (
    LPPA,
    PDMM,
    DeFLVP,
    ExactSolver,
    FedAvg,
    Laplace,
    Misuse,
    Topology,
    quadratic,
)
from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.diffusion import ModelState
from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.randomness import Philox
from tacit.core.rows import CodedRows
from tacit.engines.stacked import StackedNetwork
from tacit.record.transcript import SERVER, Keep, Transcript, TranscriptRecorder
from tacit.record.unknowns import Unknown

GRAPH = Topology.ring(4).mixing("metropolis")
TASK = quadratic(torch.eye(3).repeat(4, 1, 1), torch.ones(4, 3))

pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")


def test_every_message_is_kept_with_its_tick_and_tag():
    run = tacit.run(TASK, LPPA(lr=0.1, masks="sent"), GRAPH, steps=2, transcript=True)
    messages = [
        (m.tick, m.verb, m.tag, m.private, tuple(m.rows.shape)) for m in run.transcript.messages
    ]
    assert messages == [
        (0, "send", "delta", True, (8, 3)),
        (1, "mix", "theta", False, (4, 3)),
        (1, "mix", "gamma", False, (4, 3)),
        (2, "mix", "theta", False, (4, 3)),
        (2, "mix", "gamma", False, (4, 3)),
    ]


def test_the_first_tracker_sent_is_the_masked_gradient():
    run = tacit.run(TASK, LPPA(lr=0.1, noise=Laplace(1.0)), GRAPH, steps=1, transcript=True)
    first = run.transcript.of("gamma")[0].rows
    plain = tacit.run(TASK, LPPA(lr=0.1, noise=Laplace(0.0)), GRAPH, steps=1, transcript=True)
    gradient = plain.transcript.of("gamma")[0].rows
    torch.testing.assert_close(first.sum(0), gradient.sum(0))
    assert float((first - gradient).abs().min()) > 0


def test_recording_does_not_change_the_run_and_is_off_by_default():
    recorded = tacit.run(TASK, LPPA(lr=0.1), GRAPH, steps=3, transcript=True)
    unrecorded = tacit.run(TASK, LPPA(lr=0.1), GRAPH, steps=3)
    assert torch.equal(recorded.theta, unrecorded.theta)
    assert recorded.history[-1].bytes_sent == unrecorded.history[-1].bytes_sent
    assert unrecorded.transcript is None


@dataclass(frozen=True)
class WithIntegers(Algorithm):
    """Sends models plus integer noise, drawn twice."""

    name: ClassVar[str] = "with-integers"

    def start(self, here):
        return ModelState(here.theta0)

    def step(self, s, here):
        law, ids = DiscreteGaussian(7), here.graph.ids
        twice = integers(here.randomness, "i", law, here.tick, ids, 3)
        here.randomness.add_integers("i", law, here.tick, ids, twice)
        (theta,) = here.net.mix(theta=s.theta + twice.to(s.theta.dtype))
        return ModelState(theta)


def test_recording_does_not_change_integer_noise():
    recorded = tacit.run(TASK, WithIntegers(), GRAPH, steps=3, transcript=True)
    unrecorded = tacit.run(TASK, WithIntegers(), GRAPH, steps=3)
    assert torch.equal(recorded.theta, unrecorded.theta)
    first = recorded.transcript.of("theta")[0].rows
    noise = integers(Philox(0, 3), "i", DiscreteGaussian(7), 1, torch.arange(4), 3)
    # Models begin at zero.
    assert torch.equal(first, 2.0 * noise)


def test_server_messages_and_encoded_rows_are_kept():
    transcript = Transcript()
    hood = Neighbourhood.of(GRAPH.edges, np.arange(4))
    recorder = TranscriptRecorder(StackedNetwork(GRAPH, torch.float64, "cpu"), transcript, hood)
    rows = torch.ones(4, 2, dtype=torch.float64)
    recorder.mix(update=CodedRows(rows, lambda: 3, lambda: rows, lambda wire: wire))
    recorder.average(grad=rows)
    assert [(message.verb, message.tag) for message in transcript.messages] == [
        ("mix", "update"),
        ("average", "grad"),
        ("broadcast", "grad"),
    ]
    rows.zero_()
    assert all(float(message.rows.min()) == 1 for message in transcript.messages)  # copies


def test_unknown_tag_suggests_the_closest():
    run = tacit.run(TASK, LPPA(lr=0.1), GRAPH, steps=1, transcript=True)
    assert run.transcript.tags == ["theta", "gamma"]
    assert repr(run.transcript) == "Transcript(2 messages: theta, gamma)"
    with pytest.raises(Misuse, match=r"gama.*Did you mean 'gamma'"):
        run.transcript.of("gama")


PATH = Topology.from_edges([(0, 1), (1, 2), (2, 3)]).mixing("metropolis", lazy=True)


def kept(algorithm=None, graph=PATH, steps=3, **keep):
    algorithm = algorithm or LPPA(lr=0.1, noise=Laplace(1.0))
    return tacit.run(
        TASK, algorithm, graph, steps=steps, seed=1, transcript=Keep(**keep)
    ).transcript


def test_messages_have_sources_and_targets():
    transcript = kept(PDMM())
    (first, *_) = transcript.messages
    ends = list(zip(first.source.tolist(), first.target.tolist(), strict=True))
    assert ends == transcript.edges == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
    assert (transcript.clients, transcript.steps) == (4, 3)
    mixed = kept().messages[0]
    assert (mixed.source.tolist(), mixed.target) == ([0, 1, 2, 3], None)
    up, down = kept(FedAvg(lr=0.1)).messages[:2]
    assert (up.verb, up.source.tolist()) == ("average", [0, 1, 2, 3])
    assert (down.verb, down.source.tolist(), len(down.rows)) == ("broadcast", [SERVER], 1)
    torch.testing.assert_close(down.rows[0], up.rows.mean(0))


def test_keep_clients():
    whole, part = kept(), kept(clients=(0,))
    # Its own rows and those of its neighbour.
    assert [message.source.tolist() for message in part.messages] == [[0, 1]] * 6
    for few, all_of_them in zip(part.messages, whole.messages, strict=True):
        assert torch.equal(few.rows, all_of_them.rows[:2])
    edges = [(m.source.tolist(), m.target.tolist()) for m in kept(PDMM(), clients=(3,)).messages]
    assert edges == [([2, 3], [3, 2])] * 3
    up, down = kept(FedAvg(lr=0.1), clients=(2,)).messages[:2]
    assert (up.source.tolist(), down.source.tolist()) == ([2], [SERVER])
    assert kept(clients=()).messages == []
    assert part.edges == whole.edges


def test_keep_ticks_and_tags():
    assert [message.tick for message in kept(ticks=(2, 3)).messages] == [2, 2, 3, 3]
    assert kept(ticks=(2, 2)).steps == 3
    sent_masks = kept(LPPA(lr=0.1, masks="sent"), ticks=(0, 0))
    assert [message.tick for message in sent_masks.messages] == [0]
    assert kept(tags=("gamma",)).tags == ["gamma"]
    assert kept(tags=()).messages == []
    both = kept(tags=("theta",), ticks=(1, 2), clients=(3,))
    assert [(m.tick, m.tag, m.source.tolist()) for m in both.messages] == [
        (1, "theta", [2, 3]),
        (2, "theta", [2, 3]),
    ]


def test_insides_are_what_these_clients_hold():
    held = kept(insides=(0,)).held
    gradients = {Unknown("gradient", when, 0) for when in range(4)}
    masks = {Unknown("noise", 0, 0, 1, "delta"), Unknown("noise", 0, 1, 0, "delta")}
    assert set(held) == {Unknown("theta0", 0, 0)} | gradients | masks
    assert kept().held == {}
    everyone = kept(insides=(0, 1, 2, 3)).held
    assert all(torch.equal(everyone[name], row) for name, row in held.items())
    first = kept(tags=("gamma",)).messages[0].rows[0]
    sent, got = Unknown("noise", 0, 0, 1, "delta"), Unknown("noise", 0, 1, 0, "delta")
    torch.testing.assert_close(first, held[Unknown("gradient", 0, 0)] + held[sent] - held[got])


def test_insides_are_kept_of_all_ticks():
    """Because later messages depend on earlier gradients."""
    assert set(kept(insides=(1,), ticks=(3, 3), clients=(0,), tags=()).held) == set(
        kept(insides=(1,)).held
    )


def test_keep_all_initial_models():
    names = {Unknown("theta0", 0, client) for client in range(4)}
    assert set(kept(theta0=True).held) == names
    assert set(kept(theta0=True, insides=(2,)).held) == names | set(kept(insides=(2,)).held)


def test_minimisers_are_held_as_gradients_and_nonlinear_results_as_they_are():
    """∇f(w) = −b − cw, which for this task is w − 1."""
    transcript = kept(PDMM(solver=ExactSolver()), insides=(2,))
    gradient = transcript.held[Unknown("gradient", 3, 2)]
    run = tacit.run(TASK, PDMM(solver=ExactSolver()), PATH, steps=3, seed=1)
    torch.testing.assert_close(gradient, run.theta[2] - 1)
    response = kept(DeFLVP(lr=0.1, private_variates=True), insides=(1,)).held
    assert {name.tag for name in response if name.kind == "nonlinear"} == {"response", "codec"}


def test_recording_insides_does_not_change_the_run():
    unrecorded = tacit.run(TASK, LPPA(lr=0.1), PATH, steps=3)
    recorded = tacit.run(
        TASK, LPPA(lr=0.1), PATH, steps=3, transcript=Keep(insides=(0, 3), theta0=True)
    )
    assert torch.equal(unrecorded.theta, recorded.theta)


@pytest.mark.parametrize("ticks", [(3, 1), (-1, 2), (0, 2.5), (True, 2), ("0", "1")])
def test_bad_ticks(ticks):
    with pytest.raises(Misuse, match=r"ticks to keep are .*Give the first and the last"):
        Keep(ticks=ticks)


@pytest.mark.parametrize("where", ["clients", "insides"])
@pytest.mark.parametrize("client", [4, -1, True, 0.0])
def test_unknown_clients(where, client):
    with pytest.raises(Misuse, match=r"no client .*from 0 to 3"):
        kept(**{where: (0, client)})


@pytest.mark.parametrize(
    "wrong", [{"ticks": 5}, {"ticks": (0,)}, {"tags": "gamma"}, {"clients": [0]}, {"insides": 1}]
)
def test_values_of_another_type(wrong):
    with pytest.raises(Misuse, match="to keep"):
        Keep(**wrong)
