"""The measure of what one curious neighbour makes of messages: its best evidence, inverted and scored."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import Evidence, evidence
from tacit.auditing.symbolic.findings import Findings, Question
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.overheard import Overheard
from tacit_papers.measures.search import Search, inverted
from tacit_papers.measures.training import rounded

AHEAD = 6  # iterations whose messages tell of a gradient: what others sent follows from what they send later


@dataclass(frozen=True)
class CuriousNeighbour:
    """SSIM of samples reconstructed from a gradient, difference or sum that one neighbour of each victim computes.

    It is exact where the audit proves it, and else the best linear unbiased estimate; `noise` is the deviation that is
    left in each coordinate, `noise_share` that of the whole vector relative to the evidence.
    """

    config: Config
    question: Question
    search: Search
    iteration: int = 0
    victims: int = 4

    def describe(self) -> dict[str, Any]:
        """Configuration, evidence and attack."""
        return {
            "curious neighbour": self.question,
            "config": self.config.as_dict(),
            "search": asdict(self.search),
            "iteration": self.iteration,
            "victims": self.victims,
        }

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Run, listen to the iterations that tell of this one, and attack."""
        since = (
            0 if self.question == "gradient" else self.iteration
        )  # masks are left behind at the start
        heard = Overheard.of(self.config, self.iteration + AHEAD, seed, place, since)
        held = [self.held(heard, victim) for victim in range(self.victims)]
        noise = max(one.deviation for one in held)
        shares = [
            one.deviation * math.sqrt(len(one.values)) / float(one.values.norm()) for one in held
        ]
        found = inverted(heard.task, seed, held, self.search, place)
        return found | {
            "noise": rounded(noise),
            "noise_share": rounded(max(shares)),
            "exact": noise == 0,
        }

    def held(self, heard: Overheard, victim: int) -> Evidence:
        """What the neighbour next to a victim computes; refused where it is hidden."""
        found = Findings(
            Knowledge(heard.symbols, Adversary.curious(neighbour(heard.graph, victim))), victim
        )
        told = evidence(found, self.question, self.iteration, heard.transcript)
        if told is None or told.points is None:
            raise Misuse(
                f"A neighbour of client {victim} cannot even estimate its {self.question}.",
                "Ask for something else, or choose another graph.",
            )
        return told


def neighbour(graph: Graph, victim: int) -> int:
    """The next of those who hear the victim, counted round."""
    near = [int(target) for source, target in graph.edges.tolist() if source == victim]
    return min(near, key=lambda client: (client - victim) % graph.clients)
