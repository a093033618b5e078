"""The first iterations of a configuration, recorded, and what any adversary computes from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import Evidence, evidence
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage, Question
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.engines.simulation import Simulation
from tacit.graph import Graph
from tacit.record.transcript import Keep, Transcript
from tacit.tasks import Objective
from tacit_papers.framework.cells import MeasureContext


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A transcript with the internals of all clients; an adversary gets its view of it."""

    task: Objective
    graph: Graph
    transcript: Transcript
    symbols: SymbolicRun
    simulation: Simulation  # after these iterations

    @classmethod
    def record(
        cls, config: Config, iterations: int, seed: int, context: MeasureContext, since: int = 0
    ) -> RecordedRun:
        """Run and record a configuration.

        Args:
            config: The configuration.
            iterations: How many to run.
            seed: Of data, graph, first models and noise.
            context: Where to run.
            since: Record only messages from this iteration on.
        """
        experiment = context.experiment(config, seed, seed_data=True)
        # The messages of iteration t have tick t + 1.
        ticks = (since + 1, iterations) if since else None
        clients = tuple(range(experiment.graph.clients))
        transcript = Transcript(Keep(ticks=ticks, insides=clients, theta0=True))
        simulation = experiment.simulation(transcript)
        simulation.start()
        for iteration in range(iterations):
            simulation.step()
            context.progress("recording", iteration + 1, iterations)
        graph = experiment.graph
        symbols = run_on_symbols(
            experiment.algorithm,
            graph,
            iterations,
            transcript.keep,
            common_start=experiment.setting.start_alike,
        )
        return cls(experiment.task, graph, transcript, symbols, simulation)

    def leakage(self, adversary: Adversary, victim: int) -> Leakage:
        return Leakage(Knowledge(self.symbols, adversary), victim)

    def evidence(
        self,
        adversary: Adversary,
        victim: int,
        question: Question,
        iteration: int = 0,
        *,
        noisy: bool = False,
    ) -> Evidence:
        """What the adversary computes about a victim.

        Args:
            adversary: Who computes it.
            victim: The client it is about.
            question: A gradient, difference or sum.
            iteration: The iteration it is about.
            noisy: Accept an estimate with noise.

        Raises:
            Misuse: If it is hidden from the adversary, or noisy where it must be exact.
        """
        found = evidence(self.leakage(adversary, victim), question, iteration, self.transcript)
        if found is None or found.points is None or (found.deviation and not noisy):
            raise Misuse(
                f"{adversary} does not know the {question} of client {victim}.",
                "Let at least one client be corrupt, or choose another graph.",
            )
        return found


def nearest_clients(graph: Graph, victim: int, size: int) -> list[int]:
    """A connected component of `size` clients: the victim and the clients nearest to it, sorted."""
    network = nx.Graph([(int(i), int(j)) for i, j in graph.edges])
    near = [victim, *(child for _, child in nx.bfs_edges(network, victim, sort_neighbors=sorted))]
    return sorted(near[:size])


def all_others(honest: Sequence[int], clients: int) -> Adversary:
    """All other clients together, with all unencrypted messages and the first model.

    If there are any, they know all models: messages reveal wᵢ − wⱼ along every edge.
    """
    corrupt = [client for client in range(clients) if client not in honest]
    eavesdropper = Adversary(listens=True, knows_theta0=True)
    return eavesdropper | Adversary.curious(*corrupt) if corrupt else eavesdropper
