"""Sample canaries: a measured lower bound on ε for one sample of a client, from a single run.

The canaries are m inputs of the test set with wrong labels. A fair coin decides for each whether it
is among the victim's data, and the setting's own training runs once. The adversary scores each
canary by what it sees:

    gradients   Σₜ ⟨hᵢᵗ, gᵗ⟩/σₜ², with the victim's gradients gᵗ as the adversary computes them,
                exactly or with noise of deviation σₜ, and hᵢᵗ the gradient of canary i at the same
                model, less the mean over all canaries, scaled to length one
    model       −loss of the canary at the latest model that the adversary has

The coins share a run, so the bound is that of one run (`coin_guesses`). One sample is less than all
data of a client: the ledger's upper bound covers it, and this lower bound is usually far below.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import Evidence, evidence
from tacit.auditing.attacks.membership_scores import loss_score
from tacit.auditing.attacks.reconstruction_attacks import why_not_classifying
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.bounds.whole_run import ledger_of, whole_run_bound
from tacit.auditing.canaries.result import CanaryResult
from tacit.auditing.options import Progress
from tacit.auditing.scoring.coin_guesses import one_run_bound
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage, check_victim
from tacit.auditing.symbolic.replay import checked_run, without
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.record.transcript import Keep, Transcript
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Parts

TINY = 1e-150


@dataclass(frozen=True, eq=False)
class PlantedSamples:
    """Inputs with wrong labels, and which of them are among the victim's data, bool [m]."""

    x: Tensor
    y: Tensor
    coins: Tensor


