"""An audit from end to end: who learns what, proved, bounded and measured, for several adversaries of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

import tacit
from tacit.arguments import is_count
from tacit.audit.adversary import Adversary
from tacit.audit.evidence import evidence
from tacit.audit.exposure import Exposure, exposure
from tacit.audit.findings import Findings
from tacit.audit.knowledge import Knowledge
from tacit.audit.ledger import Ledger, ledger
from tacit.audit.memberships import Membership, MembershipAttacks
from tacit.audit.reconstructions import (
    Attack,
    Effort,
    Inversions,
    Progress,
    best_evidence,
    not_invertible,
)
from tacit.audit.scoring.truth import Truth
from tacit.audit.symbols import run_on_symbols
from tacit.errors import Misuse
from tacit.record.transcript import Keep, Transcript
from tacit.simulation import Setting, Simulation
from tacit.tasks.flat import ModuleLoss

MOST_IN_HEAT_MAP = 30  # clients, unless it is asked for
COSINES = 5  # gradients that a membership attack compares with


@dataclass(frozen=True, eq=False)
class View:
    """What one adversary learns."""

    adversary: Adversary
    findings: list[Findings]  # per victim
    ledgers: list[Ledger]
    attacks: list[Attack]
    memberships: list[Membership]


@dataclass(frozen=True, eq=False)
class Audit:
    """What leaks in a run."""

    setting: Setting
    iterations: int
    victims: list[int]
    views: list[View]
    exposure: Exposure | None
    notes: list[str] = field(default_factory=list)  # what was not measured, and why

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as audit.json has them."""
        from tacit.audit.verdict import ASSUMPTIONS, verdict

        return {
            "version": tacit.__version__,
            "algorithm": self.setting.algorithm.name,
            "options": repr(self.setting.algorithm),
            "graph": self.setting.graph.describe(),
            "clients": self.setting.graph.clients,
            "parameters": self.setting.task.parameters,
            "seed": self.setting.seed,
            "iterations": self.iterations,
            "victims": self.victims,
            "adversaries": [
                {
                    "adversary": str(view.adversary),
                    "verdict": [verdict(view, found.victim).as_dict() for found in view.findings],
                    "proved": [found.as_dict() for found in view.findings],
                    "bounded": [one.as_dict() for one in view.ledgers],
                    "measured": {
                        "inversion": [attack.as_dict() for attack in view.attacks],
                        "membership": [one.as_dict() for one in view.memberships],
                    },
                }
                for view in self.views
            ],
            "exposure": None if self.exposure is None else self.exposure.as_dict(),
            "assumptions": list(ASSUMPTIONS),
            "notes": self.notes,
        }


def usual_adversaries(setting: Setting, victim: int) -> list[Adversary]:
    """A neighbour, all neighbours together, an eavesdropper; and a server where messages pass through one."""
    edges = setting.graph.edges.tolist()
    near = sorted({t for s, t in edges if s == victim} | {s for s, t in edges if t == victim})
    found = [Adversary.curious(near[0])] if near else []
    if 1 < len(near) < setting.graph.clients:
        found.append(Adversary.curious(*near))
    found.append(Adversary.eavesdropper())
    trial = run_on_symbols(setting.algorithm, setting.graph, 1)
    if any(message.verb == "average" for message in trial.transcript.messages):
        found.append(Adversary.server())
    return found


