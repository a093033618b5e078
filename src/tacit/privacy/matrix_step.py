"""Random matrix steps: each gradient is multiplied by a fresh secret matrix before it is used.

    M = diag(μ₁, …, μ_L) + Z,   E[μ_ℓ] = μ,  Var[μ_ℓ] = σ_μ²,   E[Z] = 0,  Var[Z_ab] = σ_z²

(Dual-protection paper, eq. 4 and Assumption 3; section 4.3 for the structures.) E[M] = μI, so the
mean step is that of plain descent. The entries are Gaussian; each client draws new ones in each
iteration and never sends them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.core.checks import check_choice, check_number, check_positive
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.core.noise import Gaussian

# The least deviation that attacks assume, as a share of the root mean square of a result.
FLOOR = 0.1
# Parameters. A larger dense matrix takes more than 16,000 draws per client.
DENSE_LIMIT = 128

Structure = Literal["diagonal", "upper", "sparse", "dense"]


@dataclass(frozen=True)
class MatrixStep:
    """The distribution of M. All structures but "dense" take time and memory proportional to L.

    Args:
        structure: Where Z is non-zero. "diagonal": nowhere. "upper": on the first superdiagonal
            (eq. 22). "sparse": once per row, in a column that changes. "dense": everywhere.
        mean: μ.
        deviation: σ_μ, of the diagonal.
        off_diagonal: σ_z, of the non-zero entries of Z.

    >>> MatrixStep("diagonal", deviation=0.1).mean
    1.0
    """

    structure: Structure = "upper"
    mean: float = 1.0
    deviation: float = 0.01
    off_diagonal: float = 0.01

    def __post_init__(self) -> None:
        check_choice("structure", self.structure, ("diagonal", "upper", "sparse", "dense"))
        check_positive("mean of the matrix step", self.mean)
        for name in ("deviation", "off_diagonal"):
            value, hint = getattr(self, name), "a standard deviation"
            check_number(f"{name} of the matrix step", value, at_least=0, hint=hint)

    def check_width(self, width: int) -> None:
        """Raise Misuse for a dense matrix of a model that is not small."""
        if self.structure == "dense" and width > DENSE_LIMIT:
            raise Misuse(
                f"A dense matrix step of {width:,} parameters has {width**2:,} entries "
                "per client and iteration.",
                'Use structure "upper" or "sparse" (as many entries as parameters); '
                f"dense is for at most {DENSE_LIMIT} parameters.",
            )

    def times(self, rows: Tensor, here: Here) -> Tensor:
        """M·v for each hosted client's row v [n, L], with this iteration's M."""
        if self.deviation == 0 and (self.structure == "diagonal" or self.off_diagonal == 0):
            # Not random, so linear; it protects nothing.
            return self.mean * rows
        return here.nonlinear(
            "M",
            lambda v: self._product(v, here),
            rows,
            mean=self.mean,
            log_density=self.log_density,
        )

    def log_density(self, product: Tensor, row: Tensor, floor: float = FLOOR) -> Tensor:
        """Log density of each coordinate of Mv, given v, up to a constant; [L] all.

            (Mv)ₐ = μₐvₐ + Σ_b Z_ab v_b  ~  N(μvₐ, σ_μ²vₐ² + σ_z² Σ_b v_b²)

        M multiplies: where v is small, so is its noise. The sum is over the entries of Z that are
        not zero. A sparse Z has one in each row, anywhere: the normal distribution has the variance
        of that mixture. `floor` keeps the density smooth where v is zero.
        """
        square = row.square()
        following = torch.cat((square[1:], torch.zeros_like(square[:1])))
        beside = {
            "diagonal": torch.zeros_like(square),
            "upper": following,
            "sparse": (square.sum() - square) / max(1, len(row) - 1),
            "dense": square.sum() - square,
        }[self.structure]
        variance = self.deviation**2 * square + self.off_diagonal**2 * beside
        least = (floor**2 * product.square().mean()).clamp_min(torch.finfo(row.dtype).tiny)
        variance = variance + least
        return -0.5 * ((product - self.mean * row).square() / variance + variance.log())

    def _product(self, v: Tensor, here: Here) -> Tensor:
        width = v.shape[1]
        out = here.noise("M/diagonal", Gaussian(self.deviation)).add_(self.mean).mul_(v)
        if self.structure == "diagonal" or width == 1:
            return out
        law = Gaussian(self.off_diagonal)
        if self.structure == "upper":
            out[:, :-1] += here.noise("M/upper", law)[:, :-1] * v[:, 1:]
        elif self.structure == "sparse":
            places = torch.arange(width, device=v.device)
            # Never 0, which would be on the diagonal.
            shift = 1 + here.words("M/columns", width) % (width - 1)
            out += here.noise("M/sparse", law) * v.gather(1, (places + shift) % width)
        else:
            Z = here.noise("M/dense", law, width**2).reshape(-1, width, width)
            Z.diagonal(dim1=1, dim2=2).zero_()
            out += torch.bmm(Z, v[:, :, None])[:, :, 0]
        return out


def check_matrix(matrix: MatrixStep) -> None:
    """Require a matrix step, not the name of a structure."""
    if not isinstance(matrix, MatrixStep):
        raise Misuse(
            f"matrix is {matrix!r}.",
            'Give its distribution, e.g. tacit.MatrixStep("upper", deviation=0.01).',
        )
