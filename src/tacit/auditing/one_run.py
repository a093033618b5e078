"""Audits one run: who learns what, proved, bounded and measured, for several adversaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tacit.auditing.adversary import Adversary
from tacit.auditing.adversary_choice import choose_adversaries
from tacit.auditing.attacks.reconstruction_attacks import why_not_attackable
from tacit.auditing.attacks.suite import AttackSuite
from tacit.auditing.bounds.coalition_bounds import CoalitionBound, coalition_bounds
from tacit.auditing.bounds.whole_run import ledger_of
from tacit.auditing.canaries.measured import CanaryMeasurements
from tacit.auditing.findings import AdversaryResult
from tacit.auditing.options import AttackOptions, AuditOptions, Progress
from tacit.auditing.result import Audit
from tacit.auditing.symbolic.algorithm_text import REMEDY, Line, first_nonlinear_line
from tacit.auditing.symbolic.exposure import compute_exposure
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage, check_victim
from tacit.auditing.symbolic.replay import Mismatch, replay, without
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.record.transcript import Keep, Transcript

MAX_HEAT_MAP = 30  # clients in a heat map, by default


def audit_one_run(
    setting: Setting,
    adversaries: Sequence[Adversary | str] | None = None,
    options: AuditOptions = AuditOptions(),
) -> Audit:
    """Audit the first iterations of a run, by adversaries that take part in it as it is.

    The arguments are those of `run_audit`.
    """
    victims, iterations, report = list(options.victims), options.iterations, options.report
    check_count("iterations", iterations)
    if not victims:
        raise Misuse("No victim is named.", "Name at least one client.")
    for victim in victims:
        check_victim(victim, setting.graph.clients)
    report("running the algorithm on symbols", 0, 1)
    # Proofs and bounds are about all messages, attacks about the recorded ones.
    on_symbols = partial(run_on_symbols, setting.algorithm, setting.world, iterations)
    run = on_symbols(common_start=setting.start_alike)
    report("comparing symbols with numbers", 0, 1)
    mismatches = replay(setting.algorithm, setting.world, run, width=setting.task.parameters)
    line = None
    if mismatches:
        width = len(run.unknowns) + 1
        line = first_nonlinear_line(partial(on_symbols, common_start=setting.start_alike), width)
    run = without(run, mismatches)
    remarks = _remarks(setting, mismatches, line)
    notes: list[str] = []
    transcript = options.transcript
    chosen = choose_adversaries(setting, run, adversaries or (), options, notes, remarks)
    if transcript is None:
        transcript = record_iterations(setting, chosen, iterations, report)
    _check_length(transcript, iterations)
    keep, recorded = transcript.keep, run
    if keep != Keep(insides=keep.insides, theta0=keep.theta0):
        recorded = without(on_symbols(keep, common_start=setting.start_alike), mismatches)
        if run.transcript.row_count > recorded.transcript.row_count:
            notes.append("attacks on messages that the transcript did not keep")
    effort = AttackOptions() if options.attacks is True else options.attacks or None
    canaries = _canaries(setting, run, options, effort or options.canaries, notes, remarks)
    suite = _suite(setting, chosen, options, effort, notes)
    messages = _first_iterations(transcript, iterations)
    results: list[AdversaryResult] = []
    for adversary in chosen:
        report(f"computing what {adversary} knows", 0, 1)
        knowledge = Knowledge(run, adversary)
        if not knowledge.seen and mismatches:
            where = f": see {line}" if line is not None else ""
            raise Misuse(
                f"No message of {setting.algorithm.name} can be followed: {mismatches[0].what}"
                f"{where}.",
                REMEDY,
            )
        if not knowledge.seen:
            raise Misuse(
                f"{adversary} sees no message of this run.",
                "Choose another, e.g. a neighbour of the victim.",
            )
        honest = [victim for victim in victims if victim not in adversary.corrupt]
        leakage = [Leakage(knowledge, victim) for victim in honest]
        bound = partial(ledger_of, setting, run, adversary, mismatches=mismatches)
        ledgers = [bound(victim, delta=options.delta, steps=options.steps) for victim in honest]
        attacked = leakage
        if suite is not None and recorded is not run:
            less = Knowledge(recorded, adversary)
            attacked = [Leakage(less, victim) for victim in honest]
        measured = suite.run(attacked, messages) if suite is not None else ([], [])
        result = AdversaryResult(adversary, leakage, ledgers, *measured)
        results.append(result if canaries is None else _with_canaries(result, canaries, results))
    exposure = None
    clients = setting.graph.clients
    if options.heat_map or (options.heat_map is None and clients <= MAX_HEAT_MAP):
        exposure = compute_exposure(
            run, progress=lambda client: report("computing exposure", client + 1, clients)
        )
    coalitions = _coalitions(setting, results, options, remarks)
    return Audit(
        setting, iterations, victims, results, exposure, notes, remarks, coalitions=coalitions
    )


def _remarks(setting: Setting, mismatches: Sequence[Mismatch], line: Line | None) -> list[str]:
    """What a reader must know about the run before any adversary."""
    task = setting.task
    remarks = [f"{mismatch.what}: it is left out of what is proved" for mismatch in mismatches]
    if line is not None:
        remarks.append(f"the first step that is not linear is {line}. {REMEDY.rstrip('.')}")
    remarks += setting.algorithm.audit_remarks(setting.graph)
    if task.disclosure:
        # Beside the messages that the audit looks at.
        remarks.append(f"before training, {task.disclosure}")
    return remarks if task.local is None else [*remarks, task.local.describe()]


def _check_length(transcript: Transcript, iterations: int) -> None:
    if (last := transcript.last_tick) < iterations:
        raise Misuse(
            f"The audit needs {iterations} iterations, but the transcript has {last}.",
            f"Audit at most {last}, or record more.",
        )


def _canaries(
    setting: Setting,
    run: SymbolicRun,
    options: AuditOptions,
    trials: AttackOptions | None,
    notes: list[str],
    remarks: list[str],
) -> CanaryMeasurements | None:
    """What measures canaries, where that is asked for and possible."""
    steps = options.steps
    if not setting.world.is_static:
        remarks.append(f"{setting.world}; the proofs follow it, iteration by iteration")
        if steps is not None and steps > options.iterations:
            notes.append("bounds for the whole run: their proof needs iterations that are alike")
        if trials is not None:
            notes.append("canaries: they need a fixed graph, all clients and no delay")
        return None
    if trials is None:
        return None
    return CanaryMeasurements(setting, run, options, trials, notes)


def _suite(
    setting: Setting,
    chosen: Sequence[Adversary],
    options: AuditOptions,
    effort: AttackOptions | None,
    notes: list[str],
) -> AttackSuite | None:
    """The attacks, where they are asked for and possible."""
    if effort is None:
        return None
    if (reason := why_not_attackable(setting.task)) is not None:
        notes.append(reason)
        return None
    return AttackSuite(setting, chosen, options, effort, notes)


def _with_canaries(
    result: AdversaryResult, canaries: CanaryMeasurements, others: Sequence[AdversaryResult]
) -> AdversaryResult:
    """The result with its canaries; those of others are used again if they see the same."""
    earlier = [measured for other in others for measured in other.canaries]
    return replace(result, canaries=canaries.of(result.adversary, result.ledgers, earlier))


def _coalitions(
    setting: Setting,
    results: Sequence[AdversaryResult],
    options: AuditOptions,
    remarks: list[str],
) -> list[CoalitionBound]:
    """Bounds for coalitions of every size, if noisy sums are all that they learn."""
    if all(ledger.only_sum_of is None for result in results for ledger in result.ledgers):
        return []
    options.report("bounding what coalitions learn", 0, 1)
    bounds = coalition_bounds(setting, options.steps or options.iterations, options.delta)
    shown = {len(bound.example) for bound in bounds}
    if bounds and (missing := sorted(set(range(1, setting.graph.clients)) - shown)):
        remarks.append(f"coalitions of {missing[0]} to {missing[-1]} clients are not all shown")
    return bounds


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
