"""Measures of reconstruction: the audit's evidence about some victims, inverted and scored."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import Question
from tacit.config.sections import Config
from tacit.core.randomness import derive_key
from tacit.graph import Graph
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded
from tacit_papers.measures.inversion_search import InversionSearch, invert_evidence
from tacit_papers.measures.recorded_run import RecordedRun, all_others, nearest_clients

ITERATIONS = 2  # a difference takes two gradients
AHEAD = 6  # iterations whose messages reveal a gradient: others' messages follow from later ones
SERVER = Adversary(is_server=True, knows_theta0=True)


@dataclass(frozen=True)
class EvidenceInversion(FieldDescription):
    """SSIM of samples reconstructed from the first gradients, differences or sums.

    Without a server the honest clients are a victim and those nearest to it, or `scattered` at
    random; all others are corrupt. A sum is over the victim's honest component.
    """

    label = ("inverting", "question")
    config: Config
    question: Question
    search: InversionSearch
    victims: int = 4
    honest: int = 2
    scattered: bool = False

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        run = RecordedRun.record(self.config, ITERATIONS, seed, context)
        noisy = self.question == "gradient"
        evidence = [
            run.evidence(
                self._adversary(victim, run.graph, seed), victim, self.question, noisy=noisy
            )
            for victim in range(self.victims)
        ]
        scores = invert_evidence(Truth(run.task, seed), evidence, self.search, context)
        return scores | {"gradients_in_each": [len(one.terms) for one in evidence]}

    def _adversary(self, victim: int, graph: Graph, seed: int) -> Adversary:
        if self.config.algorithm.name == "fedavg":
            return SERVER
        if not self.scattered:
            return all_others(nearest_clients(graph, victim, self.honest), graph.clients)
        generator = torch.Generator().manual_seed(derive_key(seed, "honest", victim) >> 1)
        order = torch.randperm(graph.clients, generator=generator).tolist()
        others = [client for client in order if client != victim]
        return all_others([victim, *others[: self.honest - 1]], graph.clients)


@dataclass(frozen=True)
class NeighbourInversion(FieldDescription):
    """SSIM of samples reconstructed from what one neighbour of each victim computes.

    The evidence is exact where the audit proves it, and else the best linear unbiased estimate.
    `noise` is the deviation left in each coordinate, `noise_share` that of the whole vector
    relative to the evidence.
    """

    label = ("curious neighbour", "question")
    config: Config
    question: Question
    search: InversionSearch
    iteration: int = 0
    victims: int = 4

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        # Only gradients need the first messages: differences do not contain the masks of the start.
        since = 0 if self.question == "gradient" else self.iteration
        run = RecordedRun.record(self.config, self.iteration + AHEAD, seed, context, since)
        evidence = [self.evidence(run, victim) for victim in range(self.victims)]
        noise = max(one.deviation for one in evidence)
        shares = [
            one.deviation * math.sqrt(len(one.values)) / float(one.values.norm())
            for one in evidence
        ]
        return invert_evidence(Truth(run.task, seed), evidence, self.search, context) | {
            "noise": rounded(noise),
            "noise_share": rounded(max(shares)),
            "exact": noise == 0,
        }

    def evidence(self, run: RecordedRun, victim: int) -> Evidence:
        adversary = Adversary.curious(next_neighbour(run.graph, victim))
        return run.evidence(adversary, victim, self.question, self.iteration, noisy=True)


def next_neighbour(graph: Graph, victim: int) -> int:
    """The first client after the victim, in cyclic order, that receives its messages."""
    near = [int(target) for source, target in graph.edges.tolist() if source == victim]
    return min(near, key=lambda client: (client - victim) % graph.clients)
