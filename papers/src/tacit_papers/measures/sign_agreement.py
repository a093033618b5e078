"""An objective for evidence that has signs only, such as a randomized response."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.auditing.attacks.objectives import total_variation


@dataclass(frozen=True)
class SignAgreement:
    """1 − mean(sign v · tanh(Σ/(w·mean|Σ|))) + α·TV(x): how many signs are the guess's, made smooth.

    Flipped signs cost the same for every guess on average, so that nothing need be known of the response but that
    it keeps more than it flips.
    """

    width: float = 0.1
    total_variation: float = 0.0

    def __call__(self, combination: Tensor, value: Tensor, inputs: Tensor) -> Tensor:
        """One minus the agreement."""
        size = combination.abs().mean().clamp_min(1e-30)
        agreement = (value.sign() * (combination / (self.width * size)).tanh()).mean()
        distance = 1 - agreement
        return (
            distance + self.total_variation * total_variation(inputs)
            if self.total_variation
            else distance
        )
