"""An audit from end to end: who learns what, proved, bounded and measured, for several adversaries of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

import tacit
from tacit.arguments import is_count
from tacit.audit.adversary import Adversary
from tacit.audit.evidence import Evidence, evidence
from tacit.audit.exposure import Exposure, exposure
from tacit.audit.findings import Findings
from tacit.audit.knowledge import Knowledge
from tacit.audit.ledger import Ledger, ledger
from tacit.audit.memberships import Candidates, Membership, infer_membership
from tacit.audit.reconstructions import (
    Attack,
    Effort,
    Progress,
    best_evidence,
    not_invertible,
    reconstruct,
)
from tacit.audit.scoring.truth import Truth
from tacit.audit.symbols import SymbolicRun, run_on_symbols
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
                    "verdict": [verdict(view, victim).as_dict() for victim in self.victims_of(view)],
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

    def victims_of(self, view: View) -> list[int]:
        """The victims in the order of a view's findings."""
        return [found.victim for found in view.findings]


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
    `final` [N, P] are the trained models, for membership inference; without them it sees those of the last iteration
    audited. `heat_map` draws who learns what from whom; by default up to 30 clients.
    """
    if not is_count(iterations):
        raise Misuse(f"iterations is {iterations!r}.", "Give a whole number of at least 1.")
    victims = list(victims)
    _refuse_victims(victims, setting.graph.clients)
    chosen = [Adversary.parse(a) if isinstance(a, str) else a for a in adversaries or ()]
    chosen = chosen or usual_adversaries(setting, victims[0])
    for adversary in chosen:
        adversary.refuse(setting.graph.clients, [(s, t) for s, t in setting.graph.edges.tolist()])
        if set(victims) <= adversary.corrupt:
            raise Misuse(f"All victims of {adversary} are corrupt themselves.", "Name an honest client.")
    said = progress or (lambda what, done, of: None)
    if transcript is None:
        transcript, final_here = _record(setting, chosen, iterations, said)
    else:
        final_here = None
        if transcript.steps < iterations or not transcript.keep.at(iterations):
            raise Misuse(
                f"The transcript has {transcript.steps} iterations"
                + ("" if transcript.keep.ticks is None else f", of which {transcript.keep.ticks} were kept")
                + f"; the audit shall see {iterations}.",
                f"Audit fewer with iterations = {transcript.steps}, or record more.",
            )
    said("running the algorithm on symbols", 0, 1)
    run = run_on_symbols(setting.algorithm, setting.graph, iterations, transcript.keep)
    transcript = _cut(transcript, iterations)
    audit = Audit(setting, iterations, victims, [], None)
    for adversary in chosen:
        audit.views.append(
            _view(
                audit, run, transcript, adversary, delta, effort or Effort(), attacks, final, final_here, said
            )
        )
    exposed = None
    if heat_map or (heat_map is None and setting.graph.clients <= MOST_IN_HEAT_MAP):
        clients = setting.graph.clients
        everyone = (
            run
            if transcript.keep.clients is None
            else run_on_symbols(setting.algorithm, setting.graph, iterations)
        )
        exposed = exposure(everyone, progress=lambda a: said("who learns what from whom", a + 1, clients))
    return Audit(setting, iterations, victims, audit.views, exposed, audit.notes)


def _view(
    audit: Audit,
    run: SymbolicRun,
    transcript: Transcript,
    adversary: Adversary,
    delta: float,
    effort: Effort,
    attacks: bool,
    final: Tensor | None,
    final_here: Tensor | None,
    said: Progress,
) -> View:
    setting = audit.setting
    task = setting.task
    said(f"what {adversary} knows", 0, 1)
    know = Knowledge(run, adversary)
    if not know.seen:
        raise Misuse(
            f"{adversary} sees no message in this run.",
            "Choose another adversary, e.g. a neighbour of the victim.",
        )
    found = [Findings(know, victim) for victim in audit.victims if victim not in adversary.corrupt]
    ledgers = [
        ledger(run, adversary, one.victim, clip=task.clip, parameters=task.parameters, delta=delta)
        for one in found
    ]
    held = {one.victim: best_evidence(one, transcript) for one in found} if attacks else {}
    reason = not_invertible(task)
    if attacks and reason is not None and reason not in audit.notes:
        audit.notes.append(reason)
    inverted: list[Attack] = []
    members: list[Membership] = []
    if attacks and reason is None:
        truth = Truth(task, setting.seed)
        inverted = reconstruct(task, truth, [one for each in held.values() for one in each], effort, said)
        for one in found:
            members += _membership(audit, one, transcript, truth, delta, effort, final, final_here, said)
    return View(adversary, found, ledgers, inverted, members)


def _membership(
    audit: Audit,
    found: Findings,
    transcript: Transcript,
    truth: Truth,
    delta: float,
    effort: Effort,
    final: Tensor | None,
    final_here: Tensor | None,
    said: Progress,
) -> list[Membership]:
    loss = audit.setting.task.loss
    candidates = Candidates.of(truth, found.victim, effort.seed)
    if candidates is None or not isinstance(loss, ModuleLoss):
        note = f"client {found.victim} has too few samples of its own for membership inference"
        if note not in audit.notes:
            audit.notes.append(note)
        return []
    know = found.knowledge
    exact = found.of("model").places("exact")
    own = sorted(know.adversary.corrupt)
    models = final if final is not None else final_here
    if exact and (models is None or exact[-1] < found.of("model").when[-1] - 1):
        last = evidence(found, "model", exact[-1], transcript)
        assert last is not None
        theta, known = last.values, f"the victim's model after iteration {exact[-1]} is known exactly"
    elif models is not None and exact:
        theta, known = models[found.victim], "the victim's last model is known, as all models before it were"
    elif models is not None and own:
        theta, known = models[own[0]], f"the model of corrupt client {own[0]}, in place of the victim's"
    else:
        note = f"{know.adversary} knows no model: membership inference left out"
        if note not in audit.notes:
            audit.notes.append(note)
        return []
    series = found.of("gradient")
    places = (series.places("exact") or series.places("noisy"))[:COSINES]
    gradients: list[Evidence] = []
    for place in places:
        if (one := evidence(found, "gradient", place, transcript)) is not None:
            gradients.append(one)
    return infer_membership(
        loss,
        theta,
        known,
        gradients,
        candidates,
        found.victim,
        delta=delta,
        seed=effort.seed,
        seconds=effort.seconds,
        progress=said,
    )


def _record(
    setting: Setting, adversaries: Sequence[Adversary], iterations: int, said: Progress
) -> tuple[Transcript, Tensor]:
    """Run and listen; also the models at the end."""
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
    theta: Tensor = simulation.state.theta
    return transcript, theta.cpu()


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


def _refuse_victims(victims: Sequence[int], clients: int) -> None:
    if not victims:
        raise Misuse("No victim is named.", "Name at least one client.")
    for victim in victims:
        if not is_count(victim, 0) or victim >= clients:
            raise Misuse(
                f"There is no client {victim!r} to be the victim.", f"Name one from 0 to {clients - 1}."
            )
