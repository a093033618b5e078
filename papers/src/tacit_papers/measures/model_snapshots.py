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
from tacit.algorithms.solvers import GradientSolver, QuadraticSolver
from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import Question
from tacit.config.sections import Config
from tacit.core.devices import float32_products
from tacit.core.errors import Misuse
from tacit.graph import Graph
from tacit.record.transcript import Message, Transcript
from tacit.record.unknowns import Unknown
from tacit.tasks import Objective
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.cells import MeasureContext


@dataclass(frozen=True, eq=False)
class ModelSnapshots:
    """Models before and after some iterations of an algorithm that takes one gradient in each."""

    task: Objective
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

    @float32_products()
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
    messages = transcript.of("dz")
    return gradient_differences(messages, transcript.clients, algorithm.rho, algorithm.solver)


def gradient_differences(
    messages: Sequence[Message], nodes: int, rho: float, solver: GradientSolver | QuadraticSolver
) -> Tensor:
    """∇fᵢ(wᵢᵏ⁺¹) − ∇fᵢ(wᵢᵏ) [n, P] in float64, from three successive messages of PDMM (eq. 28).

    With Δ = wᵏ⁺¹ − wᵏ and Δ⁺ = wᵏ⁺² − wᵏ⁺¹ by eq. 33, and h = Σⱼ Bᵢⱼ Δzᵢ|ⱼ received in between:

        gradient step    −h − Δ⁺/μ − (ρd − 1/μ) Δ        (eq. 36)
        quadratic        −h − (1/μ + ρd) Δ⁺ + Δ/μ
    """
    first, second, third = (message.rows.cpu().double() for message in messages)
    source, target = messages[0].source.cpu(), messages[0].target
    assert target is not None  # messages along edges have one
    target = target.cpu()
    sign = torch.where(source < target, 1.0, -1.0).to(first)[:, None]
    # Edges are in the order of (i, j): these are the positions of (j, i).
    back = (target * nodes + source).argsort()
    degree = torch.bincount(source, minlength=nodes).to(first)[:, None]

    def total(rows: Tensor) -> Tensor:
        """Over the neighbours of each node."""
        return rows.new_zeros(nodes, rows.shape[1]).index_add_(0, source, rows)

    before, after = (
        total((later - earlier[back]) * sign) / (2 * rho * degree)
        for earlier, later in ((first, second), (second, third))
    )
    received, mu = total(sign * second[back]), solver.mu
    if isinstance(solver, GradientSolver):
        return -received - after / mu - (rho * degree - 1 / mu) * before
    return -received - (1 / mu + rho * degree) * after + before / mu
