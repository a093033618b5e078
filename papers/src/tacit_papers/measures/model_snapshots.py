"""Evidence late in a run, which Proposition 1 says is known, from the models of the run.

The audit follows messages through hundreds of unknowns, not through the hundred thousands of a long
run. What it proves for the first iterations (`recorded_run`) holds for all, so here gradients are
taken at the true models. Differences are small late in a run, and the rounding of messages is not:
they are computed from the three messages that reveal them.
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
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.core.precision import consistent_tf32
from tacit.graph import Graph
from tacit.record.transcript import Transcript
from tacit.record.unknowns import Unknown
from tacit.tasks import Task
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.measures.pdmm_differences import gradient_differences


@dataclass(frozen=True, eq=False)
class ModelSnapshots:
    """Models before and after some iterations of an algorithm that takes one gradient in each."""

    task: Task
    graph: Graph
    seed: int
    device: str
    models: dict[int, Tensor]  # [N, P] by the number of iterations done
    differences: dict[int, Tensor]  # of gradients [N, P] to the next iteration, from messages

    @classmethod
    def record(
        cls, config: Config, iterations: Sequence[int], seed: int, context: MeasureContext
    ) -> ModelSnapshots:
        """Run up to the last of the iterations."""
        experiment = context.experiment(config, seed, seed_data=True)
        transcript = Transcript()
        simulation = experiment.simulation(transcript)
        simulation.start()
        models = {0: simulation.state.theta.clone()}
        differences: dict[int, Tensor] = {}
        last = max(iterations) + 2
        while simulation.t < last:
            simulation.step()
            t = simulation.t
            if not {t, t - 1}.isdisjoint(iterations):
                models[t] = simulation.state.theta.clone()
            del transcript.messages[:-3]  # a difference takes three
            if t - 2 in iterations and t > 2:
                found = _from_messages(experiment.algorithm, transcript)
                differences |= {} if found is None else {t - 2: found}
            context.progress("training", t, last)
        task, graph = experiment.task, experiment.graph
        return cls(task, graph, seed, context.device, models, differences)

    def evidence(self, clients: Sequence[int], question: Question, iteration: int) -> Evidence:
        """A client's gradient, its change to the next iteration, or a sum over clients."""
        if question not in ("gradient", "difference", "sum") or (
            question != "sum" and len(clients) > 1
        ):
            raise Misuse(
                f"The {question} of clients {list(clients)} is no evidence.",
                "Ask for a gradient or difference of one client, or for a sum.",
            )
        taken = [(client, iteration) for client in clients]
        coefficients = (1.0,) * len(taken)
        if question == "difference":
            taken, coefficients = [(clients[0], iteration + 1), *taken], (1.0, -1.0)
        gradients = [self._gradient(client, t).double() for client, t in taken]
        values = sum((c * g for c, g in zip(coefficients, gradients, strict=True)), torch.zeros(()))
        rounding = 0.0
        if question == "difference" and iteration in self.differences:
            exact, values = values, self.differences[iteration][clients[0]].to(values.device)
            rounding = float((values - exact).norm() / exact.norm().clamp_min(1e-300))
        terms = tuple(Unknown("gradient", t + 1, client) for client, t in taken)
        points = torch.stack([self.models[t][client] for client, t in taken])
        return Evidence(
            question, clients[0], terms, coefficients, values, points, 0.0, 1.0, rounding
        )

    @consistent_tf32()
    def _gradient(self, client: int, t: int) -> Tensor:
        loss = self.task.loss
        # A configuration with a dataset has a module.
        assert isinstance(loss, ModuleLoss)
        arrays = Truth(self.task, self.seed).batch(client, t + 1)
        batch = [array.to(self.device) for array in arrays]
        gradient: Tensor = grad(loss.to(self.device))(self.models[t][client], *batch)
        return gradient.detach()


def _from_messages(algorithm: Algorithm, transcript: Transcript) -> Tensor | None:
    """How gradients changed, from the last three messages of PDMM; None for other algorithms."""
    if not isinstance(algorithm, PDMM) or not isinstance(algorithm.solver, QuadraticSolver):
        return None
    messages, solver = transcript.of("dz"), algorithm.solver
    return gradient_differences(messages, transcript.clients, algorithm.rho, solver.mu, "quadratic")
