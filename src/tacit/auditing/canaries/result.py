"""What canaries show about one victim, beside what is proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from tacit.auditing.bounds.added_noise import Bound
from tacit.auditing.scoring.coin_guesses import CoinBound

ACCUSING = 0.999  # confidence from which on a contradiction is called a defect
Kind = Literal["client", "gradient", "sample"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# What a Gaussian is assumed of, and how the proved ε is told without a defect and with one.
IN_WORDS = {
    "client": (
        "the trade-off function",
        "; the ledger proves {}",
        ": a defect of the analysis: the ledger claims {}",
    ),
    "gradient": ("the noise", "; proved is {}", ": a defect: {} is claimed"),
    "sample": (
        "",
        "; for all data of the client: {}",
        ": a defect of the analysis: the ledger claims {} for all data of the client",
    ),
}


@dataclass(frozen=True)
class CanaryResult:
    """A measured lower bound on ε for one victim, and the proved upper bound.

    Attributes:
        kind: What the coin decides: the sign of all gradients of the client, whether one sample
            with a canary as its gradient is there, or which of many wrongly labelled samples are.
        victim: The client.
        adversary: Who guesses.
        lower: What the guesses show.
        upper: What is proved, of "sample" canaries for all data of the client; None: nothing.
        almost_sure: ε is at least this with `ACCUSING` confidence.
        iterations: How many the adversary sees.
        seconds: What it took.
        trials: How many there were, one coin each; 0 if all coins are of one run.
        gaussian_epsilon: ε is at least this if noise is Gaussian; None if it is not.
        width: The coordinates of a canary in trials.
        stopped: Whether the limit of time ended the trials.
        view: Names what the adversary sees: one that sees the same guesses the same.
        component: The honest clients whose sums are seen, of "gradient" canaries.
        scored_by: What samples are scored by.
    """

    kind: Kind
    victim: int
    adversary: str
    lower: CoinBound
    upper: Bound | None
    almost_sure: float
    iterations: int
    seconds: float
    trials: int = 0
    gaussian_epsilon: float | None = None
    width: int = 0
    stopped: bool = False
    view: str = ""
    component: tuple[int, ...] = ()
    scored_by: str = ""

    @property
    def unit(self) -> str:
        """What the lower bound is about: all data of a client, or one sample."""
        return "client" if self.kind == "client" else "sample"

    @property
    def is_defect(self) -> bool:
        """Whether the lower bound exceeds the proved one, with more confidence in trials."""
        if self.upper is None:
            return False
        return self.almost_sure > self.upper.epsilon and self.upper.delta <= self.lower.delta

    @property
    def assumptions(self) -> list[str]:
        """What the lower bound of trials rests on."""
        if self.kind == "client":
            unit, known = "all data of one client, in the audited iterations", "gradients"
            how = "in place of clipped gradients; noise of the simulator's generator"
            single = "one examined client"
        else:
            unit, known = f"one sample, in {self.iterations:,} iterations", "data"
            how = (
                "with the loss ⟨θ, x⟩, longer than the clipping bound; drawn, clipped and summed "
                "by the simulator, with noise of its generator"
            )
            single = "one canary"
        return [
            f"unit: {unit}",
            f"the adversary of the ledger, {self.adversary}, which knows the {known} of all other "
            "clients",
            f"canaries of {self.width} coordinates {how}",
            f"independent trials: {single} in each copy of the graph",
        ]

    def __str__(self) -> str:
        lower, (gaussian, consistent, defect) = self.lower, IN_WORDS[self.kind]
        epsilon, confidence = f"ε ≥ {lower.epsilon:.3g}", f"{lower.confidence:.0%} confidence"
        measured = {
            "client": f"{epsilon} with {confidence} from {self.trials:,} trials",
            "gradient": f"{epsilon} with {confidence} for one sample and {self.iterations:,} "
            f"iterations, from {self.trials:,} trials",
            "sample": f"{epsilon} for one sample with {confidence} from {lower.coins} samples in "
            "one run",
        }
        text = f"{self.kind} canaries: {measured[self.kind]}"
        if self.gaussian_epsilon is not None:
            text += f" (ε ≥ {self.gaussian_epsilon:.3g} if {gaussian} is Gaussian)"
        if self.upper is None:
            return text
        claim = f"ε ≤ {self.upper.epsilon:.3g}"
        if self.is_defect:
            return text + defect.format(claim)
        return text + consistent.format(self.upper if self.kind == "sample" else claim)

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "unit": self.unit,
            "victim": self.victim,
            "adversary": self.adversary,
            **self.lower.as_dict(),
            "is_defect": self.is_defect,
            "iterations": self.iterations,
            "seconds": self.seconds,
        }
        upper = self.upper
        if upper is None or self.kind == "sample":
            proved = None if upper is None else str(upper)
            return plain | {"guarantee_for_the_client": proved, "scored_by": self.scored_by}
        plain |= {
            "epsilon_at_least_if_gaussian": self.gaussian_epsilon,
            "epsilon_at_most": upper.epsilon,
            "trials": self.trials,
            "width": self.width,
            "stopped": self.stopped,
            "assumptions": self.assumptions,
        }
        return plain | ({"component": list(self.component)} if self.kind == "gradient" else {})
