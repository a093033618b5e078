"""The first gradient, times a random matrix, from a message that is shifted by a protection vector.

Who knows the first model θ⁰ and τ takes the shift off at once:

    diffusion            ψᶜ = θ⁰ − γ M∇J + c(θ⁰)                 M∇J = (θ⁰ + c(θ⁰) − ψᶜ)/γ
    exact diffusion      φᶜ = θ⁰ − γ M∇J + random                M∇J = (θ⁰ − φᶜ)/γ, with noise
    gradient tracking    γᶜ = ∇J + c(∇J)                         ∇J ← γᶜ − c(∇J), repeated: c is a contraction
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tacit.algorithms.dual_protection import DualProtection
from tacit_papers.measures.overheard import Overheard

ENOUGH = 200  # repetitions; the error shrinks by τ with each


def unshifted(heard: Overheard, victim: int, theta0: Tensor) -> Tensor | None:
    """Of the victim's first message [P]; None where the algorithm has no protection vector."""
    rule = heard.simulation.algorithm
    if not isinstance(rule, DualProtection):
        return None
    here = replace(
        heard.simulation.here.at(0), apply=lambda tag, function, rows, epsilon: function(rows)
    )

    def shift(row: Tensor) -> Tensor:
        return rule.protection.vector("guess", row[None], here)[0]

    if rule.theorem is None:
        sent = _first(heard, "gamma", victim)
        gradient = torch.zeros_like(sent)
        for _ in range(ENOUGH):
            gradient = sent - shift(gradient)
        return gradient
    sent = _first(heard, "psi" if rule.theorem == 1 else "phi", victim)
    model = theta0.to(sent)
    known = shift(model) if rule.theorem == 1 else torch.zeros_like(sent)
    return (model + known - sent) / here.rate(rule.lr)


def _first(heard: Overheard, tag: str, victim: int) -> Tensor:
    return heard.transcript.of(tag)[0].rows[victim].double()
