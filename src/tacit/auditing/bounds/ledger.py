"""The ledger: the differential-privacy guarantee for a client against an adversary.

Two neighbouring runs differ in all data of one client; each of its clipped gradients may differ by
Δ = 2C. The bound covers everything that the adversary sees in the audited iterations. To be sound
it is computed against a stronger adversary, which also reads every message that is not private and
knows the data and the first models of all other clients.

Added noise gives the bounds of `added_noise`. Non-linear steps count with the budget that they
declare, such as randomized response. Both need inputs that follow from what is seen, which
`dependence` checks. If a combination of messages contains a gradient but no noise, there is no
guarantee, and the ledger names the combination.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.auditing.bounds.added_noise import Bound, noiseless_combination
from tacit.auditing.bounds.composition import composed_bound
from tacit.auditing.bounds.dependence import trace_dependence
from tacit.auditing.bounds.secret_rows import NoBound, SecretRows, normalized, row_sizes
from tacit.auditing.bounds.single_message import SingleMessageBound, single_message_bound
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.symbolic.leakage import ABOUT_GRADIENTS, Leakage, format_terms
from tacit.auditing.symbolic.linear_knowledge import LinearKnowledge
from tacit.auditing.symbolic.replay import Mismatch
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.checks import check_number
from tacit.privacy.guarantee import Unit


@dataclass(frozen=True)
class Ledger:
    """The guarantee for one victim against one adversary."""

    victim: int
    adversary: str
    scope: str  # what the bound covers
    upper: Bound
    delta: float  # δ at which bounds are computed that are not pure
    single_message: SingleMessageBound | None = None  # a comparison, not a guarantee
    whole_run: Bound | None = None  # for all iterations of the run, where there is one
    run_steps: int | None = None
    per_sample: Bound | None = None  # for all iterations, of runs that differ in one sample
    # What neighbouring runs differ in.
    unit: Unit = "client"
    # The clients over which a noisy sum is all that is learnt about the victim, if that is so.
    only_sum_of: tuple[int, ...] | None = None

    @property
    def best(self) -> Bound:
        """The bound for the whole run, or that of the audited iterations if there is none."""
        return self.whole_run or self.upper

    def as_dict(self) -> dict[str, Any]:
        single, whole, sample = self.single_message, self.whole_run, self.per_sample
        return {
            "victim": self.victim,
            "adversary": self.adversary,
            "scope": self.scope,
            "unit": self.unit,
            "only_sum_of": None if self.only_sum_of is None else list(self.only_sum_of),
            "guarantee": str(self.upper),
            **self.upper.as_dict(),
            "one_message_alone": None if single is None else single.as_dict(),
            "whole_run": None
            if whole is None
            else {
                "iterations": self.run_steps,
                **whole.as_dict(),
                "per_sample": None if sample is None else sample.as_dict(),
            },
        }


def compute_ledger(run: SymbolicRun, threat: Threat, mismatches: Sequence[Mismatch] = ()) -> Ledger:
    """The guarantee that noise and declared budgets give a victim.

    Args:
        run: The run on symbols, with all its messages.
        threat: What the guarantee is about.
        mismatches: What the algorithm does otherwise on numbers; there is no guarantee then.
    """
    check_number("delta", threat.delta, above=0, below=1, example=1e-5)
    scope = f"everything that {threat.stronger} sees in the first {run.steps} iterations"
    about = threat.victim, str(threat.adversary), scope
    if mismatches:
        upper = Bound.none(f"{mismatches[0].what}: no bound is proved")
        return Ledger(*about, upper, threat.delta)
    upper = _upper_bound(run, threat)
    ledger = Ledger(*about, upper, threat.delta, single_message_bound(run, threat))
    if not run.samplings:
        return ledger
    component = threat.view(run).only_sum() if math.isfinite(upper.epsilon) else None
    known = None if component is None else tuple(sorted(component))
    return replace(ledger, unit="sample", only_sum_of=known)


def _upper_bound(run: SymbolicRun, threat: Threat) -> Bound:
    try:
        return _proved_bound(threat.view(run), threat)
    except NoBound as reason:
        return Bound.none(str(reason), reason.combination)


def _proved_bound(view: SecretRows, threat: Threat) -> Bound:
    leakage = Leakage(LinearKnowledge(view.run, view.adversary), view.victim)
    cancels = "noise cancels in a combination of messages" if view.noise else "sent without noise"
    # The simplest exact answer is the clearest reason.
    for question in ABOUT_GRADIENTS:
        series = leakage.of(question)
        if exact := series.indices("exact"):
            shown = format_terms(*leakage.terms(question, exact[0]), view.adversary.names)
            raise NoBound(f"{cancels}: {shown}", series.estimate(exact[0]).combination)
    budgets = trace_dependence(view, threat.sensitivity)
    is_sampled = any(gradient.when in view.run.samplings for gradient in view.gradients)
    if threat.clip is not None and view.gradients and not is_sampled:
        rows = view.signal * threat.sensitivity, view.added * view.deviations
        if (combination := noiseless_combination(*normalized(*rows))) is not None:
            # Back to combinations of the messages themselves.
            shown = _format_gradients(view, combination / row_sizes(*rows))
            raise NoBound(f"{cancels}: {shown}")
    return composed_bound([(view, budgets, 1)], threat)


def _format_gradients(view: SecretRows, combination: Matrix) -> str:
    """The gradients in a combination of messages, in units of the victim's largest."""
    gradients = view.combined(combination)
    largest = max(abs(x) for u, x in gradients if u.client == view.victim)
    shown = [(u, x / largest) for u, x in gradients if abs(x) > 1e-6 * largest]
    return format_terms([u for u, _ in shown], [x for _, x in shown], view.adversary.names)
