"""What the best attack reconstructs where gradients are noisy sums over samples drawn at random.

A client that draws samples k with clipped gradients sends, under masks and noise, a part of

    v = Σₖ cₖ ∇L(θ; xₖ) + noise,   cₖ = min(1, C/‖∇L(θ; xₖ)‖)

The sum is that of the victim alone if the adversary knows so much, else that of all honest clients
it stays connected to. Attacks are given what they would not have: how many samples were drawn,
their labels, all cₖ, and the iteration in which the victim drew the fewest.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.evidence import Evidence, evidence
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.scoring.images import match, reorder
from tacit.auditing.scoring.reconstruction import score_reconstruction
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import Leakage, Question
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.core.hosted_clients import SamplingRule
from tacit.record.unknowns import Unknown
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.parts import Parts
from tacit.tasks.poisson import PoissonSampler
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded
from tacit_papers.measures.best_reconstruction import adversaries_of, best_attempt
from tacit_papers.measures.inversion_search import InversionSearch, grey_pictures
from tacit_papers.measures.observations import NO_IMAGES
from tacit_papers.measures.recorded_run import RecordedRun

QUESTIONS: tuple[Question, ...] = ("gradient", "sum")  # the more revealing first


@dataclass(frozen=True)
class SampledReconstruction(FieldDescription):
    """As `BestReconstruction`, with the same numbers, for sums over samples drawn at random."""

    label = ("sampled reconstruction", "config")
    config: Config
    searches: tuple[InversionSearch, ...]
    iterations: int = 8
    victims: int = 4

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        run = RecordedRun.record(self.config, self.iterations, seed, context)
        victims = [number * run.graph.clients // self.victims for number in range(self.victims)]
        drawn = DrawnSamples(run)
        values: Values = {}
        for suffix, adversaries in zip(
            ("", "_together"), adversaries_of(run, victims), strict=True
        ):
            found = [
                _least_crowded(run, drawn, adversary, victim)
                for adversary, victim in zip(adversaries, victims, strict=True)
            ]
            known = [one for one in found if one is not None]
            if not known:
                raise Misuse("No sum of any victim is known.", "Record more iterations.")
            tried = {
                f"{search.attack} {search.total_variation:g}": _mean(
                    [_invert(run, drawn, one, search, seed, context) for one in known]
                )
                for search in self.searches
            }
            values |= best_attempt(suffix, {"noisy": known}, tried)
        return values


class DrawnSamples:
    """The samples behind each sum of a recorded run."""

    def __init__(self, run: RecordedRun) -> None:
        parts = run.task.parts
        if not isinstance(parts, Parts):
            raise Misuse(*NO_IMAGES)
        clients = torch.arange(run.graph.clients)
        self._run, self._parts = run, parts
        # All clients are hosted, so an id is a row.
        self._sampler = PoissonSampler.of(parts, clients, clients)

    def indices(self, gradient: Unknown) -> Tensor:
        """Positions in the shared arrays of the samples behind one client's sum, int64 [k]."""
        run = self._run
        declared = run.symbols.samplings[gradient.when]
        rule = SamplingRule(declared.bound, declared.rate, declared.rounding)
        # Batch 0 belongs to the start, batch t + 1 to iteration t.
        draw = run.simulation.here.at(gradient.when - 1).sampling(rule, 0).draw
        sample = self._sampler.draw(rule.rate, draw)
        first, last = sample.bounds[gradient.client : gradient.client + 2].tolist()
        return sample.index[first:last]

    def of(self, gradients: Sequence[Unknown]) -> tuple[Tensor, Tensor]:
        """Inputs [k, *shape] and labels [k] of all samples behind some sums."""
        index = torch.cat([self.indices(one) for one in gradients])
        x, y = (array.cpu()[index] for array in self._parts.arrays[:2])
        return x, y

    def clip(self, gradient: Unknown) -> float:
        return self._run.symbols.samplings[gradient.when].clip


def _least_crowded(
    run: RecordedRun, drawn: DrawnSamples, adversary: Adversary, victim: int
) -> Evidence | None:
    """The sum with the fewest samples, at least one of them the victim's; None if there is none."""
    leakage = run.leakage(adversary, victim)
    for question in QUESTIONS:
        found = {
            index: sum(len(drawn.indices(term)) for term in terms)
            for index, terms in _known(leakage, question)
            if len(drawn.indices(next(term for term in terms if term.client == victim)))
        }
        for index in sorted(found, key=lambda index: found[index]):
            one = evidence(leakage, question, index, run.transcript)
            if one is not None and one.points is not None:
                return one
    return None


def _known(leakage: Leakage, question: Question) -> Iterator[tuple[int, tuple[Unknown, ...]]]:
    """The answers that are known, exactly or with noise, and the gradients in each."""
    for index, status in enumerate(leakage.of(question).statuses):
        if status != "hidden":
            yield index, leakage.terms(question, index)[0]


def _invert(
    run: RecordedRun,
    drawn: DrawnSamples,
    one: Evidence,
    search: InversionSearch,
    seed: int,
    context: MeasureContext,
) -> Values:
    truth = Truth(run.task, seed)
    loss, pool = run.task.loss, truth.non_members(one.victim)
    if not isinstance(loss, ModuleLoss) or pool is None or one.points is None:
        raise Misuse(*NO_IMAGES)
    x, y = drawn.of(one.terms)
    dtype, theta = loss.flat.dtype, one.points[0]
    spec = DataSpec.of(run.task, one.victim, pool)
    # All clients take their first gradients at the same model.
    points = theta.expand(len(x), -1)[None]
    scales = _clip_factors(loss, theta.to(dtype), x, y, drawn.clip(one.terms[0]))
    observation = Observation(
        *(t.to(context.device, dtype) for t in (points, scales, one.values[None])), False
    )
    found = invert(
        loss,
        observation,
        shape=spec.shape,
        batch=1,
        classes=spec.classes,
        labels=y[None, :, None],
        matching_loss=search.matching_loss,
        optimiser=search.optimiser,
        restarts=search.restarts,
        seed=seed,
        box=spec.box,
        progress=lambda i, of, _: context.progress("inverting a sum over samples", i, of),
    )
    guess, true = found.inputs.cpu().reshape(1, -1, *spec.shape), x[None]
    score = score_reconstruction(guess, true, y[None], *pool, seed)
    if score.attack.ssim is None or score.class_mean.ssim is None:
        raise Misuse(*NO_IMAGES)
    matched = reorder(guess, match(guess.double(), true.double()))
    return {
        "ssim": float(score.attack.ssim[0]),
        "ssim_of_class_mean": float(score.class_mean.ssim[0]),
        "pictures": {"truth": grey_pictures(x, spec), "guess": grey_pictures(matched[0], spec)},
    }


def _clip_factors(loss: ModuleLoss, theta: Tensor, x: Tensor, y: Tensor, bound: float) -> Tensor:
    """min(1, C/‖∇L(θ; xₖ)‖) of each sample [k]."""
    loss = loss.to("cpu")
    each = vmap(lambda a, b: grad(loss)(theta.cpu(), a[None], b[None]))(x, y)
    return (bound / each.norm(dim=1)).clamp(max=1.0)


def _mean(victims: Sequence[Values]) -> Values:
    """Means over victims, with the pictures of the first."""
    means = {
        name: rounded(statistics.fmean(one[name] for one in victims))
        for name in ("ssim", "ssim_of_class_mean")
    }
    return {**means, "pictures": victims[0]["pictures"]}
