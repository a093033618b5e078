"""What an adversary computes from the messages of a run, for attacks of your own."""

from __future__ import annotations

from tacit.auditing.adversary import Adversary
from tacit.auditing.adversary_choice import choose_adversaries
from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.attacks.known_evidence import best_evidence
from tacit.auditing.one_run import record_iterations
from tacit.auditing.options import AuditOptions
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage, check_victim
from tacit.auditing.symbolic.replay import checked_run, without
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.engines.run import Run


def evidence(
    run: Run, adversary: str | Adversary, victim: int = 0, *, iterations: int = 10
) -> list[Evidence]:
    """What an adversary computes about a victim from the messages of a run.

    The truth is not in it: an attack of your own starts here, and you compare what it finds with
    the victim's data. The first iterations are computed once more, with the same numbers.

    Args:
        run: The run.
        adversary: Such as "curious(1)"; see `tacit.audit`.
        victim: The client whose data are at stake.
        iterations: How many iterations the adversary sees, at most.

    Returns:
        Of each kind (a gradient, a difference, sums of several clients) the first that the
        adversary computes exactly, or the least noisy gradient. Its `values` [P] are computed from
        messages as they were sent, its `points` [K, P] are the models at which the K gradients were
        taken, if they are known.

    Raises:
        Misuse: If there is no such client or adversary, or the noise of the run was secret.

    Example:
        >>> import tacit, torch
        >>> task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.zeros(5, 2))
        >>> run = tacit.run(task, "dsgt", steps=4, lr=0.1)
        >>> print(tacit.evidence(run, "curious(1)")[0])
        gradient +1·g[0](0), exactly
    """
    check_count("iterations", iterations)
    setting = run.setting
    if not setting.is_simulated:
        raise Misuse(
            "The run drew its noise from a secret key, which is forgotten: it cannot be repeated.",
            "Look at a run without secret_noise.",
        )
    check_victim(victim, setting.graph.clients)
    iterations = min(iterations, run.history[-1].step)
    symbolic, mismatches = checked_run(setting, iterations)
    symbolic = without(symbolic, mismatches)
    options = AuditOptions(victims=[victim], iterations=iterations)
    [who] = choose_adversaries(setting, symbolic, [adversary], options, [], [])
    transcript = record_iterations(setting, [who], iterations, options.report)
    return best_evidence(Leakage(Knowledge(symbolic, who), victim), transcript)
