"""Some clients run apart from the others, whose words are played back to them: what a peer does, without sockets."""

from dataclasses import dataclass, replace

import numpy as np
import torch

import tacit
from tacit.algorithms.algorithm import tensors_of
from tacit.core.hosted_clients import HostedClients
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.randomness import Philox
from tacit.core.rows import CodedRows, received
from tacit.engines.gradients.objective import HostedObjective
from tacit.simulation import Setting, Simulation


@dataclass
class Message:
    """One tensor as everybody sent it: its rows as they arrive, and its bytes where a codec made them."""

    rows: torch.Tensor
    wire: torch.Tensor | None = None

    @classmethod
    def of(cls, sent):
        return cls(received(sent).clone(), sent.encode() if isinstance(sent, CodedRows) else None)


class Overheard:
    """A network that keeps what all clients said: (verb, {name: message}) of every call."""

    def __init__(self, net):
        self.net = net
        self.said = []

    def mix(self, **rows):
        self.said.append(("mix", {name: Message.of(sent) for name, sent in rows.items()}))
        return self.net.mix(**rows)

    def send(self, tag, edge_rows, *, private=False):
        self.said.append(("send", {tag: Message.of(edge_rows)}))
        return self.net.send(tag, edge_rows, private=private)

    def average(self, **rows):
        self.said.append(("average", {name: Message.of(x) for name, x in rows.items()}))
        return self.net.average(**rows)


class Replayed:
    """The network of some clients: what the others say is played back."""

    def __init__(self, overheard, graph, ids):
        self.said = iter(overheard.said)
        self.graph = graph
        self.ids = ids

    def mix(self, **rows):
        return tuple((self.graph.W @ x)[self.ids] for x in self._everyone("mix", rows))

    def average(self, **rows):
        return tuple(x.mean(0).repeat(len(self.ids), 1) for x in self._everyone("average", rows))

    def send(self, tag, edge_rows, *, private=False):
        verb, messages = next(self.said)
        assert (verb, *messages) == ("send", tag)
        everyone = Neighbourhood.of(self.graph.edges, np.arange(self.graph.clients))
        letters = dict(zip(_out_edges(everyone), messages[tag].rows, strict=True))
        ours = Neighbourhood.of(self.graph.edges, np.array(self.ids))
        letters |= dict(zip(_out_edges(ours), edge_rows, strict=True))
        entering = zip(ours.in_source.tolist(), ours.in_target.tolist(), strict=True)
        return torch.stack([letters[edge] for edge in entering])

    def _everyone(self, expected, rows):
        """The rows of all clients: our own words from `rows`, not from the recording."""
        verb, messages = next(self.said)
        assert (verb, *messages) == (expected, *rows)
        for name, sent in rows.items():
            everyone = messages[name].rows.clone()
            everyone[self.ids] = received(sent)
            wire = messages[name].wire
            assert isinstance(sent, CodedRows) == (wire is not None)
            if wire is not None:  # alone a client sends the bytes that it sends among all
                assert torch.equal(sent.encode(), wire[self.ids])
            yield everyone


def run_together(algorithm, task, graph, steps, seed):
    """The states of all clients after 0, 1, …, `steps` iterations, and what was overheard."""
    simulation = Simulation(Setting(algorithm, task, graph, seed=seed, gradients="looped"))
    overheard = Overheard(simulation.net)
    simulation.here = replace(simulation.here, net=overheard)
    simulation.start()
    states = [simulation.state]
    for _ in range(steps):
        simulation.step()
        states.append(simulation.state)
    return states, overheard


def run_apart(algorithm, task, graph, steps, seed, ids, overheard):
    """The states of clients `ids` after 0, 1, …, `steps` iterations, hosted without the others."""
    loader = task.loader(torch.tensor(ids), seed, "cpu")
    here = HostedClients(
        Neighbourhood.of(graph.edges, np.array(ids), own_weight=graph.weights.diagonal()[ids]),
        Replayed(overheard, graph, ids),
        HostedObjective(task, ids, loader, "looped", seed, "cpu"),
        Philox(seed, task.parameters, task.dtype),
        algorithm.gradients_per_step,
    )
    states = [algorithm.start(here)]
    for t in range(steps):
        states.append(algorithm.step(states[-1], here.at(t)))
    assert next(here.net.said, None) is None, "the others said more"
    return states


def rows_of(ids, state, graph: tacit.Graph):
    """The tensors of a state of all clients cut to clients `ids`: a row per client, or per edge that leaves it."""
    source = graph.edges[:, 0]  # edges are sorted by (source, target), as the rows of a state are
    leaving = np.flatnonzero(np.isin(source, ids))
    cut = {}
    for name, rows in tensors_of(state).items():
        assert len(rows) in (graph.clients, len(source))
        cut[name] = rows[ids if len(rows) == graph.clients else leaving]
    return cut


def _out_edges(here):
    return list(zip(here.out_source.tolist(), here.out_target.tolist(), strict=True))
