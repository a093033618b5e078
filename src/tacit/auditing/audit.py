"""An audit from end to end: who learns what, proved, bounded and measured, for several adversaries of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import Tensor

import tacit
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.attackers import Attackers
from tacit.auditing.attacks.memberships import Membership
from tacit.auditing.attacks.reconstructions import Attack, Effort, Progress
from tacit.auditing.bounds.ledger import Ledger, ledger
from tacit.auditing.symbolic.exposure import Exposure, exposure
from tacit.auditing.symbolic.findings import Findings
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.arguments import is_count
from tacit.core.errors import Misuse
from tacit.record.transcript import Keep, Transcript
from tacit.simulation import Setting, Simulation

MOST_IN_HEAT_MAP = 30  # clients, unless it is asked for


@dataclass(frozen=True, eq=False)
class View:
    """What one adversary learns."""

    adversary: Adversary
    findings: list[Findings]  # per victim
    ledgers: list[Ledger]
    attacks: list[Attack]
    memberships: list[Membership]

    def ledger_of(self, victim: int) -> Ledger:
        """The ledger of one victim."""
        (found,) = [one for one in self.ledgers if one.victim == victim]
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What leaks in a run. Printed, it is the verdict; data of victims are in `views` and not shown."""

    setting: Setting
    iterations: int
    victims: list[int]
    views: list[View]
    exposure: Exposure | None
    notes: list[str] = field(default_factory=list)  # what was not measured, and why

    def __repr__(self) -> str:
        from tacit.auditing.verdict import verdict

        lines = [f"Audit({self.setting.algorithm.name}, {self.iterations} iterations)"]
        for view in self.views:
            for found in view.findings:
                words = verdict(view, found.victim)
                lines.append(
                    f"  {words.headline}: {words.summary}; {view.ledger_of(found.victim).upper.words}"
                )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as audit.json has them."""
        from tacit.auditing.verdict import ASSUMPTIONS, verdict

        return {
            "version": tacit.__version__,
            "algorithm": self.setting.algorithm.name,
            "options": repr(self.setting.algorithm),
            "clip": None if self.setting.task.clip is None else asdict(self.setting.task.clip),
            "batch_size": self.setting.task.batch_size,
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


def run_audit(
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
            raise Misuse(
                f"All victims of {adversary} are corrupt themselves.", "Name an honest client."
            )
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
            notes.append("attacks on messages that the transcript did not keep")
    heard = _cut(transcript, iterations)
    attackers = None
    if attacks:
        attackers = Attackers.of(setting, victims, delta, effort or Effort(), final, said, notes)
    views = []
    for adversary in chosen:
        said(f"what {adversary} knows", 0, 1)
        know = Knowledge(whole, adversary)
        if not know.seen:
            raise Misuse(
                f"{adversary} sees no message of this run.",
                "Choose another, e.g. a neighbour of the victim.",
            )
        honest = [victim for victim in victims if victim not in adversary.corrupt]
        found = [Findings(know, victim) for victim in honest]
        clip, width = setting.task.clip, setting.task.parameters
        ledgers = [
            ledger(whole, adversary, one.victim, clip=clip, parameters=width, delta=delta)
            for one in found
        ]
        inverted: list[Attack] = []
        members: list[Membership] = []
        if attackers is not None:
            kept = (
                found
                if run is whole
                else [Findings(Knowledge(run, adversary), victim) for victim in honest]
            )
            inverted, members = attackers.attack(kept, heard)
        views.append(View(adversary, found, ledgers, inverted, members))
    exposed = None
    if heat_map or (heat_map is None and setting.graph.clients <= MOST_IN_HEAT_MAP):
        clients = setting.graph.clients
        exposed = exposure(
            whole, progress=lambda a: said("who learns what from whom", a + 1, clients)
        )
    return Audit(setting, iterations, victims, views, exposed, notes)


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
        prg=setting.prg,
        transcript=transcript,
    )
    simulation.start()
    for iteration in range(iterations):
        simulation.step()
        said("running and listening", iteration + 1, iterations)
    return transcript


def _recorded(
    usual: list[Adversary], transcript: Transcript | None, notes: list[str]
) -> list[Adversary]:
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
        transcript.steps
        if transcript.keep.ticks is None
        else min(transcript.steps, transcript.keep.ticks[1])
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
                f"There is no client {victim!r} to be the victim.",
                f"Name one from 0 to {clients - 1}.",
            )
