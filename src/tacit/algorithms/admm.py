"""ADMM, the alternating direction method of multipliers, telling differences only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.splitting import Splitting


@dataclass(frozen=True)
class ADMM(Splitting):
    """Differential ADMM (Yu et al. 2025, Algorithm 1 with θ = ½).

    wᵢ    = argmin fᵢ(w) + Σⱼ Bᵢⱼ zᵢ|ⱼᵀw + (ρdᵢ/2)‖w‖²
    zⱼ|ᵢ⁺ = ½ zⱼ|ᵢ + ½ (zᵢ|ⱼ + 2ρ Bᵢⱼ wᵢ)
    Δzⱼ|ᵢ = zⱼ|ᵢ⁺ − zⱼ|ᵢ                      the only message; z⁰ is shared in private

    Solved exactly, it converges for every closed, proper, convex f, slower than PDMM where that does.
    """

    name: ClassVar[str] = "admm"
    paper: ClassVar[str] = "Yu et al. 2025 (distributed optimization), Algorithm 1, θ = ½"
    averaging: ClassVar[float] = 0.5  # θ
