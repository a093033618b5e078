"""What a mechanism that keeps a promise has: how it samples and clips, and what a run spends."""

from __future__ import annotations

from dataclasses import dataclass, field

from tacit.core.errors import Misuse
from tacit.core.rounded_sums import rounding_share
from tacit.privacy.guarantee import Budget, Privacy, Unit
from tacit.privacy.population import Population

# The largest share of the bound that is left to rounding of sums.
MOST_ROUNDING = 0.1


@dataclass(frozen=True)
class Mechanism:
    """How clients sample, clip and add noise in one iteration.

    All else follows from these fields, so no part of it can be changed without what it costs.

    Args:
        promise: The guarantee, with the clipping bound.
        facts: What the guarantee depends on.

    Attributes:
        budget: What a run spends.
        rounding: The share of the bound that rounding of sums may take.
    """

    promise: Privacy
    facts: Population
    budget: Budget = field(init=False)
    rounding: float = field(init=False)

    @property
    def unit(self) -> Unit:
        """Whose data the guarantee protects: a "sample", or all data of a "client"."""
        return self.promise.unit

    @property
    def bound(self) -> float:
        """The largest norm of one unit's contribution, C; infinite without clipping."""
        return self.promise.clip

    @property
    def sampling_rate(self) -> float:
        """The probability with which each sample is drawn; 1 for clients."""
        return 1.0 if self.unit == "client" else min(1.0, self.facts.batch / self.facts.samples)

    @property
    def expected(self) -> float:
        """The expected number of contributions of all clients together."""
        if self.unit == "client":
            return float(self.facts.clients)
        return self.sampling_rate * self.facts.samples

    def calibrated_budget(self) -> Budget:
        """The budget with the least noise that keeps the promise.

        Raises:
            Misuse: If the promise does not fit the clients and samples.
        """
        facts = self.facts
        self.promise.check(samples=facts.samples, clients=facts.clients)
        return self.promise.budget(self.sampling_rate, facts.steps, clients=facts.clients)

    def _compute(self, **values: object) -> None:
        """Set the fields that follow from the others."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def rounding_of(expected: float, rate: float) -> float:
    """The share of a bound that rounding may take, in sums over so many samples on average.

    Raises:
        Misuse: If it is a large part of the bound.
    """
    share = rounding_share(expected, rate)
    if share > MOST_ROUNDING:
        raise Misuse(
            f"Sums over {expected:,.0f} samples lose too many digits in single precision: "
            f"{share:.0%} of the clipping bound.",
            "Lower the batch size.",
        )
    return share
