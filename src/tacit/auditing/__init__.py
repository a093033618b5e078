"""What leaks: proved (knowledge), bounded (ledger) and measured (attacks, scoring).

    tacit.audit(run, adversary="curious(1)+eavesdropper", victim=0)      # a Run, a configuration file, a run folder

The room can be called: that is the audit from end to end (see `conduct`), of whatever can be audited.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.auditing.audit import Audit


class _Room(ModuleType):
    """This module, callable."""

    def __call__(
        self, subject: Any, adversary: Any = None, victim: Any = 0, **options: Any
    ) -> Audit:
        """Audit a `tacit.Run`, a configuration (file or object) or a run folder: see `tacit.auditing.audit.conduct`.

        `adversary` is one or a list of them, as words or `Adversary`; `victim` one client or a list.
        """
        from tacit.auditing.audit import run_audit
        from tacit.core.errors import Misuse
        from tacit.simulation import Run

        listed = (
            adversary if adversary is None or isinstance(adversary, list | tuple) else [adversary]
        )
        victims = list(victim) if isinstance(victim, list | tuple) else [victim]
        if isinstance(subject, Run):
            steps = subject.history[-1].step
            if options.setdefault("iterations", min(10, max(1, steps))) > steps:
                raise Misuse(
                    f"The audit shall see {options['iterations']} iterations, but the run has {steps}.",
                    "Audit as many as there are, or run longer.",
                )
            said, final = subject.transcript, subject.theta.cpu()
            return run_audit(
                subject.setting, listed, victims=victims, transcript=said, final=final, **options
            )
        from tacit.experiment.auditing import audit_of

        return audit_of(subject, listed, victims=victims, **options)


sys.modules[__name__].__class__ = _Room
