"""Client canaries: a measured lower bound on ε for all data of one client, as the ledger's unit is.

In every trial each client's gradients are a canary, the longest that clipping lets through, with a
sign that a fair coin chooses. The adversary guesses the victim's coin from the messages it sees
(`likelihood`). It is the ledger's adversary: it knows the coins of all other clients. Copies of the
graph are independent trials, so guesses bound ε from below (`coin_guesses`).

What runs is the algorithm itself, in the simulator's engine, with its noise. If noise is smaller
than declared, is used twice or cancels where the ledger believes it does not, the lower bound can
exceed the ledger's upper bound. That proves a defect, up to the confidence.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.reconstruction_attacks import Progress
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.ledger import Ledger, compute_ledger, ledger_adversary
from tacit.auditing.canaries.copies import CanaryObjective, disjoint_copies, run_copies
from tacit.auditing.canaries.likelihood import CoinLikelihood
from tacit.auditing.scoring.coin_guesses import (
    CoinBound,
    gaussian_trade_off_epsilon,
    independent_trials_bound,
)
from tacit.auditing.symbolic.leakage import check_victim
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import SymbolicRun, run_on_symbols
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.randomness import Philox, derive_key
from tacit.core.workers import WorkerPool
from tacit.simulation import Setting

TRIALS = 100_000
ACCUSING = 0.999  # confidence from which on a contradiction is called a defect
WIDTH = 2  # coordinates of a canary, at most
FEWEST = 1_000  # trials that run together, at least
# Numbers in all messages of the copies that run together.
NUMBERS = 1 << 20


@dataclass(frozen=True)
class ClientCanaries:
    """What client canaries show about one victim, beside what the ledger proves."""

    victim: int
    adversary: str
    view: str  # the adversary whose messages were enough
    lower: CoinBound
    almost_sure: float  # ε is at least this with `ACCUSING` confidence
    upper: Bound
    gaussian_epsilon: float | None  # at least, if the trade-off is Gaussian; None: other noise
    trials: int
    iterations: int
    width: int
    seconds: float
    stopped: bool  # by the limit of time

    @property
    def is_defect(self) -> bool:
        """Whether the lower bound exceeds the proved one also with `ACCUSING` confidence."""
        return self.almost_sure > self.upper.epsilon and self.upper.delta <= self.lower.delta

    @property
    def assumptions(self) -> list[str]:
        return [
            "unit: all data of one client, in the audited iterations",
            f"the adversary of the ledger, {self.adversary}, which knows the gradients of all "
            "other clients",
            f"canaries of {self.width} coordinates in place of clipped gradients; noise of the "
            "simulator's generator",
            "independent trials: one examined client in each copy of the graph",
        ]

    def __str__(self) -> str:
        lower, upper = self.lower, self.upper
        measured = f"ε ≥ {lower.epsilon:.3g} with {lower.confidence:.0%} confidence"
        text = f"client canaries: {measured} from {self.trials:,} trials"
        if self.gaussian_epsilon is not None:
            text += f" (ε ≥ {self.gaussian_epsilon:.3g} if the trade-off function is Gaussian)"
        if self.is_defect:
            return f"{text}: a defect of the analysis: the ledger claims ε ≤ {upper.epsilon:.3g}"
        return f"{text}; the ledger proves ε ≤ {upper.epsilon:.3g}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "unit": "client",
            "victim": self.victim,
            "adversary": self.adversary,
            **self.lower.as_dict(),
            "epsilon_at_least_if_gaussian": self.gaussian_epsilon,
            "epsilon_at_most": self.upper.epsilon,
            "is_defect": self.is_defect,
            "trials": self.trials,
            "iterations": self.iterations,
            "width": self.width,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "assumptions": self.assumptions,
        }


def client_canaries(
    setting: Setting,
    adversary: Adversary | str,
    victim: int = 0,
    *,
    iterations: int = 10,
    delta: float = 1e-5,
    analysed: tuple[SymbolicRun, Ledger] | None = None,
    earlier: Sequence[ClientCanaries] = (),
    trials: int = TRIALS,
    seconds: float = math.inf,
    confidence: float = 0.95,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> ClientCanaries | str:
    """Measure how well an adversary guesses a client's canaries, as a lower bound on ε.

    Args:
        setting: What determines the run. The data of its task are not used.
        adversary: The adversary of the ledger, or its text.
        victim: The client whose data are at stake.
        iterations: How many iterations the adversary sees.
        delta: δ of the ledger, where its bound is not pure.
        analysed: The run on symbols and its ledger, if they are known. They replace the three
            arguments before.
        earlier: Results of other adversaries in the same run. One is used again if it is about the
            same victim, δ and messages.
        trials: How many copies of the graph are simulated.
        seconds: Limit of time, after a first thousand trials or more.
        confidence: Probability with which the lower bound holds.
        seed: Keys coins, directions and noise.
        device: Where copies are simulated.
        progress: Called with a description, the trials done and the trials in all.

    Returns:
        The lower bound beside the ledger's upper bound, or the reason why these canaries cannot be
        guessed from messages.

    Raises:
        Misuse: If the ledger has no finite bound, so that there is nothing to compare with.

    Example:
        >>> import torch, tacit
        >>> graph = tacit.Topology.ring(3).mixing("metropolis")
        >>> task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.zeros(3, 2)).clipped(1.0)
        >>> algorithm = tacit.PDLMS(lr=0.1, noise=tacit.Gaussian(1.0))
        >>> setting = tacit.Setting(algorithm, task, graph)
        >>> found = client_canaries(setting, "eavesdropper", trials=2000)
        >>> 0 < found.lower.epsilon < found.upper.epsilon
        True
    """
    check_count("trials", trials, at_least=8)
    setting.check()
    who = Adversary.parse(adversary) if isinstance(adversary, str) else adversary
    run, ledger = analysed or _analyse(setting, who, victim, iterations, delta)
    clip, task = setting.task.clip, setting.task
    if math.isinf(ledger.upper.epsilon):
        raise Misuse(
            f"There is no guarantee for client {ledger.victim}: {ledger.upper.why}.",
            "Measure canaries where the ledger has a bound.",
        )
    if clip is None:
        return "gradients are not clipped, so that none is the largest"
    stronger = ledger_adversary(who)
    likelihood = CoinLikelihood.best(run, stronger, ledger.victim, clip)
    width = min(WIDTH, task.parameters)
    try:
        setting.algorithm.check_width(width)
    except Misuse as problem:
        return f"its options do not fit canaries of {width} coordinates ({problem.problem})"
    if isinstance(likelihood, str):
        return likelihood
    for one in earlier:
        same = (one.victim, one.view, one.lower.delta)
        if same == (ledger.victim, str(likelihood.adversary), ledger.upper.delta):
            return replace(one, adversary=str(stronger), upper=ledger.upper)
    numbers = width * max(1, sum(len(message.rows) for message in run.transcript.messages))
    parts = math.ceil(trials / max(FEWEST, NUMBERS // numbers))
    copies = math.ceil(trials / parts)
    union, begun = disjoint_copies(setting.graph, copies), time.perf_counter()
    pool = WorkerPool.for_device(device)
    scores, coins = [], []
    for part in range(parts):
        if part and time.perf_counter() - begun > seconds:
            break
        key = derive_key(seed, "canaries", part)
        canaries = CanaryObjective.random(
            copies, setting.graph.clients, width, clip, likelihood.signs, key, task.dtype, device
        )
        noise = Philox(key, width, task.dtype, pool)
        observed = run_copies(setting.algorithm, union, run.steps, canaries, noise)
        scores.append(likelihood.scores(observed))
        coins.append(canaries.coins[:, ledger.victim].numpy() > 0)
        if progress is not None:
            done = min(trials, copies * (part + 1))
            progress(f"guessing canaries of client {ledger.victim}", done, trials)
    every, heads = np.concatenate(scores)[:trials], np.concatenate(coins)[:trials]
    given = every, heads, ledger.upper.delta, confidence
    is_gaussian = likelihood.gaussian and ledger.upper.delta > 0
    return ClientCanaries(
        ledger.victim,
        str(stronger),
        str(likelihood.adversary),
        independent_trials_bound(*given),
        independent_trials_bound(*given[:3], ACCUSING).epsilon,
        ledger.upper,
        gaussian_trade_off_epsilon(*given) if is_gaussian else None,
        len(every),
        run.steps,
        width,
        time.perf_counter() - begun,
        len(scores) < parts,
    )


def _analyse(
    setting: Setting, adversary: Adversary, victim: int, iterations: int, delta: float
) -> tuple[SymbolicRun, Ledger]:
    """The run on symbols and its ledger, as an audit computes them."""
    algorithm, graph, task = setting.algorithm, setting.graph, setting.task
    check_victim(victim, graph.clients)
    run = run_on_symbols(algorithm, graph, iterations, common_start=setting.start_alike)
    mismatches = replay(algorithm, graph, run, width=task.parameters)
    bound = partial(compute_ledger, run, adversary, victim, clip=task.clip)
    return run, bound(parameters=task.parameters, delta=delta, mismatches=mismatches)
