"""What Proposition 1 says is known, late in a run: computed from the models inside, not from all messages.

The audit follows messages through hundreds of unknowns, not through the hundred thousands of a long run. What it proves
for the first iterations (`overheard`) holds for all, so that here gradients are taken where they were taken.
Differences are small late in a run, and the rounding of messages is not: they are computed from the three messages
that tell them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.pdmm import PDMM
from tacit.algorithms.solvers import QuadraticSolver
from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import Question
from tacit.config.build import build
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.core.precision import consistent_tf32
from tacit.graph import Graph
from tacit.record.transcript import Transcript
from tacit.record.unknowns import Unknown
from tacit.tasks import Task
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.artifact import MeasureContext
from tacit_papers.measures.pdmm_differences import gradient_differences
from tacit_papers.measures.recorded_run import seeded


@dataclass(frozen=True, eq=False)
class ModelSnapshots:
    """Models [N, P] before and after some iterations of algorithms that take one gradient where they are."""

    task: Task
    graph: Graph
    seed: int
    device: str
    models: dict[int, Tensor]  # after so many iterations
    changes: dict[
        int, Tensor
    ]  # of gradients [N, P] by the next iteration, as messages tell them, if they do

    @classmethod
    def of(
        cls, config: Config, iterations: Sequence[int], seed: int, place: MeasureContext
    ) -> ModelSnapshots:
        """Run up to the last of them."""
        config = seeded(config, seed, place)
        made = build(config, dataset=place.dataset(config))
        transcript = Transcript()
        simulation = made.simulation(transcript)
        simulation.start()
        models, changes = {0: simulation.state.theta.clone()}, {}
        last = max(iterations) + 2
        while simulation.t < last:
            simulation.step()
            t = simulation.t
            if not {t, t - 1}.isdisjoint(iterations):
                models[t] = simulation.state.theta.clone()
            del transcript.messages[:-3]  # three are enough
            if (
                t - 2 in iterations
                and t > 2
                and (told := _told(made.algorithm, transcript)) is not None
            ):
                changes[t - 2] = told
            place.said("training", t, last)
        return cls(made.task, made.graph, seed, place.device, models, changes)

    def held(self, clients: Sequence[int], question: Question, iteration: int) -> Evidence:
        """A gradient of one client, the sum over several, or the change of one's gradient by the next iteration."""
        if question not in ("gradient", "difference", "sum") or (
            question != "sum" and len(clients) > 1
        ):
            raise Misuse(
                f"The {question} of clients {list(clients)} is no evidence.", "Ask for another."
            )
        later = question == "difference"
        places = (
            [(clients[0], iteration + 1), (clients[0], iteration)]
            if later
            else [(c, iteration) for c in clients]
        )
        points = torch.stack([self.models[t][client] for client, t in places])
        taken = [self._gradient(client, t) for client, t in places]
        coefficients = (1.0, -1.0) if later else (1.0,) * len(places)
        values = sum(
            (c * g.double() for c, g in zip(coefficients, taken, strict=True)), torch.zeros(())
        )
        terms = tuple(Unknown("gradient", t + 1, client) for client, t in places)
        rounding = 0.0
        if later and iteration in self.changes:
            inside, values = values, self.changes[iteration][clients[0]].to(values.device)
            rounding = float((values - inside).norm() / inside.norm().clamp_min(1e-300))
        return Evidence(
            question, clients[0], terms, coefficients, values, points, 0.0, 1.0, rounding
        )

    @consistent_tf32()
    def _gradient(self, client: int, t: int) -> Tensor:
        loss = self.task.loss
        assert isinstance(loss, ModuleLoss)  # a configuration with a dataset has a module
        batch = [
            array.to(self.device) for array in Truth(self.task, self.seed).batch(client, t + 1)
        ]
        taken: Tensor = grad(loss.to(self.device))(self.models[t][client], *batch)
        return taken.detach()


def _told(algorithm: Algorithm, transcript: Transcript) -> Tensor | None:
    """How gradients changed, from the last three messages; None where they do not tell it in this way."""
    if not isinstance(algorithm, PDMM) or not isinstance(algorithm.solver, QuadraticSolver):
        return None
    return gradient_differences(
        transcript.of("dz"), transcript.clients, algorithm.rho, algorithm.solver.mu, "quadratic"
    )
