"""The measure of most attacks on images: what an adversary knows of its victims' gradients, inverted and scored."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.leakage import Question
from tacit.config.sections import Config
from tacit.core.randomness import derive_key
from tacit.graph import Graph
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.inversion_search import InversionSearch, inverted
from tacit_papers.measures.recorded_run import RecordedRun, against, component

ITERATIONS = 2  # a difference takes two gradients
SERVER = Adversary(is_server=True, knows_theta0=True)


@dataclass(frozen=True)
class EvidenceInversion:
    """SSIM of samples reconstructed from the first gradients, differences or sums, as messages tell them.

    Without a server the honest clients are a victim and those nearest to it, or `scattered`, drawn at random; all
    others are corrupt. A sum is over the victim's honest component.
    """

    config: Config
    question: Question
    search: InversionSearch
    victims: int = 4
    honest: int = 2
    scattered: bool = False

    def describe(self) -> dict[str, Any]:
        """Configuration, attack and adversary."""
        return {
            "inverting": self.question,
            "config": self.config.as_dict(),
            "search": asdict(self.search),
            "victims": self.victims,
            "honest": self.honest,
            "scattered": self.scattered,
        }

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Listen to the first iterations, then attack."""
        heard = RecordedRun.of(self.config, ITERATIONS, seed, place)
        held = [
            heard.held(self._adversary(victim, heard.graph, seed), victim, self.question)
            for victim in range(self.victims)
        ]
        sizes = [len(one.terms) for one in held]
        return inverted(heard.task, seed, held, self.search, place) | {"gradients_in_each": sizes}

    def _adversary(self, victim: int, graph: Graph, seed: int) -> Adversary:
        if self.config.algorithm.name == "fedavg":
            return SERVER
        if not self.scattered:
            return against(component(graph, victim, self.honest), graph.clients)
        draw = torch.Generator().manual_seed(derive_key(seed, "honest", victim) >> 1)
        others = [
            client
            for client in torch.randperm(graph.clients, generator=draw).tolist()
            if client != victim
        ]
        return against([victim, *others[: self.honest - 1]], graph.clients)
