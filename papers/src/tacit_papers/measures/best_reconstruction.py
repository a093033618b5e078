"""What the best attack reconstructs from everything that neighbours compute about a client.

The linear audit finds what is known about the victim's gradients in the first iterations. An exact
gradient is inverted and nothing else. Without one, everything is: the least noisy gradient, the
first exact difference, other combination, combination with few other clients, sum over the honest
component, and the result of a non-linear step on the first gradient, after its shift is removed
(`protection_removal`). Each is
inverted in several ways, and the best one counts. An adversary that knows labels can always present
the mean picture of the class, so no leak is below that.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import Evidence, evidence
from tacit.auditing.attacks.known_evidence import best_evidence
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.coalitions import worst_coalition
from tacit.auditing.symbolic.leakage import Leakage
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values
from tacit_papers.measures.inversion_search import InversionSearch, invert_evidence
from tacit_papers.measures.protection_removal import first_gradient
from tacit_papers.measures.recorded_run import RecordedRun

RESPONSE = "response"  # the tag of a non-linear step that leaves only signs
SIGNS, MULTIPLIED = "signs of the gradient", "gradient times a matrix"


@dataclass(frozen=True)
class SearchesByEvidence:
    """How each kind of evidence is inverted."""

    exact: tuple[InversionSearch, ...]
    noisy: tuple[InversionSearch, ...]
    signs: tuple[InversionSearch, ...]
    several: tuple[InversionSearch, ...]  # of several gradients: as many batches as gradients

    def of(self, kind: str) -> tuple[InversionSearch, ...]:
        if kind in ("difference", "combination", "group", "sum"):
            return self.several
        if kind == MULTIPLIED:
            return self.noisy + self.signs
        return {"gradient": self.exact, SIGNS: self.signs}.get(kind, self.noisy)


@dataclass(frozen=True)
class MatrixSearches(SearchesByEvidence):
    """The same with searches that know the distribution of the random matrix."""

    multiplied: tuple[InversionSearch, ...]

    def of(self, kind: str) -> tuple[InversionSearch, ...]:
        return super().of(kind) + (self.multiplied if kind == MULTIPLIED else ())


@dataclass(frozen=True)
class BestReconstruction(FieldDescription):
    """SSIM of what one neighbour (`leak`) and all of them (`leak_together`) reconstruct.

    Victims are spread over the clients; the neighbour is the one that learns most. All know the
    first models. With a server there are no neighbours: then it is another client, and the
    server.
    """

    label = ("best reconstruction", "config")
    config: Config
    searches: SearchesByEvidence
    iterations: int = 8
    victims: int = 4

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        run = RecordedRun.record(self.config, self.iterations, seed, context)
        victims = [number * run.graph.clients // self.victims for number in range(self.victims)]
        truth = Truth(run.task, seed)
        # Evidence that two adversaries share is inverted once.
        done: dict[Any, Values] = {}

        def invert_all(known: dict[str, list[Evidence]]) -> dict[str, Values]:
            tried = {}
            for kind, found in known.items():
                for search in self.searches.of(kind):
                    same = (kind, *((one.terms, round(one.deviation, 9)) for one in found), search)
                    if same not in done:
                        done[same] = invert_evidence(truth, found, search, context)
                    tried[f"{kind}, {search.attack} {search.total_variation:g}"] = done[same]
            return tried

        one, coalition = adversaries_of(run, victims)
        known, known_together = (
            available_evidence(run, adversaries, victims) for adversaries in (one, coalition)
        )
        tried, tried_together = invert_all(known), invert_all(known_together)
        # A coalition can do what its member does; the server is no coalition of clients.
        if all(each.corrupt >= its.corrupt for each, its in zip(coalition, one, strict=True)):
            tried_together |= {f"{way}, of one": scores for way, scores in tried.items()}
        return best_attempt("", known, tried) | best_attempt(
            "_together", known_together, tried_together
        )


def available_evidence(
    run: RecordedRun, adversaries: list[Adversary], victims: list[int]
) -> dict[str, list[Evidence]]:
    """The evidence available about every victim, by kind; only gradients, if they are exact."""
    kinds: dict[str, list[Evidence]] = {}
    for adversary, victim in zip(adversaries, victims, strict=True):
        for kind, found in _evidence(run, run.leakage(adversary, victim)).items():
            kinds.setdefault(kind, []).append(found)
    complete = {kind: found for kind, found in kinds.items() if len(found) == len(victims)}
    return {"gradient": complete["gradient"]} if "gradient" in complete else complete


def _evidence(run: RecordedRun, leakage: Leakage) -> dict[str, Evidence]:
    best = best_evidence(leakage, run.transcript)
    # What a random matrix made of a gradient is found below, where the shift is removed too.
    found: dict[str, Evidence] = {
        str(one.kind): one for one in best if one.points is not None and one.step is None
    }
    theta0 = evidence(leakage, "model", 0, run.transcript)
    if theta0 is None or not {"gradient", "noisy gradient"}.isdisjoint(found):
        return found
    exact = leakage.of("image").indices("exact")
    first = next((index for index in exact if leakage.images[index].when <= 1), None)
    if first is not None and leakage.images[first].tag == RESPONSE:
        image = evidence(leakage, "image", first, run.transcript)
        kind, values = SIGNS, None if image is None else image.values
    else:
        kind, values = MULTIPLIED, first_gradient(run, leakage.victim, theta0.values)
    if values is not None:
        found[kind] = Evidence(
            kind="noisy gradient",
            victim=leakage.victim,
            terms=(leakage.gradients[0],),
            coefficients=(1.0,),
            values=values,
            points=theta0.values[None],
            deviation=0.0,
            gain=1.0,
            rounding=0.0,
        )
    return found


def adversaries_of(run: RecordedRun, victims: list[int]) -> tuple[list[Adversary], list[Adversary]]:
    """For each victim one neighbour, and all of them."""
    clients, first_model = run.graph.clients, Adversary(knows_theta0=True)
    if any(message.verb == "average" for message in run.transcript.messages):
        one = [Adversary.curious((victim + 1) % clients) | first_model for victim in victims]
        return one, [Adversary.server() | first_model for _ in victims]
    edges = run.graph.edges.tolist()
    near = [
        sorted({s for s, t in edges if t == v} | {t for s, t in edges if s == v}) for v in victims
    ]
    worst = [worst_coalition(run.symbols, victim, 1).adversary for victim in victims]
    one = [neighbour | first_model for neighbour in worst]
    return one, [Adversary.curious(*around) | first_model for around in near]


def best_attempt(suffix: str, known: dict[str, list[Evidence]], tried: dict[str, Values]) -> Values:
    """The best attempt, each compared with the class means of its own samples."""
    if not tried:
        raise Misuse(
            "The adversary knows nothing about the victims that could be inverted.",
            "Record more iterations.",
        )
    best = max(tried, key=lambda way: tried[way]["ssim"] - tried[way]["ssim_of_class_mean"])
    found, floor = tried[best]["ssim"], tried[best]["ssim_of_class_mean"]
    # Samples differ with the evidence: take those for which the class mean is best.
    if found <= floor:
        floor = max(one["ssim_of_class_mean"] for one in tried.values())
    deviations = [one.deviation for group in known.values() for one in group if one.deviation]
    return {
        f"leak{suffix}": max(found, floor),
        f"class_mean{suffix}": floor,
        f"by{suffix}": best if found > floor else "class mean",
        f"tried{suffix}": {way: one["ssim"] for way, one in tried.items()},
        f"noise{suffix}": statistics.fmean(deviations) if deviations else None,
        f"pictures{suffix}": tried[best]["pictures"],
    }
