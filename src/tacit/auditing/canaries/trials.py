"""Canaries in independent trials: a measured lower bound on ε, as the ledger proves an upper one.

In every trial a fair coin decides what the victim's data are. Client canaries are for algorithms
with gradients of batches: each client's gradients are a canary, the longest that clipping lets
through, with a sign that its coin chooses. Gradient canaries are for sums over Poisson samples: the
coin decides whether a sample with a canary as its gradient is among the victim's data.

The adversary guesses the victim's coin from the messages it sees, by the likelihood ratio
(`client`, `gradient`). It is the ledger's adversary: it knows the data, or the
coins, of all other clients. Copies of the graph are independent trials, so guesses bound ε from
below (`coin_guesses`).

What runs is the algorithm itself, in the simulator's engine, with its noise. If noise is smaller
than declared, is used twice or cancels where the ledger believes it does not, if samples are not
clipped or are drawn too often, the lower bound can exceed the proved upper bound. That proves a
defect, up to the confidence.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.bounds.whole_run import ledger_of
from tacit.auditing.canaries.client import ClientLikelihood
from tacit.auditing.canaries.copies import disjoint_copies, run_copies
from tacit.auditing.canaries.gradient import GradientLikelihood
from tacit.auditing.canaries.result import ACCUSING, CanaryResult
from tacit.auditing.client_names import client_name
from tacit.auditing.options import Progress
from tacit.auditing.scoring.coin_guesses import independent_trials_bound
from tacit.auditing.symbolic.leakage import check_victim
from tacit.auditing.symbolic.replay import checked_run
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.randomness import Philox, derive_key
from tacit.core.workers import WorkerPool
from tacit.engines.setting import Setting

TRIALS = 100_000
WIDTH = 2  # coordinates of a canary, at most
FEWEST = 1_000  # trials that run together, at least
Likelihood = ClientLikelihood | GradientLikelihood


def canary_trials(
    setting: Setting,
    adversary: Adversary | str,
    victim: int = 0,
    *,
    iterations: int = 10,
    delta: float = 1e-5,
    analysed: tuple[SymbolicRun, Bound] | None = None,
    earlier: Sequence[CanaryResult] = (),
    trials: int = TRIALS,
    seconds: float = math.inf,
    confidence: float = 0.95,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> CanaryResult | str:
    """Measure how well an adversary guesses canaries of a client, as a lower bound on ε.

    Args:
        setting: What determines the run. The data of its task are not used.
        adversary: The adversary, or its text; like the ledger's, it reads all that is not private.
        victim: The client whose data are at stake.
        iterations: How many iterations the adversary sees.
        delta: δ of the ledger, where its bound is not pure.
        analysed: The run on symbols and what is proved about it, if they are known. They replace
            the two arguments before.
        earlier: Results of other adversaries. One is used again if it is about the same victim, δ
            and view of the same run.
        trials: How many copies of the graph are simulated.
        seconds: Limit of time, after a first thousand trials or more.
        confidence: Probability with which the lower bound holds.
        seed: Keys coins, directions, draws and noise.
        device: Where copies are simulated.
        progress: Called with a description, the trials done and the trials in all.

    Returns:
        The lower bound beside the upper bound, or the reason why these canaries cannot be guessed
        from messages.

    Raises:
        Misuse: If there is no finite upper bound, so that there is nothing to compare with.

    Example:
        >>> import torch, tacit
        >>> graph = tacit.Topology.ring(3).mixing("metropolis")
        >>> task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.zeros(3, 2)).clipped(1.0)
        >>> algorithm = tacit.PDLMS(lr=0.1, noise=tacit.Gaussian(1.0))
        >>> setting = tacit.Setting(algorithm, task, graph)
        >>> result = canary_trials(setting, "eavesdropper", trials=2000)
        >>> 0 < result.lower.epsilon < result.upper.epsilon
        True
    """
    check_count("trials", trials, at_least=16)
    setting.check()
    setting.require_static("Canaries")
    adversary = Adversary.parse(adversary) if isinstance(adversary, str) else adversary
    run, upper = analysed or _analyse(setting, adversary, victim, iterations, delta)
    name = client_name(victim, setting.task.names)
    if math.isinf(upper.epsilon):
        raise Misuse(
            f"There is no guarantee for client {name}: {upper.why}.",
            "Measure canaries where the ledger has a bound.",
        )
    width = min(WIDTH, setting.task.parameters)
    stronger = Threat(adversary, victim).stronger
    likelihood = _likelihood(setting, run, stronger, victim, width)
    if isinstance(likelihood, str):
        return likelihood
    for result in earlier:
        seen = result.kind, result.victim, result.view, result.iterations, result.lower.delta
        if seen == (likelihood.kind, victim, likelihood.view, run.steps, upper.delta):
            return replace(result, adversary=str(stronger), upper=upper)
    together = max(FEWEST, likelihood.numbers // max(1, run.transcript.row_count))
    parts = math.ceil(trials / together)
    copies = math.ceil(trials / parts)
    union, begun = disjoint_copies(setting.graph, copies), time.perf_counter()
    pool, dtype = WorkerPool.for_device(device), setting.task.dtype
    scores, coins = [], []
    for part in range(parts):
        if part and time.perf_counter() - begun > seconds:
            break
        key = derive_key(seed, likelihood.label, part)
        canaries, heads = likelihood.draw(copies, width, key, dtype, device)
        noise = Philox(key, width, dtype, pool)
        component = likelihood.component or None
        observed = run_copies(setting.algorithm, union, run.steps, canaries, noise, component)
        scores.append(likelihood.scores(observed))
        coins.append(heads)
        if progress is not None:
            done = min(trials, copies * (part + 1))
            progress(f"guessing {likelihood.label} of client {name}", done, trials)
    guesses = np.concatenate(scores)[:trials], np.concatenate(coins)[:trials]
    gaussian = None
    if upper.delta > 0:
        gaussian = likelihood.gaussian_epsilon(*guesses, upper.delta, confidence)
    return CanaryResult(
        likelihood.kind,
        victim,
        str(stronger),
        independent_trials_bound(*guesses, upper.delta, confidence),
        upper,
        independent_trials_bound(*guesses, upper.delta, ACCUSING).epsilon,
        run.steps,
        time.perf_counter() - begun,
        trials=len(guesses[0]),
        gaussian_epsilon=gaussian,
        width=width,
        stopped=len(scores) < parts,
        view=likelihood.view,
        component=likelihood.component,
    )


def _likelihood(
    setting: Setting, run: SymbolicRun, adversary: Adversary, victim: int, width: int
) -> Likelihood | str:
    """How the coin is guessed, or the reason why it cannot be."""
    if run.samplings:
        return GradientLikelihood.of(run, adversary, victim)
    if (clip := setting.task.clip) is None:
        return "gradients are not clipped, so that none is the largest"
    likelihood = ClientLikelihood.best(run, adversary, victim, clip)
    try:
        setting.algorithm.check_width(width)
    except Misuse as problem:
        return f"its options do not fit canaries of {width} coordinates ({problem.problem})"
    return likelihood


def _analyse(
    setting: Setting, adversary: Adversary, victim: int, iterations: int, delta: float
) -> tuple[SymbolicRun, Bound]:
    """The run on symbols and its ledger's bound, as an audit computes them."""
    check_victim(victim, setting.graph.clients)
    run, mismatches = checked_run(setting, iterations)
    return run, ledger_of(setting, run, adversary, victim, delta=delta, mismatches=mismatches).upper
