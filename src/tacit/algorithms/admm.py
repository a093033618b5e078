"""ADMM: the alternating direction method of multipliers in differential form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.splitting import Splitting


@dataclass(frozen=True)
class ADMM(Splitting):
    """Differential ADMM (Yu et al. 2025, Algorithm 1 with θ = ½).

    wᵢ    = argmin fᵢ(w) + Σⱼ Bᵢⱼ zᵢ|ⱼᵀw + (ρdᵢ/2)‖w‖²
    zⱼ|ᵢ⁺ = ½ zⱼ|ᵢ + ½ (zᵢ|ⱼ + 2ρ Bᵢⱼ wᵢ)
    Δzⱼ|ᵢ = zⱼ|ᵢ⁺ − zⱼ|ᵢ

    Clients send only Δz; they share z⁰ in private. With exact solutions, it converges for every
    closed, proper, convex f, but slower than PDMM where both converge.

    Args:
        rho: Penalty ρ of differences between neighbours.
        solver: How clients solve for w.
        noise: Distribution of z⁰, with standard deviation σ_z. Default: the paper's σ_z² = 10⁻⁴.
        masks: z⁰ is "derived" from pairwise keys, or "sent" over a private channel as published.
        weight_decay: ω, for the objective f + (ω/2)‖w‖².
    """

    name: ClassVar[str] = "admm"
    paper: ClassVar[str] = "Yu et al. 2025 (distributed optimization), Algorithm 1, θ = ½"
    known_as: ClassVar[str] = (
        "decentralized consensus ADMM, Douglas–Rachford splitting over the edges"
    )
    averaging: ClassVar[float] = 0.5  # θ
