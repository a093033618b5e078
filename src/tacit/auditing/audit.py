"""Audits of a run by passive and malicious adversaries: the entry that all callers use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tacit.auditing.active.comparison import Comparison
from tacit.auditing.adversary import Adversary
from tacit.auditing.one_run import audit_one_run
from tacit.auditing.options import AuditOptions
from tacit.auditing.result import Audit
from tacit.engines.setting import Setting


def run_audit(
    setting: Setting,
    adversaries: Sequence[Adversary | str] | None = None,
    options: AuditOptions = AuditOptions(),
) -> Audit:
    """Audit the first iterations of a run.

    A malicious adversary without a behaviour is audited with each that applies. Its runs start
    from the setting: a transcript and final models are of a run without it.

    Args:
        setting: What determines the run.
        adversaries: Adversaries or their text, such as "curious(1,4)" or "worst(2)", the two
            neighbours of the first victim that learn most together; by default those of
            `default_adversaries`.
        options: What the audit covers, and how it is done.

    Raises:
        Misuse: An adversary or a victim does not fit the run, or a behaviour does not apply to it.
    """
    active, passive = [], []
    for given in adversaries or ():
        malicious = _malicious(given, setting.task.names)
        if malicious is None:
            passive.append(given)
        else:
            active.append(malicious)
    audit = Audit(setting, options.iterations, list(options.victims), [], None)
    if passive or not active:
        audit = audit_one_run(setting, passive or None, options)
    if not active:
        return audit
    comparison = Comparison(setting, options)
    for adversary in active:
        for victim in options.victims:
            comparison.add(adversary, victim)
    return comparison.beside(audit)


def _malicious(given: Adversary | str, names: tuple[str, ...]) -> Adversary | None:
    """The adversary if it has malicious clients."""
    if isinstance(given, str):
        if "malicious" not in given:
            return None
        given = Adversary.parse(given)
    return replace(given, names=names) if given.malicious else None
