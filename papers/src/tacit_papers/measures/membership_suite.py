"""All membership attacks of the audit on one run: by its models, and by gradients along the way."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tacit.auditing.attacks.candidates import Candidates
from tacit.auditing.attacks.membership_attacks import KnownModels, MembershipAttacks
from tacit.auditing.attacks.membership_scores import gradient_cosine_score, loss_score
from tacit.auditing.options import AttackOptions
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.config.build import Experiment
from tacit.config.sections import Config
from tacit.engines.simulation import Simulation
from tacit.privacy.randomized_response import WORDS, RandomizedResponse
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded
from tacit_papers.measures.training import next_gradients

SECONDS = 600.0  # for shadow federations: enough for all of them
LOSS, COSINE = "loss", "gradient cosine"


@dataclass(frozen=True)
class Signs:
    """What a neighbour sees of an update that is sent as randomized signs, some of them."""

    epsilon: float
    fraction: float  # of the coordinates that are sent

    def seen(self, rows: Tensor, seed: int) -> Tensor:
        """The rows [n, P] with a sign each, and zeros where nothing is sent."""
        generator = torch.Generator().manual_seed(seed)
        kept = RandomizedResponse(self.epsilon).threshold / WORDS
        truthful = torch.rand(rows.shape, generator=generator) < kept
        sent = torch.rand(rows.shape, generator=generator) < self.fraction
        plus = (rows.cpu() >= 0) == truthful
        return torch.where(sent, torch.where(plus, 1.0, -1.0), 0.0).to(rows)


@dataclass(frozen=True)
class MembershipSuite(FieldDescription):
    """AUCs of membership attacks on a run, and accuracy and the AUC of the loss along the way.

    The loss is of every client's own model, mean over all clients. Gradients are attacked for
    `cosine_victims` clients at `observations` iterations, as their neighbours see them: exactly, or
    as `signs` (the variates of DeFL-VP reveal gradients exactly). Attacks that need shadow
    federations, which are trained as the run was, are on the final model of one client.
    """

    label = ("membership suite", "config")
    config: Config
    signs: Signs | None = None
    observations: int = 40
    cosine_victims: int = 4
    shadows: bool = True

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        experiment = context.experiment(self.config, seed, seed_data=True)
        attacked = _AttackedRun(experiment, seed, context)
        simulation = experiment.simulation()
        simulation.start()
        seen = self._train(simulation, attacked)
        models = simulation.state.theta
        loss = attacked.loss_aucs(models)
        areas = {LOSS: statistics.fmean(loss), COSINE: self._cosine(attacked, seen)}
        if self.shadows:
            areas |= self._with_shadows(attacked, models)
        return {
            "accuracy": attacked.curve["accuracy"][-1],
            "training_accuracy": rounded(attacked.training_accuracy(models)),
            "auc": rounded(areas[LOSS]),
            "aucs": {name: rounded(area) for name, area in areas.items()},
            "curve": attacked.curve,
        }

    def _train(self, simulation: Simulation, attacked: _AttackedRun) -> list[tuple[Tensor, Tensor]]:
        """Models and what is seen of their gradients, both [V, P], at the observed iterations."""
        experiment, seed = attacked.experiment, attacked.seed
        steps, victims = experiment.steps, attacked.victims[: self.cosine_victims]
        apart = max(1, steps // self.observations)
        every = self.config.run.evaluate_every * experiment.round_length
        seen = []
        attacked.record(simulation)
        while simulation.t < steps:
            if simulation.t % apart == 0:
                gradients = next_gradients(simulation)[victims]
                if self.signs is not None:
                    gradients = self.signs.seen(gradients, seed * steps + simulation.t)
                seen.append((simulation.state.theta[victims].clone(), gradients))
            simulation.step()
            attacked.context.progress("training", simulation.t, steps)
            if simulation.t % every == 0 or simulation.t == steps:
                attacked.record(simulation)
        return seen

    def _cosine(self, attacked: _AttackedRun, seen: list[tuple[Tensor, Tensor]]) -> float:
        areas = []
        for place, victim in enumerate(attacked.victims[: self.cosine_victims]):
            points = torch.stack([models[place] for models, _ in seen])
            values = torch.stack([gradients[place] for _, gradients in seen])
            x, y = attacked.candidates[victim].to(attacked.context.device)
            scores = gradient_cosine_score(attacked.loss, points, values, x, y)
            areas.append(attacked.auc(victim, scores))
        return statistics.fmean(areas)

    def _with_shadows(self, attacked: _AttackedRun, models: Tensor) -> dict[str, float]:
        victim, experiment = attacked.victims[0], attacked.experiment
        one = (victim, experiment.steps)
        context = attacked.context
        options = AttackOptions(seconds=SECONDS, seed=attacked.seed, device=context.device)
        attacks = MembershipAttacks(
            experiment.setting, attacked.truth, victim, [one], 1e-5, options, context.progress
        )
        known = KnownModels(models[victim][None], (one,), "the final model", audited=False)
        found = attacks.on_models(known)
        return {each.score: each.roc.auc for each in found if each.score != LOSS}


class _AttackedRun:
    """The data behind a run, and scores of its models."""

    def __init__(self, experiment: Experiment, seed: int, context: MeasureContext) -> None:
        assert isinstance(experiment.task.loss, ModuleLoss)  # the configuration names a model
        self.experiment, self.seed, self.context = experiment, seed, context
        self.truth = Truth(experiment.task, seed)
        self.loss = experiment.task.loss.evaluated().to(context.device)
        self.curve: dict[str, list[float | None]] = {"round": [], "accuracy": [], "auc": []}

    @cached_property
    def candidates(self) -> dict[int, Candidates]:
        """Of each client that has enough samples."""
        truth, clients = self.truth, range(self.experiment.task.clients)
        found = {
            client: Candidates.of(truth.members(client), truth.non_members(client), self.seed)
            for client in clients
        }
        return {client: one for client, one in found.items() if one is not None}

    @property
    def victims(self) -> list[int]:
        return list(self.candidates)

    def auc(self, client: int, scores: Tensor) -> float:
        members = self.candidates[client].members
        scores = torch.nan_to_num(scores.cpu().double(), nan=-torch.inf)
        return Roc.from_scores(scores[members], scores[~members]).auc

    def loss_aucs(self, models: Tensor) -> list[float]:
        """Of each client's own model among [N, P]."""
        areas = []
        for client, candidates in self.candidates.items():
            x, y = candidates.to(self.context.device)
            areas.append(self.auc(client, loss_score(self.loss, models[client], x, y)))
        return areas

    def training_accuracy(self, models: Tensor) -> float:
        """The share of their own candidates that clients' models classify correctly, in percent."""
        shares = []
        for client, candidates in self.candidates.items():
            x, y = candidates.to(self.context.device)
            members = candidates.members.to(x.device)
            with torch.no_grad():
                right = self.loss.flat(models[client], x[members]).argmax(1) == y[members]
            shares.append(float(right.double().mean()))
        return 100 * statistics.fmean(shares)

    def record(self, simulation: Simulation) -> None:
        """Add the current models to the curve."""
        found = simulation.observe()
        assert found.accuracy is not None
        area = statistics.fmean(self.loss_aucs(simulation.state.theta))
        values = {"round": found.round, "accuracy": found.accuracy.mean, "auc": area}
        for name, value in values.items():
            self.curve[name].append(rounded(value))
