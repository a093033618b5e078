"""PDMM, the primal-dual method of multipliers, telling differences only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.algorithms.splitting import Splitting


@dataclass(frozen=True)
class PDMM(Splitting):
    """Differential PDMM (Yu et al. 2025, Algorithm 1 with θ = 1).

    wᵢ    = argmin fᵢ(w) + Σⱼ Bᵢⱼ zᵢ|ⱼᵀw + (ρdᵢ/2)‖w‖²
    zⱼ|ᵢ⁺ = zᵢ|ⱼ + 2ρ Bᵢⱼ wᵢ
    Δzⱼ|ᵢ = zⱼ|ᵢ⁺ − zⱼ|ᵢ                      the only message; z⁰ is shared in private

    Solved exactly, it converges for differentiable, strongly convex f, and faster than ADMM.
    """

    name: ClassVar[str] = "pdmm"
    paper: ClassVar[str] = "Yu et al. 2025 (distributed optimization), Algorithm 1"
    averaging: ClassVar[float] = 1.0  # θ
