"""The public facts that a guarantee depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Population:
    """Who takes part, and for how long.

    Attributes:
        clients: The number of clients.
        samples: Training samples of all clients together.
        batch: The expected number of samples in one sum, of all clients together.
        parameters: Numbers in a model.
        steps: Iterations of the whole run, at least 1: without any, no noise would be needed.
    """

    clients: int
    samples: int
    batch: float
    parameters: int
    steps: int
