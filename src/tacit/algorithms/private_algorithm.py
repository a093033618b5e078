"""Algorithms that keep a promised guarantee: what they need to know, and what a run spends."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from tacit.algorithms.algorithm import Algorithm
from tacit.graph import Graph
from tacit.privacy.guarantee import Budget, Privacy
from tacit.privacy.population import Population


class PrivateAlgorithm(Algorithm):
    """An algorithm with a differential-privacy guarantee for the whole run."""

    @abstractmethod
    def prepared(self, promise: Privacy, facts: Population, graph: Graph) -> Self:
        """This algorithm with the noise that keeps a promise.

        Args:
            promise: The guarantee.
            facts: What it depends on.
            graph: Who is connected with whom.

        Raises:
            Misuse: If the promise cannot be kept.
        """

    @property
    @abstractmethod
    def budget(self) -> Budget | None:
        """What a run spends; None before the algorithm is prepared, or without a guarantee."""
