"""Two measures of one cell, such as an attack and the accuracy of the model that is attacked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tacit.experiment.reproduce.artifact import Measure, Place, Values


@dataclass(frozen=True)
class Together:
    """The numbers of both; where both have one of a name, the first's."""

    first: Measure
    second: Measure

    def describe(self) -> dict[str, Any]:
        """What both say."""
        return {"first": self.first.describe(), "second": self.second.describe()}

    def __call__(self, seed: int, place: Place) -> Values:
        """One after the other, each with a folder of its own."""
        second = self.second(seed, replace(place, scratch=place.scratch / "second"))
        return second | self.first(seed, replace(place, scratch=place.scratch / "first"))
