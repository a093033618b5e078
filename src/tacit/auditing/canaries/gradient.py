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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.reconstruction_attacks import Progress
from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.bounds.ledger import ledger_adversary
from tacit.auditing.canaries.sample_objective import SampleObjective
from tacit.auditing.canaries.sampled_likelihood import SampledLikelihood
from tacit.auditing.canaries.trials import FEWEST, TRIALS, WIDTH, Trials, TrialsResult
from tacit.auditing.scoring.coin_guesses import sampled_trade_off_epsilon
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.checks import check_count
from tacit.engines.setting import Setting

# Numbers that are kept of the messages of trials that run together.
NUMBERS = 1 << 22


@dataclass(frozen=True)
class GradientCanaries(TrialsResult):
    """What gradient canaries show about one sample of a victim, beside what is proved."""

    unit: ClassVar[str] = "sample"
    component: tuple[int, ...]  # honest clients whose sum the adversary sees

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
        scope = f"for one sample and {self.iterations:,} iterations, "
        text = f"gradient canaries: {self.measured(scope, 'the noise')}"
        claim = f"ε ≤ {self.upper.epsilon:.3g}"
        return (
            f"{text}: a defect: {claim} is claimed"
            if self.is_defect
            else f"{text}; proved is {claim}"
        )

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"component": list(self.component)}


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
    task = setting.task
    width, bound = min(WIDTH, task.parameters), float(likelihood.bounds.max())
    guessed = Trials(
        "gradient canaries",
        setting,
        run.steps,
        victim,
        upper.delta,
        confidence,
        trials,
        max(FEWEST, NUMBERS // max(1, run.transcript.row_count)),
        seconds,
        seed,
        progress,
    )

    def draw(copies: int, key: int) -> tuple[SampleObjective, Tensor]:
        size = copies, setting.graph.clients, victim, width
        canaries = SampleObjective.random(*size, bound, key, task.dtype, device)
        return canaries, canaries.coins

    rates, gaussian = np.unique(likelihood.rates), None
    if len(rates) == 1:
        rate, sums = float(rates[0]), len(likelihood.rates)
        gaussian = partial(sampled_trade_off_epsilon, rate=rate, steps=sums)
    outcome = guessed.run(draw, likelihood.scores, gaussian, component)
    return GradientCanaries(victim, str(stronger), upper, run.steps, width, *outcome, component)
