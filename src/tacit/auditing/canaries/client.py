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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.reconstruction_attacks import Progress
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.ledger import Ledger, ledger_adversary
from tacit.auditing.canaries.copies import (
    CanaryObjective,
    ObservedCopies,
    disjoint_copies,
    random_directions,
    run_copies,
)
from tacit.auditing.canaries.likelihood import CoinLikelihood
from tacit.auditing.scoring.coin_guesses import (
    CoinBound,
    gaussian_trade_off_epsilon,
    independent_trials_bound,
)
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.core.randomness import Philox, derive_key
from tacit.core.workers import WorkerPool
from tacit.graph import Graph
from tacit.privacy.clipping import Clip

TRIALS = 100_000
WIDTH = 2  # coordinates of a canary, at most
FEWEST = 1_000  # trials that are always made
SAME = 1 - 1e-6  # share of the information from which on the rest is rounding
# Numbers in all messages of the copies that run together.
NUMBERS = 1 << 20


@dataclass(frozen=True)
class ClientCanaries:
    """What client canaries show about one victim, beside what the ledger proves."""

    victim: int
    adversary: str
    lower: CoinBound
    upper: Bound
    gaussian_epsilon: float | None  # at least, if the trade-off is Gaussian; None: other noise
    trials: int
    iterations: int
    width: int
    seconds: float
    stopped: bool  # by the limit of time

    @property
    def is_defect(self) -> bool:
        """Whether the measured lower bound exceeds the proved upper bound."""
        return self.lower.epsilon > self.upper.epsilon and self.upper.delta <= self.lower.delta

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
    algorithm: Algorithm,
    graph: Graph,
    run: SymbolicRun,
    adversary: Adversary,
    ledger: Ledger,
    *,
    clip: Clip,
    parameters: int,
    dtype: torch.dtype = torch.float32,
    trials: int = TRIALS,
    seconds: float = math.inf,
    confidence: float = 0.95,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> ClientCanaries | str:
    """Measure how well an adversary guesses the canaries of the ledger's victim.

    Args:
        algorithm: What runs.
        graph: On which graph.
        run: The algorithm on symbols, with all messages of the audited iterations.
        adversary: The adversary that the ledger is about.
        ledger: The bound to test; it names the victim.
        clip: How gradients are clipped.
        parameters: P, the coordinates of a gradient; canaries have at most two of them.
        dtype: Of models and messages.
        trials: How many copies of the graph are simulated.
        seconds: Limit of time; a thousand trials are always made.
        confidence: Probability with which the lower bound holds.
        seed: Keys coins, directions and noise.
        device: Where copies are simulated.
        progress: Called with a description, the trials done and the trials in all.

    Returns:
        The lower bound beside the upper bound, or the reason why canaries cannot be guessed from
        these messages.

    Raises:
        Misuse: If the ledger has no finite bound, so that there is nothing to compare with.
    """
    check_count("trials", trials, at_least=8)
    if math.isinf(ledger.upper.epsilon):
        raise Misuse(
            f"There is no guarantee for client {ledger.victim}: {ledger.upper.why}.",
            "Measure canaries where the ledger has a bound.",
        )
    stronger = ledger_adversary(adversary)
    likelihood = _best_likelihood(run, stronger, ledger.victim, clip)
    if isinstance(likelihood, str):
        return likelihood
    width = min(WIDTH, parameters)
    algorithm.check_width(width)
    numbers = width * max(1, sum(len(message.rows) for message in run.transcript.messages))
    parts = max(1, math.ceil(trials / max(FEWEST, NUMBERS // numbers)))
    copies = math.ceil(trials / parts)
    union, begun = disjoint_copies(graph, copies), time.perf_counter()
    scores, coins = [], []
    for part in range(parts):
        if part and time.perf_counter() - begun > seconds:
            break
        key = derive_key(seed, "canaries", part)
        made = _copies(algorithm, union, run.steps, likelihood, copies, width, clip, dtype, key,
                       device)  # fmt: skip
        scores.append(likelihood.scores(made))
        coins.append(made.canaries.coins[:, ledger.victim].numpy() > 0)
        if progress is not None:
            progress(f"guessing canaries of client {ledger.victim}", copies * (part + 1), trials)
    every, heads = np.concatenate(scores), np.concatenate(coins)
    delta = ledger.upper.delta
    gaussian = None
    if likelihood.gaussian and delta > 0:
        gaussian = gaussian_trade_off_epsilon(every, heads, delta, confidence)
    return ClientCanaries(
        ledger.victim,
        str(stronger),
        independent_trials_bound(every, heads, delta, confidence),
        ledger.upper,
        gaussian,
        len(every),
        run.steps,
        width,
        time.perf_counter() - begun,
        len(scores) < parts,
    )


def _best_likelihood(
    run: SymbolicRun, adversary: Adversary, victim: int, clip: Clip
) -> CoinLikelihood | str:
    """The adversary's statistic; from messages alone if what it holds adds nothing.

    That is the more robust one: it does not believe that noise was added as it was drawn.
    """
    every = CoinLikelihood.of(run, adversary, victim, clip)
    messages = CoinLikelihood.of(run, replace(adversary, corrupt=frozenset()), victim, clip)
    if isinstance(every, str) or isinstance(messages, str):
        return every
    return messages if messages.information >= SAME * every.information else every


def _copies(
    algorithm: Algorithm,
    union: Graph,
    steps: int,
    likelihood: CoinLikelihood,
    copies: int,
    width: int,
    clip: Clip,
    dtype: torch.dtype,
    key: int,
    device: torch.device | str,
) -> ObservedCopies:
    """Run copies with fresh coins, directions and noise."""
    rng = np.random.default_rng((key, 0))
    coins = torch.as_tensor(rng.choice((-1.0, 1.0), (copies, union.clients // copies)))
    directions = random_directions(copies, width, clip, key)
    canaries = CanaryObjective(coins, directions, likelihood.signs, clip, dtype, device)
    noise = Philox(key, width, dtype, WorkerPool.for_device(device))
    return run_copies(algorithm, union, steps, canaries, noise)
