"""Malicious clients, next to the same clients when they follow the protocol.

Each behaviour is simulated from the start and audited like any run. Three statements differ.

Proved: in a linear algorithm a malicious client changes messages by rows that the adversary knows,
so what follows from them by linear combinations is the same as without it. What it can change is
where gradients are taken, and with which weights.

Bounded: the bound holds whatever malicious clients send (`bound_for_any_rows`).

Measured: samples recovered and membership, against those of the honest clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

from tacit.auditing.active.behaviours import BEHAVIOURS, DEVIATES, ECHO, IMPRINTS, ISOLATE
from tacit.auditing.active.gains import Gain, Outcome
from tacit.auditing.active.imprint import ASSUMED, imprinted
from tacit.auditing.active.malicious import ArbitraryRows, Malicious, message_kinds
from tacit.auditing.active.recovered import count_recovered
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.bounds.whole_run import ledger_of
from tacit.auditing.findings import AdversaryResult
from tacit.auditing.one_run import audit_one_run, record_iterations
from tacit.auditing.options import AttackOptions, AuditOptions
from tacit.auditing.result import Audit
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import check_victim
from tacit.auditing.symbolic.replay import checked_run, without
from tacit.core.errors import Misuse
from tacit.engines.robust_mixing import Robust
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation

TRAINED = 100  # iterations, at most, of the models whose members are inferred


def check_behaviour(setting: Setting, adversary: Adversary, victim: int) -> Setting:
    """The setting in which malicious clients attack a victim.

    Raises:
        Misuse: They cannot, in this way.
    """
    behaviour, malicious = adversary.behaviour, adversary.malicious
    name = adversary.name_of(victim)
    setting.require_static("Proofs about malicious clients")
    edges = {(int(s), int(t)) for s, t in setting.graph.edges}
    if isinstance(setting.algorithm, Robust):
        raise Misuse(
            "What malicious clients learn is not known where mixing is robust: the rows that they "
            "send decide which rows of others enter the result, and the proofs do not follow that.",
            "Audit curious clients, and read the remarks; or audit the algorithm without [robust].",
        )
    if setting.task.local is not None:
        raise Misuse(
            "What malicious clients recover is not measured for models with local parameters.",
            "Audit curious clients, or the same task without `local`.",
        )
    if behaviour in DEVIATES:
        verbs = {kind.verb for kind in message_kinds(setting.algorithm, setting.graph).values()}
        wanted = {"mix", "send"} if behaviour == ECHO else {"mix"}
        if verbs.isdisjoint(wanted):
            raise Misuse(
                f"{setting.algorithm.name} has no message in which {behaviour} is possible.",
                "Choose another behaviour, e.g. imprint.",
            )
        if not any((client, victim) in edges for client in malicious):
            who = ", ".join(map(adversary.name_of, sorted(malicious)))
            near = ", ".join(adversary.name_of(s) for s, t in sorted(edges) if t == victim)
            raise Misuse(
                f"What malicious client {who} sends does not reach client {name}.",
                f"Name a neighbour of the victim: {near}.",
            )
        if behaviour in (ECHO, ISOLATE) and victim not in adversary.sees_senders(sorted(edges)):
            raise Misuse(
                f"{adversary} does not see what client {name} sends.",
                "Choose the behaviour override, or clients that the victim sends to.",
            )
    if behaviour in IMPRINTS:
        setting = imprinted(setting, victim)
    algorithm = Malicious(setting.algorithm, setting.graph, adversary, victim)
    return replace(setting, algorithm=algorithm)


def bound_for_any_rows(
    setting: Setting,
    adversary: Adversary,
    victim: int,
    iterations: int,
    delta: float = 1e-5,
    steps: int | None = None,
) -> Ledger:
    """The guarantee for a victim that holds whatever malicious clients send, adaptively or not.

    All that malicious clients send are unknowns of their own (`ArbitraryRows`), which the adversary
    knows: a bound on such a run holds for every value of them, also for values that depend on
    earlier messages. The ledger's bounds survive this. They already count what other clients
    compute as known, a clipped gradient is bounded at every model, and the noise that hides it is
    drawn by honest clients. Not covered: numbers other than rows of models, such as counts, which
    an algorithm may multiply noise by (there is no bound then), and rounding: a malicious client
    can make a victim's model so large that its gradient is rounded to a multiple of its
    sensitivity.

    Args:
        setting: The run, without malicious clients.
        adversary: Its malicious clients may send anything, at any time; others are honest.
        victim: The client whose data are at stake.
        iterations: How many iterations the bound covers.
        delta: δ of the guarantee, where it is not pure.
        steps: Length of the whole run, for a bound on all of it.
    """
    anything = replace(adversary, behaviour=None)
    algorithm = ArbitraryRows(setting.algorithm, setting.graph, anything)
    setting = replace(setting, algorithm=algorithm)
    run, mismatches = checked_run(setting, iterations)
    if run.plain_messages:
        tag = run.transcript.messages[min(run.plain_messages)].tag
        why = f"malicious clients choose {tag!r}, which is not one number per parameter"
        scope = f"the first {run.steps} iterations, whatever malicious clients send"
        return Ledger(victim, str(adversary), scope, Bound.none(why), delta)
    ledger = ledger_of(
        setting,
        without(run, mismatches),
        anything,
        victim,
        delta=delta,
        mismatches=mismatches,
        steps=steps,
    )
    return replace(
        ledger,
        scope=f"{ledger.scope}, whatever malicious clients send, if arithmetic is exact",
    )


@dataclass(eq=False)
class Comparison:
    """Results of malicious adversaries and of their passive counterparts, as they are added."""

    setting: Setting
    options: AuditOptions
    results: list[AdversaryResult] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    # Texts as keys, so that each is there once, in order.
    notes: dict[str, None] = field(default_factory=dict)
    remarks: dict[str, None] = field(default_factory=dict)
    _passive: dict[tuple[Adversary, int], Outcome] = field(default_factory=dict)

    def add(self, adversary: Adversary, victim: int) -> None:
        """Audit one adversary and victim: passively, then with each behaviour."""
        setting, graph, options = self.setting, self.setting.graph, self.options
        check_victim(victim, graph.clients)
        adversary.check_graph(graph.clients, [(int(s), int(t)) for s, t in graph.edges])
        if victim in adversary.corrupt:
            who = f"Client {adversary.name_of(victim)}"
            raise Misuse(
                f"{who} is corrupt: it cannot be the victim of {adversary}.",
                "Name an honest client.",
            )
        settings: dict[Adversary, Setting] = {}
        refused: list[Misuse] = []
        names = BEHAVIOURS if adversary.behaviour is None else (adversary.behaviour,)
        for name in names:
            deviating = replace(adversary, behaviour=name)
            try:
                settings[deviating] = check_behaviour(setting, deviating, victim)
            except Misuse as problem:
                refused.append(problem)
                against = f"{deviating} against client {deviating.name_of(victim)}"
                self.notes[f"{against}: {problem.problem.rstrip('.')}"] = None
        if not settings:
            raise refused[0]
        key = adversary.passive, victim
        if key not in self._passive:
            self._passive[key] = self._outcome(setting, key[0], victim, None)
        bound = bound_for_any_rows(
            setting, adversary, victim, options.iterations, options.delta, options.steps
        )
        for deviating, wrapped in settings.items():
            who = str(deviating)
            if deviating.behaviour in IMPRINTS:
                self.remarks[f"{who}: {ASSUMED}"] = None
            outcome = self._outcome(wrapped, deviating, victim, replace(bound, adversary=who))
            if options.attacks is not False:
                self.gains.append(
                    Gain(who, victim, deviating.name_of(victim), self._passive[key], outcome)
                )

    def _outcome(
        self, setting: Setting, adversary: Adversary, victim: int, bound: Ledger | None
    ) -> Outcome:
        """Audit one run, keep its result, and count what its attacks recovered."""
        given = self.options
        transcript = record_iterations(setting, [adversary], given.iterations, given.report)
        options = replace(
            given,
            victims=[victim],
            attacks=self._attacks(adversary),
            heat_map=False,
            transcript=transcript,
            final=None if given.attacks is False else self._trained(setting),
        )
        audit = audit_one_run(setting, [adversary], options)
        (result,) = audit.results
        if bound is not None:
            result = replace(result, ledgers=[bound])
        self.results.append(result)
        self.notes |= dict.fromkeys(audit.notes)
        self.remarks |= dict.fromkeys(audit.remarks)
        if given.attacks is False:
            return Outcome((), None)
        truth = Truth(setting.task, int(setting.seed))
        recovered = count_recovered(result.leakage[0], transcript, truth, result.reconstructions)
        scored = (member for member in result.memberships if member.victim == victim)
        best = max(scored, key=lambda member: member.roc.auc, default=None)
        return Outcome(tuple(recovered), best)

    def _attacks(self, adversary: Adversary) -> bool | AttackOptions:
        """How hard attacks try. Canaries are copies of the whole graph, of honest clients only."""
        attacks = self.options.attacks
        if attacks is False or not adversary.malicious:
            return attacks
        effort = AttackOptions() if attacks is True else attacks
        return replace(effort, canary_trials=0, sample_canaries=0)

    def _trained(self, setting: Setting) -> Tensor | None:
        """Models after up to TRAINED iterations with the adversary; None if they diverge."""
        options = self.options
        steps = min(TRAINED, max(options.iterations, options.steps or options.iterations))
        simulation = Simulation(setting, allow_divergence=True)
        simulation.start()
        for t in range(steps):
            simulation.step()
            options.report("training", t + 1, steps)
        theta: Tensor = simulation.state.theta.cpu()
        return theta if bool(theta.isfinite().all()) else None

    def beside(self, audit: Audit) -> Audit:
        """An audit of other adversaries of the same run, with these results."""
        remarks = dict.fromkeys(audit.remarks)
        if self.options.transcript is not None or self.options.final is not None:
            remarks |= {"malicious clients are simulated anew, from the configuration": None}
        return replace(
            audit,
            results=[*audit.results, *self.results],
            notes=list(dict.fromkeys((*audit.notes, *self.notes))),
            remarks=list(remarks | self.remarks),
            gains=self.gains,
        )