def sample_canaries(
    setting: Setting,
    adversary: Adversary | str,
    victim: int = 0,
    *,
    count: int = 200,
    iterations: int = 10,
    steps: int | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> CanaryResult:
    """Train once with some of the canaries among a victim's data, and guess which.

    Args:
        setting: What determines the run. Its task must have a module, labels and a test set.
        adversary: Who guesses, or its text.
        victim: The client that gets canaries.
        count: How many canaries there are, at most as many as samples in the test set.
        iterations: How many iterations the adversary sees.
        steps: Iterations of the whole training. The adversary then scores by a corrupt client's
            trained model.
        delta: δ of the lower bound.
        confidence: Probability with which the lower bound holds.
        seed: Keys the choice of canaries, their labels and coins.
        progress: Called with a description, the iterations done and those in all.

    Raises:
        Misuse: If the task has no test set, or the adversary has neither gradients nor a model.
    """
    setting.require_static("Canaries")
    check_count("iterations", iterations)
    check_victim(victim, setting.graph.clients)
    begun = time.perf_counter()
    who = Adversary.parse(adversary) if isinstance(adversary, str) else adversary
    if victim in who.corrupt:
        raise Misuse(f"The victim {victim} is corrupt.", "Name an honest client.")
    if setting.task.local is not None:
        raise Misuse(
            "Canaries are scored by a trained model, and local parameters are not known.",
            "Audit the same task without `local`.",
        )
    samples = draw_samples(setting.task, count, seed)
    planted = replace(setting, task=plant(setting.task, victim, samples))
    transcript = Transcript(
        Keep(ticks=(0, iterations), insides=tuple(sorted(who.corrupt)), theta0=who.knows_theta0)
    )
    simulation = Simulation(planted, transcript=transcript)
    simulation.start()
    total = max(iterations, steps or 0)
    for done in range(1, total + 1):
        simulation.step()
        if progress is not None:
            progress("training with canaries", done, total)
    run, mismatches = checked_run(setting, iterations)
    loss = planted.task.loss
    assert isinstance(loss, ModuleLoss)  # checked by draw_samples
    loss = loss.evaluated()
    trained = None
    if who.corrupt and (total > iterations or mismatches):
        trained = simulation.state.theta[min(who.corrupt)].cpu()
    leakage = Leakage(Knowledge(without(run, mismatches), who), victim)
    scores, scored_by = _scores(loss, samples, leakage, transcript, trained)
    upper: Bound | None = None
    if total == iterations:
        ledger = ledger_of(setting, run, who, victim, delta=delta, mismatches=mismatches)
        upper = ledger.upper
    elif not mismatches:
        threat = Threat.of(setting, who, victim, delta)
        upper = whole_run_bound(setting.algorithm, setting.graph, threat, total)
    lower = one_run_bound(scores, samples.coins.numpy(), delta, confidence)
    return CanaryResult(
        "sample",
        victim,
        str(who),
        lower,
        upper,
        lower.epsilon,
        total,
        time.perf_counter() - begun,
        scored_by=scored_by,
    )


def draw_samples(task: Objective, count: int, seed: int) -> PlantedSamples:
    """Test inputs with random labels that are wrong, and fair coins."""
    others = Truth(task, seed).non_members(0)
    reason = why_not_classifying(task)
    if reason is None and not (Truth(task, seed).has_test_set and others is not None):
        reason = "the task has no test set, whose samples could be canaries"
    if reason is not None:
        raise Misuse(f"There can be no sample canaries: {reason}.", "Give tacit.Task a test.")
    assert others is not None
    x, y = others
    classes, rank = torch.unique(y, return_inverse=True)
    check_count("count", count, at_least=2)
    if count > len(x) or len(classes) < 2:
        raise Misuse(
            f"The test set has {len(x)} samples of {len(classes)} classes for {count} canaries.",
            f"Ask for at most {len(x)} canaries, of two classes or more.",
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(x), generator=generator)[:count]
    other = torch.randint(1, len(classes), (count,), generator=generator)
    wrong = classes[(rank[chosen] + other) % len(classes)]
    coins = torch.rand(count, generator=generator) < 0.5
    return PlantedSamples(x[chosen], wrong, coins)


def plant(task: Objective, victim: int, samples: PlantedSamples) -> Objective:
    """The task with the canaries whose coins are heads among the victim's data."""
    new = samples.x[samples.coins], samples.y[samples.coins]
    parts = task.parts
    if isinstance(parts, Parts):
        first = len(parts.arrays[0])
        arrays = [torch.cat(pair) for pair in zip(parts.arrays, new, strict=True)]
        ends = parts.offsets.tolist()
        owned = [parts.order[a:b] for a, b in itertools.pairwise(ends)]
        owned[victim] = torch.cat((owned[victim], first + torch.arange(len(new[0]))))
        return replace(task, parts=Parts.split(arrays, owned))
    assert isinstance(parts, Sequence)  # a task with a module has no stream
    held = list(parts)
    held[victim] = tuple(torch.cat(pair) for pair in zip(held[victim], new, strict=True))
    return replace(task, parts=held)


def _scores(
    loss: ModuleLoss,
    samples: PlantedSamples,
    leakage: Leakage,
    transcript: Transcript,
    trained: Tensor | None,
) -> tuple[Tensor, str]:
    """A score per canary [m], and what it is computed from."""
    if trained is not None:
        described = "the loss at the trained model of a corrupt client"
        return loss_score(loss, trained, samples.x, samples.y).double(), described
    series = leakage.of("gradient")
    indices = series.indices("exact") or series.indices("noisy")
    known = [evidence(leakage, "gradient", index, transcript) for index in indices]
    usable = [piece for piece in known if piece is not None and piece.points is not None]
    if usable:
        kind = "noisy" if usable[0].deviation else "exact"
        described = f"inner products with {len(usable)} {kind} gradients"
        return torch.stack([_alignment(loss, samples, piece) for piece in usable]).sum(0), described
    exact = leakage.of("model").indices("exact")
    model = evidence(leakage, "model", exact[-1], transcript) if exact else None
    if model is None:
        raise Misuse(
            f"{leakage.knowledge.adversary} has no gradient of {leakage.victim_text} at a model "
            "that it knows, and no model of it.",
            "Name a corrupt client and give `steps`: it scores by its own trained model.",
        )
    theta = model.values.to(loss.flat.dtype)
    described = f"the loss at the victim's model after {exact[-1]} iterations"
    return loss_score(loss, theta, samples.x, samples.y).double(), described


def _alignment(loss: Loss, samples: PlantedSamples, known: Evidence) -> Tensor:
    """Inner products [m] of the canaries' centred gradients with a gradient, over its variance."""
    assert known.points is not None
    theta = known.points[0].to(samples.x.dtype)

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        row: Tensor = grad(loss)(theta, x[None], y[None])
        return row

    rows = vmap(gradient, chunk_size=64)(samples.x, samples.y).detach().double()
    rows -= rows.mean(0)
    rows /= rows.norm(dim=1, keepdim=True).clamp(min=TINY)
    return rows @ known.values.double() / (known.deviation**2 if known.deviation else 1.0)
