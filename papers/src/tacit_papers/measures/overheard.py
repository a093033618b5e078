"""What is said in the first iterations of a configuration, and what any adversary makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import Evidence, evidence
from tacit.auditing.symbolic.leakage import Leakage, Question
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbols import SymbolicRun, run_on_symbols
from tacit.config.build import build
from tacit.config.sections import Config, with_keys
from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit.record.transcript import Keep, Transcript
from tacit.simulation import Simulation
from tacit.tasks import Task
from tacit_papers.framework.artifact import MeasureContext


@dataclass(frozen=True, eq=False)
class Overheard:
    """A transcript with everybody's insides, of which an adversary is given what it sees and holds."""

    task: Task
    graph: Graph
    transcript: Transcript
    symbols: SymbolicRun
    simulation: Simulation  # as it stands after these iterations

    @classmethod
    def of(
        cls, config: Config, iterations: int, seed: int, place: MeasureContext, since: int = 0
    ) -> Overheard:
        """Run so many iterations and listen, to all messages or to those from iteration `since` on."""
        config = seeded(config, seed, place)
        made = build(config, dataset=place.dataset(config))
        ticks = (
            (since + 1, iterations) if since else None
        )  # a step's messages have its number, from 1
        keep = Keep(ticks=ticks, insides=tuple(range(made.graph.clients)), theta0=True)
        transcript = Transcript(keep)
        simulation = made.simulation(transcript)
        simulation.start()
        for iteration in range(iterations):
            simulation.step()
            place.said("running and listening", iteration + 1, iterations)
        symbols = run_on_symbols(made.algorithm, made.graph, iterations, transcript.keep)
        return cls(made.task, made.graph, transcript, symbols, simulation)

    def held(
        self, adversary: Adversary, victim: int, question: Question, iteration: int = 0
    ) -> Evidence:
        """What the adversary computes from messages and from what it holds; only a gradient may be noisy."""
        found = evidence(
            Leakage(Knowledge(self.symbols, adversary), victim),
            question,
            iteration,
            self.transcript,
        )
        if found is None or found.points is None or (found.deviation and question != "gradient"):
            raise Misuse(
                f"{adversary} does not know the {question} of client {victim}.",
                "Let one client be corrupt at least: then all models are known.",
            )
        return found


def seeded(config: Config, seed: int, place: MeasureContext) -> Config:
    """With samples, graph, first models and noise drawn by the seed."""
    config = with_keys(config, "run", seed=seed, device=place.device)
    return config if config.task is not None else with_keys(config, "data", seed=seed)


def component(graph: Graph, victim: int, size: int) -> list[int]:
    """A victim and the clients nearest to it, so many that are connected with each other."""
    network = nx.Graph([(int(i), int(j)) for i, j in graph.edges])
    near = [victim, *(child for _, child in nx.bfs_edges(network, victim, sort_neighbors=sorted))]
    return sorted(near[:size])


def against(honest: Sequence[int], clients: int) -> Adversary:
    """Everybody else together, who read all clear messages and know the first model.

    If there is anybody, they know all models: messages tell wᵢ − wⱼ along every edge, and they have their own.
    """
    corrupt = [client for client in range(clients) if client not in honest]
    listening = Adversary(listens=True, knows_theta0=True)
    return listening | Adversary.curious(*corrupt) if corrupt else listening
