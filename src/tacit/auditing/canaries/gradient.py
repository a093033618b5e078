"""Gradient canaries: a measured lower bound on ε for one sample, of sums over Poisson samples.

In every trial a fair coin decides whether the canary is among the victim's data: a sample whose
clipped gradient has the largest norm that clipping lets through, in a direction of its own. The
algorithm's own code draws, clips and sums it, adds its noise and sends its messages
(`sample_objective`). The adversary is that of the ledger: it knows the data of all other clients,
and scores what it sees by the likelihood ratio (`sampled_likelihood`). Copies of the graph are
independent trials, so guesses bound ε from below (`coin_guesses`).

If noise is missing or smaller than declared, samples are not clipped or are drawn too often, the
lower bound can exceed the proved upper bound. That proves a defect, up to the confidence.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.reconstruction_attacks import Progress
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.ledger import ledger_adversary
from tacit.auditing.canaries.copies import disjoint_copies, run_copies
from tacit.auditing.canaries.sample_objective import SampleObjective
from tacit.auditing.canaries.sampled_likelihood import SampledLikelihood
from tacit.auditing.scoring.coin_guesses import (
    CoinBound,
    independent_trials_bound,
    sampled_trade_off_epsilon,
)
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.checks import check_count
from tacit.core.randomness import Philox, derive_key
from tacit.core.workers import WorkerPool
from tacit.simulation import Setting

TRIALS = 100_000
ACCUSING = 0.999  # confidence from which on a contradiction is called a defect
WIDTH = 2  # coordinates of a canary, at most
FEWEST = 1_000  # trials that run together, at least
# Numbers that are kept of the messages of trials that run together.
NUMBERS = 1 << 22


@dataclass(frozen=True)
class GradientCanaries:
    """What gradient canaries show about one sample of a victim, beside what is proved."""

    victim: int
    adversary: str
    component: tuple[int, ...]  # honest clients whose sum the adversary sees
    lower: CoinBound
    almost_sure: float  # ε is at least this with `ACCUSING` confidence
    upper: Bound
    gaussian_epsilon: float | None  # at least, if sums have Gaussian noise and the declared rate
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
            f"unit: one sample, in {self.iterations:,} iterations",
            f"the adversary of the ledger, {self.adversary}, which knows the data of all other "
            "clients",
            f"canaries of {self.width} coordinates with the loss ⟨θ, x⟩, longer than the clipping "
            "bound; drawn, clipped and summed by the simulator, with noise of its generator",
            "independent trials: one canary in each copy of the graph",
        ]

    def __str__(self) -> str:
        lower, upper = self.lower, self.upper
        measured = f"ε ≥ {lower.epsilon:.3g} with {lower.confidence:.0%} confidence"
        text = f"gradient canaries: {measured} for one sample and {self.iterations:,} iterations, "
        text += f"from {self.trials:,} trials"
        if self.gaussian_epsilon is not None:
            text += f" (ε ≥ {self.gaussian_epsilon:.3g} if the noise is Gaussian)"
        if self.is_defect:
            return f"{text}: a defect: ε ≤ {upper.epsilon:.3g} is claimed"
        return f"{text}; proved is ε ≤ {upper.epsilon:.3g}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "unit": "sample",
            "victim": self.victim,
            "adversary": self.adversary,
            "component": list(self.component),
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


def gradient_canaries(
    setting: Setting,
    run: SymbolicRun,
    adversary: Adversary,
    victim: int,
    upper: Bound,
    *,
    earlier: Sequence[GradientCanaries] = (),
    trials: int = TRIALS,
    seconds: float = math.inf,
    confidence: float = 0.95,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> GradientCanaries | str:
    """Measure how well an adversary sees whether a sample is among a client's data.

    Args:
        setting: What determines the run. The data of its task are not used.
        run: The run on symbols, with all its messages. Trials have as many iterations.
        adversary: Who guesses; like the ledger's, it also reads all that is not private.
        victim: The client that has the canary or not.
        upper: What is proved for these iterations.
        earlier: Results of other adversaries. One is used again if it is about the same bound and
            the same sums.
        trials: How many copies of the graph are simulated.
        seconds: Limit of time, after a first thousand trials or more.
        confidence: Probability with which the lower bound holds.
        seed: Keys coins, directions, draws and noise.
        device: Where copies are simulated.
        progress: Called with a description, the trials done and the trials in all.

    Returns:
        The lower bound beside the upper one, or the reason why there is none.
    """
    check_count("trials", trials, at_least=16)
    stronger = ledger_adversary(adversary)
    likelihood = SampledLikelihood.of(run, stronger, victim)
    if isinstance(likelihood, str):
        return likelihood
    component = tuple(sorted(likelihood.component))
    for one in earlier:
        same = (one.victim, one.component, one.iterations, one.upper)
        if same == (victim, component, run.steps, upper):
            return replace(one, adversary=str(stronger))
    graph, task = setting.graph, setting.task
    width = min(WIDTH, task.parameters)
    numbers = max(1, sum(len(message.rows) for message in run.transcript.messages))
    parts = math.ceil(trials / max(FEWEST, NUMBERS // numbers))
    copies, bound = math.ceil(trials / parts), float(likelihood.bounds.max())
    union, begun = disjoint_copies(graph, copies), time.perf_counter()
    pool = WorkerPool.for_device(device)
    scores, coins = [], []
    for part in range(parts):
        if part and time.perf_counter() - begun > seconds:
            break
        key = derive_key(seed, "gradient canaries", part)
        canaries = SampleObjective.random(
            copies, graph.clients, victim, width, bound, key, task.dtype, device
        )
        noise = Philox(key, width, task.dtype, pool)
        observed = run_copies(setting.algorithm, union, run.steps, canaries, noise, component)
        scores.append(likelihood.scores(observed))
        coins.append(canaries.coins.numpy())
        if progress is not None:
            done = min(trials, copies * (part + 1))
            progress(f"guessing gradient canaries of client {victim}", done, trials)
    every, there = np.concatenate(scores)[:trials], np.concatenate(coins)[:trials]
    found = every, there, upper.delta
    rates, gaussian = np.unique(likelihood.rates), None
    if len(rates) == 1 and upper.delta > 0:
        sums = float(rates[0]), len(likelihood.rates)
        gaussian = sampled_trade_off_epsilon(every, there, *sums, upper.delta, confidence)
    return GradientCanaries(
        victim,
        str(stronger),
        component,
        independent_trials_bound(*found, confidence),
        independent_trials_bound(*found, ACCUSING).epsilon,
        upper,
        gaussian,
        len(every),
        run.steps,
        width,
        time.perf_counter() - begun,
        len(scores) < parts,
    )
