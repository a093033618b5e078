"""What the best attack reconstructs where gradients are noisy sums over samples drawn at random.

A client that draws samples k has, under masks and noise, a part in

    v = Σₖ cₖ ∇L(θ; xₖ) + noise,   cₖ = min(1, C/‖∇L(θ; xₖ)‖)

The sum is that of the victim alone if the adversary knows so much, else that of all honest clients
it stays connected to. The attack is that of the guarantee: it knows every sample but one of the
victim's, subtracts the others, and inverts cₖ∇L(θ; xₖ) + noise. It knows cₖ and the label, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from tacit.auditing.symbolic.leakage import Question
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
CHUNK = 64  # gradients of single samples at a time


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
        drawn = DrawnSamples.of(run)
        values: Values = {}
        for suffix, adversaries in zip(
            ("", "_together"), adversaries_of(run, victims), strict=True
        ):
            known = [
                one
                for adversary, victim in zip(adversaries, victims, strict=True)
                if (one := known_sum(run, drawn, adversary, victim)) is not None
            ]
            if not known:
                raise Misuse("No sum of any victim is known.", "Record more iterations.")
            single = [SingleSample.of(run, drawn, one) for one in known]
            tried = {
                f"{search.attack} {search.total_variation:g}": _invert(
                    run, single, search, seed, context
                )
                for search in self.searches
            }
            values |= best_attempt(suffix, {"noisy": known}, tried)
        return values


@dataclass(frozen=True, eq=False)
class DrawnSamples:
    """The samples behind each sum of a recorded run."""

    run: RecordedRun
    parts: Parts
    sampler: PoissonSampler

    @classmethod
    def of(cls, run: RecordedRun) -> DrawnSamples:
        parts, clients = run.task.parts, torch.arange(run.graph.clients)
        if not isinstance(parts, Parts):
            raise Misuse(*NO_IMAGES)
        # All clients are hosted, so an id is a row.
        return cls(run, parts, PoissonSampler.of(parts, clients, clients))

    def indices(self, gradient: Unknown) -> Tensor:
        """Positions in the shared arrays of the samples behind one client's sum, int64 [k]."""
        declared = self.run.symbols.samplings[gradient.when]
        rule = SamplingRule(declared.bound, declared.rate, declared.rounding)
        # Batch 0 belongs to the start, batch t + 1 to iteration t.
        draw = self.run.simulation.here.at(gradient.when - 1).sampling(rule, 0).draw
        sample = self.sampler.draw(rule.rate, draw)
        first, last = sample.bounds[gradient.client : gradient.client + 2].tolist()
        return sample.index[first:last]

    def behind(self, gradients: Sequence[Unknown]) -> tuple[Tensor, Tensor]:
        """Inputs [k, *shape] and labels [k] of all samples behind some sums."""
        index = torch.cat([self.indices(one) for one in gradients])
        x, y = (array.cpu()[index] for array in self.parts.arrays[:2])
        return x, y

    def clip(self, gradient: Unknown) -> float:
        return self.run.symbols.samplings[gradient.when].clip


def known_sum(
    run: RecordedRun, drawn: DrawnSamples, adversary: Adversary, victim: int
) -> Evidence | None:
    """The first sum with a sample of the victim, and a known model; None if there is none."""
    leakage = run.leakage(adversary, victim)
    for question in QUESTIONS:
        for index, status in enumerate(leakage.of(question).statuses):
            terms = leakage.terms(question, index)[0]
            own = next(term for term in terms if term.client == victim)
            if status == "hidden" or not len(drawn.indices(own)):
                continue
            found = evidence(leakage, question, index, run.transcript)
            if found is not None and found.points is not None:
                return found
    return None


@dataclass(frozen=True, eq=False)
class SingleSample:
    """∇L(θ; x) + noise, after everything else in a sum was subtracted."""

    victim: int
    theta: Tensor  # [P]
    values: Tensor  # [P]
    x: Tensor  # [*shape]
    y: Tensor

    @classmethod
    def of(cls, run: RecordedRun, drawn: DrawnSamples, known: Evidence) -> SingleSample:
        loss, points = run.task.loss, known.points
        if not isinstance(loss, ModuleLoss) or points is None:
            raise Misuse(*NO_IMAGES)
        rest, sample, factor = known.values.cpu().double(), None, 1.0
        for term, theta in zip(known.terms, points.cpu(), strict=True):
            if not len(drawn.indices(term)):
                continue
            x, y = drawn.behind([term])
            gradients = sample_gradients(loss, theta, x, y)
            factors = (drawn.clip(term) / gradients.norm(dim=1)).clamp(max=1.0)
            first = int(term.client == known.victim)
            rest = rest - (factors[first:, None] * gradients[first:]).sum(0).double()
            if first:
                sample, factor = (theta, x[0], y[0]), float(factors[0])
        assert sample is not None  # so chosen by known_sum
        return cls(known.victim, sample[0], rest / factor, *sample[1:])


def sample_gradients(loss: ModuleLoss, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """∇L(θ; xₖ) of each sample [k, P]."""
    at, own = theta.to("cpu", loss.flat.dtype), loss.to("cpu")
    each = vmap(lambda a, b: grad(own)(at, a[None], b[None]))
    starts = range(0, len(x), CHUNK)
    return torch.cat([each(x[k : k + CHUNK], y[k : k + CHUNK]) for k in starts])


def _invert(
    run: RecordedRun,
    single: Sequence[SingleSample],
    search: InversionSearch,
    seed: int,
    context: MeasureContext,
) -> Values:
    """The scores of all victims, inverted at once."""
    loss, pool = run.task.loss, Truth(run.task, seed).non_members(single[0].victim)
    if not isinstance(loss, ModuleLoss) or pool is None:
        raise Misuse(*NO_IMAGES)
    spec = DataSpec.of(run.task, single[0].victim, pool)
    theta, values = (
        torch.stack([getattr(one, name) for one in single]).to(context.device, loss.flat.dtype)
        for name in ("theta", "values")
    )
    x, y = (torch.stack([getattr(one, name) for one in single]) for name in ("x", "y"))
    found = invert(
        loss,
        Observation.gradient(theta, values),
        replace(spec, batch=1),
        labels=y[:, None],
        matching_loss=search.matching_loss,
        optimiser=search.optimiser,
        restarts=search.restarts,
        seed=seed,
        progress=lambda i, of, _: context.progress("inverting a noisy sum", i, of),
    )
    guess, true = found.inputs.cpu().reshape(x[:, None].shape), x[:, None]
    score = score_reconstruction(guess, true, y[:, None], *pool, seed)
    if score.attack.ssim is None or score.class_mean.ssim is None:
        raise Misuse(*NO_IMAGES)
    matched = reorder(guess, match(guess.double(), true.double()))
    return {
        "ssim": rounded(float(score.attack.ssim.mean())),
        "ssim_of_class_mean": rounded(float(score.class_mean.ssim.mean())),
        "pictures": {
            "truth": grey_pictures(true[0], spec),
            "guess": grey_pictures(matched[0], spec),
        },
    }
