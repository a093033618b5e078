"""Runs an audit: who learns what, proved, bounded and measured, for several adversaries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tacit.auditing.active.malicious import Malicious
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.reconstruction_attacks import (
    AttackOptions,
    Progress,
    why_not_attackable,
)
from tacit.auditing.attacks.suite import AttackSuite
from tacit.auditing.bounds.coalition_bounds import coalition_bounds
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.bounds.whole_run import with_whole_run
from tacit.auditing.canaries.measured import CanaryMeasurements
from tacit.auditing.client_names import client_name
from tacit.auditing.options import AuditOptions
from tacit.auditing.result import AdversaryResult, Audit
from tacit.auditing.symbolic.coalitions import neighbours_of, worst_coalition
from tacit.auditing.symbolic.exposure import compute_exposure
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage, check_victim
from tacit.auditing.symbolic.replay import replay, without
from tacit.auditing.symbolic.symbols import SymbolicRun, run_on_symbols
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.record.transcript import Keep, Transcript
from tacit.simulation import Setting, Simulation

MAX_HEAT_MAP = 30  # clients in a heat map, by default


def default_adversaries(run: SymbolicRun, victim: int) -> list[str]:
    """The worst one and two neighbours, all of them, an eavesdropper, and the server if any."""
    neighbours = neighbours_of(run, victim)
    sizes = [size for size in (1, 2) if size <= len(neighbours) and size < run.clients - 1]
    adversaries = [f"worst({size})" for size in sizes if size == 1 or size < len(neighbours)]
    if 1 < len(neighbours) < run.clients:
        adversaries.append(str(Adversary.curious(*neighbours)))
    adversaries.append("eavesdropper")
    if any(message.verb == "average" for message in run.transcript.messages):
        adversaries.append("server")
    return adversaries


def run_audit(
    setting: Setting,
    adversaries: Sequence[Adversary | str] | None = None,
    options: AuditOptions = AuditOptions(),
) -> Audit:
    """Audit the first iterations of a run.

    Args:
        setting: What determines the run.
        adversaries: Adversaries or their text, such as "curious(1,4)" or "worst(2)", the two
            neighbours of the first victim that learn most together; by default those of
            `default_adversaries`.
        options: What the audit covers, and how it is done.
    """
    victims, iterations, steps = list(options.victims), options.iterations, options.steps
    transcript, report = options.transcript, options.report
    check_count("iterations", iterations)
    notes: list[str] = []
    if not victims:
        raise Misuse("No victim is named.", "Name at least one client.")
    for victim in victims:
        check_victim(victim, setting.graph.clients)
    report("running the algorithm on symbols", 0, 1)
    # Proofs and bounds are about all messages, attacks about the recorded ones.
    common_start = setting.start_alike
    on_symbols = partial(run_on_symbols, setting.algorithm, setting.world, iterations)
    run = on_symbols(common_start=common_start)
    report("comparing symbols with numbers", 0, 1)
    width = setting.task.parameters
    mismatches = replay(setting.algorithm, setting.world, run, width=width)
    run = without(run, mismatches)
    remarks = [f"{one.what}: it is left out of what is proved" for one in mismatches]
    remarks += setting.algorithm.audit_remarks(setting.graph)
    if setting.task.disclosure:
        # Beside the messages that the audit looks at.
        remarks.append(f"before training, {setting.task.disclosure}")
    remarks += [] if setting.task.local is None else [setting.task.local.describe()]
    names = setting.task.names
    chosen = [
        _resolved(given, run, victims[0], names, remarks, report)
        for given in adversaries or default_adversaries(run, victims[0])
    ]
    if not adversaries and transcript is not None:
        insides = set(transcript.keep.insides)
        notes += [
            f"what {adversary} learns: its state was not recorded (`insides` of the transcript)"
            for adversary in chosen
            if not adversary.corrupt <= insides
        ]
        chosen = [adversary for adversary in chosen if adversary.corrupt <= insides]
    edges = [(s, t) for s, t in setting.graph.edges.tolist()]
    for adversary in chosen:
        adversary.check_graph(setting.graph.clients, edges)
        if adversary.malicious and not isinstance(setting.algorithm, Malicious):
            raise Misuse(
                f"{adversary} deviates, but this run is one without malicious clients.",
                "Use tacit.audit or run_audit_with_malicious.",
            )
        if adversary.corrupt.issuperset(victims):
            raise Misuse(f"All victims of {adversary} are corrupt.", "Name an honest client.")
    if transcript is None:
        transcript = record_iterations(setting, chosen, iterations, report)
    keep = transcript.keep
    last = transcript.last_tick
    if last < iterations:
        raise Misuse(
            f"The audit needs {iterations} iterations, but the transcript has {last}.",
            f"Audit at most {last}, or record more.",
        )
    recorded = run
    if keep != Keep(insides=keep.insides, theta0=keep.theta0):
        recorded = without(on_symbols(keep, common_start=common_start), mismatches)
        if run.transcript.row_count > recorded.transcript.row_count:
            notes.append("attacks on messages that the transcript did not keep")
    suite = canaries = None
    effort = AttackOptions() if options.attacks is True else options.attacks or None
    changing = not setting.world.is_static
    if changing:
        remarks.append(f"{setting.world}; the proofs follow it, iteration by iteration")
        if steps is not None and steps > iterations:
            notes.append("bounds for the whole run: their proof needs iterations that are alike")
        if effort or options.canaries:
            notes.append("canaries: they need a fixed graph, all clients and no delay")
    elif (trials := effort or options.canaries) is not None:
        canaries = CanaryMeasurements(setting, run, steps, trials, report, notes)
    if effort is not None:
        if (reason := why_not_attackable(setting.task)) is not None:
            notes.append(reason)
        else:
            suite = AttackSuite(
                setting,
                victims,
                options.delta,
                effort,
                options.final,
                report,
                notes,
                adversaries=chosen,
                iterations=iterations,
                steps=steps,
            )
    messages = _first_iterations(transcript, iterations)
    clip, parameters = setting.task.clip, setting.task.parameters
    results: list[AdversaryResult] = []
    for adversary in chosen:
        report(f"computing what {adversary} knows", 0, 1)
        knowledge = Knowledge(run, adversary)
        if not knowledge.seen:
            raise Misuse(
                f"{adversary} sees no message of this run.",
                "Choose another, e.g. a neighbour of the victim.",
            )
        honest = [victim for victim in victims if victim not in adversary.corrupt]
        leakage = [Leakage(knowledge, victim) for victim in honest]
        bound = partial(compute_ledger, run, adversary, clip=clip, parameters=parameters)
        ledgers = [bound(victim, delta=options.delta, mismatches=mismatches) for victim in honest]
        if steps is not None and steps > iterations:
            ledgers = [
                replace(ledger, run_steps=steps)
                if changing
                else with_whole_run(ledger, setting, adversary, steps)
                for ledger in ledgers
            ]
        attacked = leakage
        if suite is not None and recorded is not run:
            less = Knowledge(recorded, adversary)
            attacked = [Leakage(less, victim) for victim in honest]
        measured = suite.run(attacked, messages) if suite is not None else ([], [])
        result = AdversaryResult(adversary, leakage, ledgers, *measured)
        if canaries is not None:
            earlier = [one for other in results for one in other.canaries]
            sums = [one for other in results for one in other.gradient_canaries]
            result = replace(
                result,
                canaries=canaries.of_clients(adversary, ledgers, earlier),
                gradient_canaries=canaries.of_sums(adversary, ledgers, sums),
                sample_canaries=canaries.of_samples(adversary, ledgers),
            )
        results.append(result)
    exposure = None
    clients = setting.graph.clients
    if options.heat_map or (options.heat_map is None and clients <= MAX_HEAT_MAP):
        exposure = compute_exposure(
            run, progress=lambda client: report("computing exposure", client + 1, clients)
        )
    coalitions = []
    if any(ledger.only_sum_of is not None for result in results for ledger in result.ledgers):
        report("bounding what coalitions learn", 0, 1)
        coalitions = coalition_bounds(setting, steps or iterations, options.delta)
        shown = {len(one.example) for one in coalitions}
        if coalitions and (missing := sorted(set(range(1, clients)) - shown)):
            remarks.append(f"coalitions of {missing[0]} to {missing[-1]} clients are not all shown")
    return Audit(
        setting, iterations, victims, results, exposure, notes, remarks, coalitions=coalitions
    )


def _resolved(
    given: Adversary | str,
    run: SymbolicRun,
    victim: int,
    names: tuple[str, ...],
    remarks: list[str],
    report: Progress,
) -> Adversary:
    """An adversary from its text; a coalition by number becomes the worst of that size."""
    if isinstance(given, Adversary):
        return replace(given, names=names)
    if (match := re.fullmatch(r"\s*worst\(\s*(\d+)\s*\)\s*", given)) is None:
        return replace(Adversary.parse(given), names=names)
    size = int(match[1])
    what = f"searching the worst coalition of {size}"
    found = worst_coalition(run, victim, size, lambda done, of: report(what, done, of))
    adversary = replace(found.adversary, names=names)
    if found.possible > 1:
        kind = "neighbours" if size == 1 else f"coalitions of {size} neighbours"
        whose = f"client {client_name(victim, names)}"
        remarks.append(f"{adversary} is {found.scope} {kind} of {whose}")
    return adversary


def record_iterations(
    setting: Setting, adversaries: Sequence[Adversary], iterations: int, report: Progress
) -> Transcript:
    """The messages of the first iterations, and what corrupt clients hold."""
    insides = sorted({client for adversary in adversaries for client in adversary.corrupt})
    theta0 = any(adversary.knows_theta0 for adversary in adversaries)
    transcript = Transcript(Keep(insides=tuple(insides), theta0=theta0))
    simulation = Simulation(setting, transcript=transcript)
    simulation.start()
    for iteration in range(iterations):
        simulation.step()
        report("recording messages", iteration + 1, iterations)
    return transcript


def _first_iterations(transcript: Transcript, iterations: int) -> Transcript:
    """The messages up to an iteration, on the CPU."""
    messages = [message for message in transcript.messages if message.tick <= iterations]
    return replace(
        transcript,
        steps=iterations,
        messages=[replace(message, rows=message.rows.cpu()) for message in messages],
        held={unknown: row.cpu() for unknown, row in transcript.held.items()},
    )
