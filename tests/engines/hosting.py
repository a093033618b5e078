"""Runs some clients apart from the others, whose recorded messages are replayed to them.

This is what a node does, without sockets.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

import tacit
from tacit.algorithms.algorithm import tensors_of
from tacit.core.fixed_point import IntegerRows, wrapped
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.rows import CodedRows, received
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.lazy_rows import evaluated_state
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation


@dataclass
class Message:
    """One tensor that all clients sent: the rows that arrive, and what was sent if that differs.

    Codecs send bytes; of rows to be summed, integers with masks are sent.
    """

    rows: torch.Tensor
    wire: torch.Tensor | None = None

    @classmethod
    def of(cls, sent):
        if isinstance(sent, IntegerRows):
            return cls(sent.integers.clone(), sent.masked())
        return cls(received(sent).clone(), sent.encode() if isinstance(sent, CodedRows) else None)


class RecordingNetwork:
    """A network that keeps every call as (method, {name: message})."""

    def __init__(self, net):
        self.net = net
        self.calls = []

    def mix(self, **rows):
        self.calls.append(("mix", {name: Message.of(sent) for name, sent in rows.items()}))
        return self.net.mix(**rows)

    def send(self, tag, edge_rows, *, private=False):
        self.calls.append(("send", {tag: Message.of(edge_rows)}))
        return self.net.send(tag, edge_rows, private=private)

    def total(self, **rows):
        self.calls.append(("total", {name: Message.of(sent) for name, sent in rows.items()}))
        return self.net.total(**rows)

    def average(self, **rows):
        self.calls.append(("average", {name: Message.of(x) for name, x in rows.items()}))
        return self.net.average(**rows)


class ReplayNetwork:
    """The network of some clients; the messages of the others are replayed."""

    def __init__(self, recording, graph, ids):
        self.calls = iter(recording.calls)
        self.graph = graph
        self.ids = ids

    def mix(self, **rows):
        return tuple((self.graph.W @ x)[self.ids] for x in self._all_rows("mix", rows))

    def average(self, **rows):
        return tuple(x.mean(0).repeat(len(self.ids), 1) for x in self._all_rows("average", rows))

    def total(self, **rows):
        method, messages = next(self.calls)
        assert (method, *messages) == ("total", *rows)
        totals = []
        for name, sent in rows.items():
            # Apart, a client has the integers, noise and masks that it has together with all.
            assert torch.equal(sent.integers, messages[name].rows[self.ids])
            masked = messages[name].wire.clone()
            masked[self.ids] = sent.masked()
            total = sent.decode(wrapped(masked.sum(0, keepdim=True)))
            totals.append(total.repeat(len(self.ids), 1))
        return tuple(totals)

    def send(self, tag, edge_rows, *, private=False):
        method, messages = next(self.calls)
        assert (method, *messages) == ("send", tag)
        all_clients = Neighbourhood.of(self.graph.edges, np.arange(self.graph.clients))
        row_of = dict(zip(_out_edges(all_clients), messages[tag].rows, strict=True))
        hosted = Neighbourhood.of(self.graph.edges, np.array(self.ids))
        row_of |= dict(zip(_out_edges(hosted), edge_rows, strict=True))
        in_edges = zip(hosted.in_source.tolist(), hosted.in_target.tolist(), strict=True)
        return torch.stack([row_of[edge] for edge in in_edges])

    def _all_rows(self, expected, rows):
        """The rows of all clients; those of the hosted ones from `rows`, not from the recording."""
        method, messages = next(self.calls)
        assert (method, *messages) == (expected, *rows)
        for name, sent in rows.items():
            all_rows = messages[name].rows.clone()
            all_rows[self.ids] = received(sent)
            wire = messages[name].wire
            assert isinstance(sent, CodedRows) == (wire is not None)
            if wire is not None:
                # Apart, a client sends the same bytes as together with all.
                assert torch.equal(sent.encode(), wire[self.ids])
            yield all_rows


def run_together(algorithm, task, graph, steps, seed):
    """The states of all clients after 0, 1, …, `steps` iterations, and the recorded network."""
    simulation = Simulation(Setting(algorithm, task, graph, seed=seed, gradients="looped"))
    recording = RecordingNetwork(simulation.net)
    simulation.here = replace(simulation.here, net=recording)
    simulation.start()
    states = [simulation.state]
    for _ in range(steps):
        simulation.step()
        states.append(simulation.state)
    return states, recording


def run_apart(algorithm, task, graph, steps, seed, ids, recording, lazily=False):
    """The states of clients `ids` after 0, 1, …, `steps` iterations, hosted without the others.

    Lazy rows round as those of `run_together` do; plain ones are obviously right.
    """
    replayed = ReplayNetwork(recording, graph, ids)
    here = tacit.host(Setting(algorithm, task, graph, seed=seed), replayed, ids)
    if lazily:
        parts = here.graph, here.net, here.objective, here.randomness, here.gradients_per_step
        here = LazyClients(*parts)
    states = [evaluated_state(algorithm.start(here))]
    for t in range(steps):
        before = here.lazy_state(states[-1]) if lazily else states[-1]
        states.append(evaluated_state(algorithm.step(before, here.at(t))))
    assert next(replayed.calls, None) is None, "the others sent more"
    return states


def rows_of(ids, state, graph: tacit.Graph):
    """The rows of clients `ids`, and of the edges that leave them, in a state of all clients."""
    # Edges are sorted by (source, target), as the edge rows of a state are.
    source = graph.edges[:, 0]
    out_edges = np.flatnonzero(np.isin(source, ids))
    cut = {}
    for name, rows in tensors_of(state).items():
        assert len(rows) in (graph.clients, len(source))
        cut[name] = rows[ids if len(rows) == graph.clients else out_edges]
    return cut


def _out_edges(here):
    return list(zip(here.out_source.tolist(), here.out_target.tolist(), strict=True))
