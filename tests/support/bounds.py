"""Bounds on ε of algorithms without a task."""

import tacit
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.bounds.whole_run import whole_run_bound
from tacit.auditing.symbolic.symbols import run_on_symbols

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
DELTA = 1e-5


def threat(adversary, victim=0, clip=None, parameters=3):
    if isinstance(adversary, str):
        adversary = Adversary.parse(adversary)
    return Threat(adversary, victim, clip, parameters, DELTA)


def ledger_of(
    algorithm, adversary="curious(1)", steps=3, *, graph=RING, common_start=False, **about
):
    """The ledger of the first iterations; `about` has victim, clip and parameters."""
    run = run_on_symbols(algorithm, graph, steps, common_start=common_start)
    return compute_ledger(run, threat(adversary, **about))


def whole_run_of(algorithm, adversary="curious(1)", steps=20, *, graph=RING, uses=None, **about):
    """The bound for a whole run, if there is one."""
    return whole_run_bound(algorithm, graph, threat(adversary, **about), steps, uses)
