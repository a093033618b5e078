"""A measure made of several, with the numbers of all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tacit_papers.framework.artifact import Measure, MeasureContext, Values


@dataclass(frozen=True)
class Together:
    """One measure after the other, each with the same seed; of two numbers of one name, the first measure's."""

    measures: tuple[Measure, ...]

    def describe(self) -> dict[str, Any]:
        """What each says of itself."""
        return {"together": [measure.describe() for measure in self.measures]}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """All of them."""
        values: Values = {}
        for number, measure in enumerate(self.measures):
            values = measure(seed, replace(place, scratch=place.scratch / str(number))) | values
        return values
