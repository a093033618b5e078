"""What the best attack reconstructs from all that a neighbour, or all neighbours together, compute of a client.

The linear audit says what is known of the victim's gradients in the first iterations. An exact gradient is inverted and
nothing else; without one, whatever there is: the least noisy gradient, the first exact difference, the first exact sum
over the honest component, and what a non-linear step made of the first gradient, after its shift was taken off
(`unshifted`). Each is inverted in several ways, and the best one counts. Who knows labels can always hand in the mean
picture of the class, so that no leak is below that.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import Evidence, evidence
from tacit.auditing.attacks.reconstructions import best_evidence
from tacit.auditing.symbolic.findings import Findings
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.overheard import Overheard
from tacit_papers.measures.search import Search, inverted
from tacit_papers.measures.unshifted import unshifted

RESPONSE = "response"  # the tag of a non-linear step that leaves signs only
SIGNS, MULTIPLIED = "signs of the gradient", "gradient times a matrix"
Known = tuple[str, list[Evidence]]  # what it is, and one for each victim


@dataclass(frozen=True)
class Searches:
    """How evidence is inverted, by what it is."""

    exact: tuple[Search, ...]
    noisy: tuple[Search, ...]
    signs: tuple[Search, ...]
    several: tuple[Search, ...]  # differences and sums: as many batches as gradients

    def of(self, kind: str) -> tuple[Search, ...]:
        """Those for one kind of evidence."""
        if kind in ("difference", "sum"):
            return self.several
        if kind == MULTIPLIED:
            return self.noisy + self.signs
        return {"gradient": self.exact, SIGNS: self.signs}.get(kind, self.noisy)


@dataclass(frozen=True)
class BestReconstruction:
    """`leak` and `leak_together`: SSIM of what one neighbour, and all of them, reconstruct; and of what evidence.

    Victims are spread over the clients, the neighbour is the one with the lowest number. All know the first models.
    With a server there are no neighbours: then it is another client, and the server.
    """

    config: Config
    searches: Searches
    iterations: int = 8
    victims: int = 4

    def describe(self) -> dict[str, Any]:
        """Configuration, attacks and how long it is listened."""
        return {
            "best reconstruction": self.config.as_dict(),
            "searches": asdict(self.searches),
            "iterations": self.iterations,
            "victims": self.victims,
        }

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Listen to the first iterations, find out what is known, invert it."""
        heard = Overheard.of(self.config, self.iterations, seed, place)
        clients = heard.graph.clients
        victims = [number * clients // self.victims for number in range(self.victims)]
        done: dict[Any, Values] = {}
        values: Values = {}
        before: tuple[list[Adversary], dict[str, Values]] = ([], {})
        for name, adversaries in _adversaries(heard, victims).items():
            known = known_to(heard, adversaries, victims)
            tried = {
                f"{kind}, {search.attack} {search.total_variation:g}": self._inverted(
                    heard, kind, held, search, seed, place, done
                )
                for kind, held in known
                for search in self.searches.of(kind)
            }
            if _includes(adversaries, before[0]):  # then it can also do what the other did
                tried |= {f"{way}, of one": found for way, found in before[1].items()}
            values |= _summary(name, known, tried)
            before = adversaries, tried
        return values

    def _inverted(
        self,
        heard: Overheard,
        kind: str,
        held: list[Evidence],
        search: Search,
        seed: int,
        place: MeasureContext,
        done: dict[Any, Values],
    ) -> Values:
        """What is known alike to two adversaries is inverted once."""
        mark = (kind, tuple((one.terms, round(one.deviation, 9)) for one in held), search)
        if mark not in done:
            done[mark] = inverted(heard.task, seed, held, search, place)
        return done[mark]


def known_to(heard: Overheard, adversaries: list[Adversary], victims: list[int]) -> list[Known]:
    """The evidence of each kind that is there for every victim; of an exact gradient, that alone."""
    kinds: dict[str, list[Evidence]] = {}
    for adversary, victim in zip(adversaries, victims, strict=True):
        found = Findings(Knowledge(heard.symbols, adversary), victim)
        for kind, held in _evidence(heard, found):
            kinds.setdefault(kind, []).append(held)
    whole = [(kind, held) for kind, held in kinds.items() if len(held) == len(victims)]
    return [(kind, held) for kind, held in whole if kind == "gradient"] or whole


def _evidence(heard: Overheard, found: Findings) -> list[tuple[str, Evidence]]:
    held: list[tuple[str, Evidence]] = [
        (str(one.kind), one)
        for one in best_evidence(found, heard.transcript)
        if one.points is not None
    ]
    if any(kind in ("gradient", "noisy gradient") for kind, _ in held):
        return held
    taken = found.taken[0]
    theta0 = evidence(found, "model", 0, heard.transcript)
    if theta0 is None:
        return held
    kind, values = "", None
    told = [place for place in found.of("image").places("exact") if found.images[place].when <= 1]
    if told and found.images[told[0]].tag == RESPONSE:
        image = evidence(found, "image", told[0], heard.transcript)
        kind, values = SIGNS, None if image is None else image.values
    else:
        kind, values = MULTIPLIED, unshifted(heard, found.victim, theta0.values)
    if values is None:
        return held
    point = theta0.values[None]
    return [
        *held,
        (
            kind,
            Evidence(
                "noisy gradient", found.victim, (taken,), (1.0,), values, point, 0.0, 1.0, 0.0
            ),
        ),
    ]


def _adversaries(heard: Overheard, victims: list[int]) -> dict[str, list[Adversary]]:
    """For each victim one neighbour, and all."""
    clients, knows = heard.graph.clients, Adversary(knows_theta0=True)
    if any(message.verb == "average" for message in heard.transcript.messages):
        one = [Adversary.curious((victim + 1) % clients) | knows for victim in victims]
        return {"": one, "_together": [Adversary.server() | knows for _ in victims]}
    edges = heard.graph.edges.tolist()
    near = [
        sorted({s for s, t in edges if t == v} | {t for s, t in edges if s == v}) for v in victims
    ]
    return {
        "": [Adversary.curious(around[0]) | knows for around in near],
        "_together": [Adversary.curious(*around) | knows for around in near],
    }


def _includes(those: list[Adversary], others: list[Adversary]) -> bool:
    """Whether each of those has the other one among its clients."""
    return bool(others) and all(
        one.corrupt >= other.corrupt for one, other in zip(those, others, strict=True)
    )


def _summary(name: str, known: list[Known], tried: dict[str, Values]) -> Values:
    """The best of what was tried, each beside the class means of its own samples; names end with `name`."""
    if not tried:
        raise Misuse(
            "Nothing is known of the victims that could be inverted.", "Listen for more iterations."
        )
    best = max(tried, key=lambda way: tried[way]["ssim"] - tried[way]["ssim_of_class_mean"])
    found, floor = tried[best]["ssim"], tried[best]["ssim_of_class_mean"]
    if (
        found <= floor
    ):  # of samples that differ with the evidence, those that class means come nearest to
        floor = max(one["ssim_of_class_mean"] for one in tried.values())
    deviations = [one.deviation for _, held in known for one in held if one.deviation]
    return {
        f"leak{name}": max(found, floor),
        f"class_mean{name}": floor,
        f"by{name}": best if found > floor else "class mean",
        f"tried{name}": {way: one["ssim"] for way, one in tried.items()},
        f"noise{name}": statistics.fmean(deviations) if deviations else None,
        f"pictures{name}": tried[best]["pictures"],
    }