def conduct(
    setting: Setting,
    adversaries: Sequence[Adversary | str] | None = None,
    *,
    victims: Sequence[int] = (0,),
    iterations: int = 10,
    delta: float = 1e-5,
    effort: Effort | None = None,
    attacks: bool = True,
    heat_map: bool | None = None,
    transcript: Transcript | None = None,
    final: Tensor | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit the first iterations of a run.

    Messages are taken from a `transcript` that was recorded, or recorded now: the same setting says the same again.
    `final` [N, P] are the trained models, for membership inference; without them it sees those of the iterations
    audited. `heat_map` draws who learns what from whom; by default up to 30 clients.
    """
    if not is_count(iterations):
        raise Misuse(f"iterations is {iterations!r}.", "Give a whole number of at least 1.")
    victims = list(victims)
    _refuse_victims(victims, setting.graph.clients)
    chosen = [Adversary.parse(a) if isinstance(a, str) else a for a in adversaries or ()]
    notes: list[str] = []
    chosen = chosen or _recorded(usual_adversaries(setting, victims[0]), transcript, notes)
    for adversary in chosen:
        adversary.refuse(setting.graph.clients, [(s, t) for s, t in setting.graph.edges.tolist()])
        if set(victims) <= adversary.corrupt:
            raise Misuse(f"All victims of {adversary} are corrupt themselves.", "Name an honest client.")
    said = progress or (lambda what, done, of: None)
    if transcript is None:
        transcript = _record(setting, chosen, iterations, said)
    else:
        _refuse_unrecorded(transcript, iterations)
    said("running the algorithm on symbols", 0, 1)
    run = run_on_symbols(setting.algorithm, setting.graph, iterations, transcript.keep)
    whole = run  # of what was said, not only kept
    if transcript.keep != Keep(insides=transcript.keep.insides, theta0=transcript.keep.theta0):
        whole = run_on_symbols(setting.algorithm, setting.graph, iterations)
        if _size(whole.transcript) > _size(run.transcript):
            notes.append(
                "messages that the transcript did not keep; what is proved is of those it kept, what is bounded of all"
            )
    heard = _cut(transcript, iterations)
    attackers = None
    if attacks:
        attackers = Attackers.of(setting, victims, delta, effort or Effort(), final, said, notes)
    views = []
    for adversary in chosen:
        said(f"what {adversary} knows", 0, 1)
        know = Knowledge(run, adversary)
        if not know.seen:
            raise Misuse(
                f"{adversary} sees no message of this run.", "Choose another, e.g. a neighbour of the victim."
            )
        found = [Findings(know, victim) for victim in victims if victim not in adversary.corrupt]
        clip, width = setting.task.clip, setting.task.parameters
        ledgers = [
            ledger(whole, adversary, one.victim, clip=clip, parameters=width, delta=delta) for one in found
        ]
        inverted, members = ([], []) if attackers is None else attackers.attack(found, heard)
        views.append(View(adversary, found, ledgers, inverted, members))
    exposed = None
    if heat_map or (heat_map is None and setting.graph.clients <= MOST_IN_HEAT_MAP):
        clients = setting.graph.clients
        exposed = exposure(whole, progress=lambda a: said("who learns what from whom", a + 1, clients))
    return Audit(setting, iterations, victims, views, exposed, notes)


@dataclass(frozen=True, eq=False)
class Attackers:
    """What is needed to measure, for all adversaries."""

    inversions: Inversions
    memberships: dict[int, MembershipAttacks]  # by victim
    final: Tensor | None  # trained models [N, P]
    notes: list[str]

    @classmethod
    def of(
        cls,
        setting: Setting,
        victims: Sequence[int],
        delta: float,
        effort: Effort,
        final: Tensor | None,
        progress: Progress,
        notes: list[str],
    ) -> Attackers | None:
        """None, with a note, where gradients of this task are not attacked."""
        task = setting.task
        if (reason := not_invertible(task)) is not None:
            notes.append(reason)
            return None
        assert isinstance(task.loss, ModuleLoss)
        truth = Truth(task, setting.seed)
        members = {
            victim: MembershipAttacks(task.loss, truth, victim, delta=delta, effort=effort, progress=progress)
            for victim in victims
        }
        for victim, attacks in members.items():
            if attacks.candidates is None:
                notes.append(f"client {victim} has too few samples of its own for membership inference")
        return cls(Inversions(task, truth, effort, progress), members, final, notes)

    def attack(self, found: list[Findings], transcript: Transcript) -> tuple[list[Attack], list[Membership]]:
        """Everything on all victims of one adversary."""
        held = [held for one in found for held in best_evidence(one, transcript)]
        for one in held:
            if (reason := self.inversions.passes_over(one)) is not None:
                self._note(
                    f"the {one.kind} that {found[0].knowledge.adversary} has of client {one.victim}: {reason}"
                )
        inverted = self.inversions.of(held)
        members = []
        for each in found:
            attacks = self.memberships[each.victim]
            known = self._model(each, transcript)
            if known is None:
                self._note(f"{each.knowledge.adversary} knows no model: no membership inference by models")
            else:
                members += attacks.on_model(*known)
            series = each.of("gradient")
            places = (series.places("exact") or series.places("noisy"))[:COSINES]
            gradients = [evidence(each, "gradient", place, transcript) for place in places]
            members += attacks.on_gradients([held for held in gradients if held is not None])
        return inverted, members

    def _model(self, found: Findings, transcript: Transcript) -> tuple[Tensor, str] | None:
        """A model that the adversary has, the later the better, and which it is."""
        series, own = found.of("model"), sorted(found.knowledge.adversary.corrupt)
        exact = series.places("exact")
        if self.final is not None and exact:
            words = (
                "the victim's trained model, taken to be known as its models were in the iterations audited"
            )
            return self.final[found.victim], words
        if self.final is not None and own:
            return self.final[
                own[0]
            ], f"the trained model of corrupt client {own[0]}, in place of the victim's"
        if not exact or (last := evidence(found, "model", exact[-1], transcript)) is None:
            return None
        return last.values, f"the victim's model after {exact[-1]} iterations: early in training"

    def _note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)


def _record(
    setting: Setting, adversaries: Sequence[Adversary], iterations: int, said: Progress
) -> Transcript:
    """Run and listen."""
    insides = sorted({client for adversary in adversaries for client in adversary.corrupt})
    told = any(adversary.knows_theta0 for adversary in adversaries)
    transcript = Transcript(Keep(insides=tuple(insides), theta0=told))
    simulation = Simulation(
        setting.algorithm,
        setting.task,
        setting.graph,
        seed=setting.seed,
        device=setting.device,
        gradients=setting.gradients,
        transcript=transcript,
    )
    simulation.start()
    for iteration in range(iterations):
        simulation.step()
        said("running and listening", iteration + 1, iterations)
    return transcript


def _recorded(usual: list[Adversary], transcript: Transcript | None, notes: list[str]) -> list[Adversary]:
    """Those of the usual adversaries whose insides were recorded, where that was done before."""
    if transcript is None:
        return usual
    insides = set(transcript.keep.insides)
    for adversary in usual:
        if not adversary.corrupt <= insides:
            notes.append(
                f"what {adversary} learns: what it holds was not recorded (`insides` of the transcript)"
            )
    return [adversary for adversary in usual if adversary.corrupt <= insides]


def _size(transcript: Transcript) -> int:
    return sum(len(message.rows) for message in transcript.messages)


def _cut(transcript: Transcript, iterations: int) -> Transcript:
    """The messages up to an iteration, on the CPU."""
    messages = [message for message in transcript.messages if message.tick <= iterations]
    return Transcript(
        transcript.keep,
        transcript.clients,
        transcript.edges,
        iterations,
        [replace(message, rows=message.rows.cpu()) for message in messages],
        {name: row.cpu() for name, row in transcript.held.items()},
    )


def _refuse_unrecorded(transcript: Transcript, iterations: int) -> None:
    last = (
        transcript.steps if transcript.keep.ticks is None else min(transcript.steps, transcript.keep.ticks[1])
    )
    if last < iterations:
        raise Misuse(
            f"The audit shall see {iterations} iterations, but the transcript ends with iteration {last}.",
            f"Audit up to {last}, or record the run with more.",
        )


def _refuse_victims(victims: Sequence[int], clients: int) -> None:
    if not victims:
        raise Misuse("No victim is named.", "Name at least one client.")
    for victim in victims:
        if not is_count(victim, 0) or victim >= clients:
            raise Misuse(
                f"There is no client {victim!r} to be the victim.", f"Name one from 0 to {clients - 1}."
            )
