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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.reconstruction_attacks import Progress
from tacit.auditing.bounds.ledger import Ledger, compute_ledger, ledger_adversary
from tacit.auditing.canaries.copies import CanaryObjective
from tacit.auditing.canaries.likelihood import CoinLikelihood
from tacit.auditing.canaries.trials import FEWEST, TRIALS, WIDTH, Trials, TrialsResult
from tacit.auditing.client_names import client_name
from tacit.auditing.scoring.coin_guesses import gaussian_trade_off_epsilon
from tacit.auditing.symbolic.leakage import check_victim
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import SymbolicRun, run_on_symbols
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting

# Numbers in all messages of the copies that run together.
NUMBERS = 1 << 20


@dataclass(frozen=True)
class ClientCanaries(TrialsResult):
    """What client canaries show about one victim, beside what the ledger proves."""

    unit: ClassVar[str] = "client"
    view: str  # the adversary whose messages were enough

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
        text = f"client canaries: {self.measured('', 'the trade-off function')}"
        claim = f"ε ≤ {self.upper.epsilon:.3g}"
        if self.is_defect:
            return f"{text}: a defect of the analysis: the ledger claims {claim}"
        return f"{text}; the ledger proves {claim}"


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
    task, clip = setting.task, setting.task.clip
    victim, upper = ledger.victim, ledger.upper
    if math.isinf(upper.epsilon):
        name = client_name(victim, setting.task.names)
        raise Misuse(
            f"There is no guarantee for client {name}: {upper.why}.",
            "Measure canaries where the ledger has a bound.",
        )
    if clip is None:
        return "gradients are not clipped, so that none is the largest"
    stronger = ledger_adversary(who)
    likelihood = CoinLikelihood.best(run, stronger, victim, clip)
    width = min(WIDTH, task.parameters)
    try:
        setting.algorithm.check_width(width)
    except Misuse as problem:
        return f"its options do not fit canaries of {width} coordinates ({problem.problem})"
    if isinstance(likelihood, str):
        return likelihood
    for one in earlier:
        same = (one.victim, one.view, one.lower.delta)
        if same == (victim, str(likelihood.adversary), upper.delta):
            return replace(one, adversary=str(stronger), upper=upper)
    guessed = Trials(
        "canaries",
        setting,
        run.steps,
        victim,
        upper.delta,
        confidence,
        trials,
        max(FEWEST, NUMBERS // (width * max(1, run.transcript.row_count))),
        seconds,
        seed,
        progress,
    )

    def draw(copies: int, key: int) -> tuple[CanaryObjective, Tensor]:
        size = copies, setting.graph.clients, width
        canaries = CanaryObjective.random(*size, clip, likelihood.signs, key, task.dtype, device)
        return canaries, canaries.coins[:, victim] > 0

    gaussian = gaussian_trade_off_epsilon if likelihood.gaussian else None
    outcome = guessed.run(draw, likelihood.scores, gaussian)
    view = str(likelihood.adversary)
    return ClientCanaries(victim, str(stronger), upper, run.steps, width, *outcome, view)


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
