"""Bounds that hold whatever malicious clients send, adaptively or not.

All that malicious clients send are unknowns of their own (`ArbitraryRows`), which the adversary
knows: a bound on such a run holds for every value of them, also for values that depend on earlier
messages. The ledger's bounds survive this. They already count what other clients compute as known,
a clipped gradient is bounded at every model, and the noise that hides it is drawn by honest
clients. Not covered: numbers other than rows of models, such as counts, which an algorithm may
multiply noise by (there is no bound then), and rounding: a malicious client can make a victim's
model so large that its gradient is rounded to a multiple of its sensitivity.
"""

from __future__ import annotations

from dataclasses import replace

from tacit.auditing.active.malicious import ArbitraryRows
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.bounds.whole_run import ledger_of
from tacit.auditing.symbolic.replay import checked_run, without
from tacit.engines.setting import Setting


def bound_for_any_rows(
    setting: Setting,
    adversary: Adversary,
    victim: int,
    iterations: int,
    delta: float = 1e-5,
    steps: int | None = None,
) -> Ledger:
    """The guarantee for a victim that holds whatever malicious clients send.

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
