"""Random matrix steps: a gradient is multiplied by a fresh secret matrix before anybody sees what it did.

    M = diag(μ₁, …, μ_L) + Z,   E[μ_ℓ] = μ,  Var[μ_ℓ] = σ_μ²,   E[Z] = 0,  Var[Z_ab] = σ_z²

(dual-protection paper, eq. 4 and Assumption 3; section 4.3 for the structures.) E[M] = μI, so the mean step is that
of plain descent. The entries are Gaussian, drawn anew by each client in each iteration, and never leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.core.arguments import is_number
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.core.noise import Gaussian

DENSE_LIMIT = 128  # parameters: beyond that a dense matrix costs more than 16,000 draws per client

Structure = Literal["diagonal", "upper", "sparse", "dense"]


@dataclass(frozen=True)
class MatrixStep:
    """The law of M. All structures but `dense` take time and memory proportional to L.

    diagonal  Z = 0
    upper     Z is the first superdiagonal (eq. 22)
    sparse    one entry of Z per row, in a column drawn anew: L entries at random places, none of them twice
    dense     all of Z
    """

    structure: Structure = "upper"
    mean: float = 1.0  # μ
    deviation: float = 0.01  # σ_μ, of the diagonal
    off_diagonal: float = 0.01  # σ_z, of the entries of Z that are there

    def __post_init__(self) -> None:
        if self.structure not in ("diagonal", "upper", "sparse", "dense"):
            raise Misuse(
                f"structure is {self.structure!r}.",
                'Choose "diagonal", "upper", "sparse" or "dense".',
            )
        for name in ("mean", "deviation", "off_diagonal"):
            value = getattr(self, name)
            if not is_number(value) or value < 0 or (name == "mean" and value == 0):
                sort = (
                    "above zero"
                    if name == "mean"
                    else "that is not negative (a standard deviation)"
                )
                raise Misuse(
                    f"{name} of the matrix step is {value!r}.", f"Give a finite number {sort}."
                )

    def check_width(self, width: int) -> None:
        """Refuse a dense matrix for a model that is not small."""
        if self.structure == "dense" and width > DENSE_LIMIT:
            raise Misuse(
                f"A dense matrix step of {width:,} parameters has {width**2:,} entries per client and iteration.",
                f'Use structure "upper" or "sparse" (as many as parameters); dense is for {DENSE_LIMIT} at most.',
            )

    def times(self, rows: Tensor, here: Here) -> Tensor:
        """M·v for each hosted client's row v [n, L], with this iteration's M."""
        if self.deviation == 0 and (self.structure == "diagonal" or self.off_diagonal == 0):
            return self.mean * rows  # not random: linear, and it protects nothing
        return here.nonlinear("M", lambda v: self._product(v, here), rows)

    def _product(self, v: Tensor, here: Here) -> Tensor:
        width = v.shape[1]
        diagonal = here.noise("M/diagonal", Gaussian(self.deviation)).add_(self.mean)
        out = diagonal.mul_(v)
        if self.structure == "diagonal" or width == 1:
            return out
        law = Gaussian(self.off_diagonal)
        if self.structure == "upper":
            out[:, :-1] += here.noise("M/upper", law)[:, :-1] * v[:, 1:]
        elif self.structure == "sparse":
            places = torch.arange(width, device=v.device)
            shift = 1 + here.words("M/columns", width) % (width - 1)  # never 0: not on the diagonal
            out += here.noise("M/sparse", law) * v.gather(1, (places + shift) % width)
        else:
            Z = here.noise("M/dense", law, width**2).reshape(-1, width, width)
            Z.diagonal(dim1=1, dim2=2).zero_()
            out += torch.bmm(Z, v[:, :, None])[:, :, 0]
        return out


def check_matrix(matrix: MatrixStep) -> None:
    """Refuse what is not a matrix step, such as the name of a structure."""
    if not isinstance(matrix, MatrixStep):
        raise Misuse(
            f"matrix is {matrix!r}.", 'Give a law, e.g. tacit.MatrixStep("upper", deviation=0.01).'
        )
