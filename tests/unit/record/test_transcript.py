import numpy as np
import pytest
import torch

from tacit import LPPA, Laplace, Misuse, Topology, quadratic, simulate
from tacit.engines.stacked import StackedNetwork
from tacit.graph.neighbourhood import Neighbourhood
from tacit.record.transcript import Recorder, Transcript
from tacit.rows import CodedRows

GRAPH = Topology.ring(4).mixing("metropolis")
TASK = quadratic(torch.eye(3).repeat(4, 1, 1), torch.ones(4, 3))


def test_every_message_is_kept_with_its_moment_and_tag():
    run = simulate(LPPA(lr=0.1, masks="sent"), TASK, GRAPH, steps=2, transcript=True)
    said = [(m.tick, m.verb, m.tag, m.private, tuple(m.rows.shape)) for m in run.transcript.messages]
    assert said == [
        (0, "send", "delta", True, (8, 3)),
        (1, "mix", "theta", False, (4, 3)),
        (1, "mix", "gamma", False, (4, 3)),
        (2, "mix", "theta", False, (4, 3)),
        (2, "mix", "gamma", False, (4, 3)),
    ]


def test_the_first_tracker_sent_is_the_masked_gradient():
    run = simulate(LPPA(lr=0.1, noise=Laplace(1.0)), TASK, GRAPH, steps=1, transcript=True)
    first = run.transcript.of("gamma")[0].rows
    plain = simulate(LPPA(lr=0.1, noise=Laplace(0.0)), TASK, GRAPH, steps=1, transcript=True)
    gradient = plain.transcript.of("gamma")[0].rows
    torch.testing.assert_close(first.sum(0), gradient.sum(0))
    assert float((first - gradient).abs().min()) > 0


def test_recording_changes_nothing_and_is_off_by_default():
    recorded = simulate(LPPA(lr=0.1), TASK, GRAPH, steps=3, transcript=True)
    silent = simulate(LPPA(lr=0.1), TASK, GRAPH, steps=3)
    assert torch.equal(recorded.theta, silent.theta)
    assert recorded.history[-1].bytes_sent == silent.history[-1].bytes_sent
    assert silent.transcript is None


def test_the_server_and_encoded_rows_are_written_down_too():
    transcript = Transcript()
    hood = Neighbourhood.of(GRAPH.edges, np.arange(4))
    recorder = Recorder(StackedNetwork(GRAPH, torch.float64, "cpu"), transcript, hood)
    rows = torch.ones(4, 2, dtype=torch.float64)
    recorder.mix(update=CodedRows(rows, lambda: 3, lambda: rows))
    recorder.average(grad=rows)
    assert [(message.verb, message.tag) for message in transcript.messages] == [
        ("mix", "update"),
        ("average", "grad"),
        ("broadcast", "grad"),
    ]
    rows.zero_()
    assert all(float(message.rows.min()) == 1 for message in transcript.messages)  # copies


def test_a_tag_that_no_message_has_is_refused_with_those_there_are():
    run = simulate(LPPA(lr=0.1), TASK, GRAPH, steps=1, transcript=True)
    assert run.transcript.tags == ["theta", "gamma"]
    assert repr(run.transcript) == "Transcript(2 messages: theta, gamma)"
    with pytest.raises(Misuse, match=r"gama.*Did you mean 'gamma'"):
        run.transcript.of("gama")
