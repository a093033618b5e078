"""Which adversaries an audit examines: those that are asked for, or the usual ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tacit.auditing.active.malicious import Malicious
from tacit.auditing.adversary import Adversary
from tacit.auditing.client_names import client_name
from tacit.auditing.options import AuditOptions, Progress
from tacit.auditing.symbolic.coalitions import neighbours_of, worst_coalition
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting


def choose_adversaries(
    setting: Setting,
    run: SymbolicRun,
    given: Sequence[Adversary | str],
    options: AuditOptions,
    notes: list[str],
    remarks: list[str],
) -> list[Adversary]:
    """The adversaries that are given, or the usual ones whose state a transcript has.

    Args:
        setting: What determines the run.
        run: The run on symbols.
        given: Adversaries or their text; empty for the usual ones.
        options: Victims and transcript.
        notes: Gets a note for each adversary that is left out.
        remarks: Gets a remark for each coalition that was searched.

    Raises:
        Misuse: If an adversary does not fit the graph, the run or the victims.
    """
    victims, transcript = options.victims, options.transcript
    chosen = [
        _resolved(each, run, victims[0], setting.task.names, remarks, options.report)
        for each in given or default_adversaries(run, victims[0])
    ]
    if transcript is not None:
        insides = set(transcript.keep.insides)
        missing = [adversary for adversary in chosen if not adversary.corrupt <= insides]
        if given and missing and options.attacks is not False:
            raise _not_recorded(missing[0], insides)
        if not given:
            notes += [
                f"what {adversary} learns: its state was not recorded (`insides` of the transcript)"
                for adversary in missing
            ]
            chosen = [adversary for adversary in chosen if adversary not in missing]
    _check_adversaries(setting, chosen, victims)
    return chosen


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


def _not_recorded(adversary: Adversary, insides: set[int]) -> Misuse:
    """The error of a transcript that lacks what corrupt clients hold."""
    missing = sorted(adversary.corrupt - insides)
    who = ", ".join(map(adversary.name_of, missing))
    return Misuse(
        f"{adversary} needs what clients {who} hold, which was not recorded.",
        f"Record a run with insides = {missing}, or audit its config.toml.",
    )


def _check_adversaries(
    setting: Setting, chosen: Sequence[Adversary], victims: Sequence[int]
) -> None:
    edges = [(s, t) for s, t in setting.graph.edges.tolist()]
    for adversary in chosen:
        adversary.check_graph(setting.graph.clients, edges)
        if adversary.malicious and not isinstance(setting.algorithm, Malicious):
            raise Misuse(
                f"{adversary} deviates, but this run is one without malicious clients.",
                "Use tacit.audit or run_audit.",
            )
        if adversary.corrupt.issuperset(victims):
            raise Misuse(f"All victims of {adversary} are corrupt.", "Name an honest client.")
