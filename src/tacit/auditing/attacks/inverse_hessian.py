"""The inverse Hessians that L-BFGS builds, of many problems at once.

The compact form (Byrd et al. 1994). With the last pairs (s, y) of a problem as rows of S and Y,
oldest first, R the upper triangle of S Yᵀ with its diagonal D, and γ = sᵀy / yᵀy of the newest
pair, the two-loop recursion is the same as

    H g = γ g + Sᵀ a + Yᵀ b,   u = R⁻¹ S g,   a = R⁻ᵀ (D u + γ Y Yᵀ u − γ Y g),   b = −γ u.

Two triangular solves replace two loops over a hundred pairs, which would be mostly overhead for
small problems.
"""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch.nn.functional import pad


class InverseHessians:
    """S and Y of A problems in ring buffers of m rows, and the inner products of their rows."""

    def __init__(self, like: Tensor, history: int) -> None:
        count, n = like.shape
        self.history = history
        # Pairs stored since the last `clear`.
        self.pairs = torch.zeros(count, dtype=torch.int64, device=like.device)
        self.gamma = like.new_ones(count)
        self.s = like.new_zeros(count, 0, n)  # grows to [A, m, n]; zero where there is no pair
        self.y = like.new_zeros(count, 0, n)
        self.sy = like.new_zeros(count, 0, 0, dtype=torch.float64)  # [A, m, m]
        self.yy = like.new_zeros(count, 0, 0, dtype=torch.float64)

    def __getitem__(self, index: Tensor) -> InverseHessians:
        """Only the problems at `index`."""
        chosen = copy(self)
        for name in ("pairs", "gamma", "s", "y", "sy", "yy"):
            setattr(chosen, name, getattr(self, name)[index])
        return chosen

    def clear(self, rows: Tensor) -> None:
        """Remove all pairs of these problems."""
        self.pairs[rows] = 0
        for tensor in (self.s, self.y, self.sy, self.yy):
            tensor[rows] = 0.0

    def store(self, chosen: Tensor, s: Tensor, y: Tensor) -> None:
        """Add the pairs s, y [A, n] of the chosen problems [A] with positive curvature sᵀy."""
        sy, yy = (s * y).sum(1), y.square().sum(1)
        curved = chosen & (sy > 1e-10 * s.norm(dim=1) * yy.sqrt())
        rows = curved.nonzero()[:, 0]
        if not len(rows):
            return
        slot = self.pairs[rows] % self.history
        self._grow(int(slot.max()) + 1)
        self.s[rows, slot], self.y[rows, slot] = s[rows], y[rows]
        # Y s and Y y
        by_s, by_y = torch.bmm(self.y, torch.stack((s, y), 2)).double().unbind(2)
        self.sy[rows, slot] = by_s[rows]
        self.sy[rows, :, slot] = torch.bmm(self.s, y[:, :, None])[rows, :, 0].double()
        self.yy[rows, slot] = by_y[rows]
        self.yy[rows, :, slot] = by_y[rows]
        self.gamma[rows] = sy[rows] / yy[rows]
        self.pairs += curved

    def times(self, g: Tensor) -> Tensor:
        """H g of every problem: [A, n]."""
        size = self.s.shape[1]
        if size == 0:
            return g
        gamma = self.gamma.double()[:, None]
        oldest = torch.where(self.pairs > size, self.pairs % self.history, 0)
        order = (torch.arange(size, device=g.device) + oldest[:, None]) % size
        across = order[:, None, :].expand(-1, size, -1)
        down = order[:, :, None].expand(-1, -1, size)
        sy, yy = (part.gather(1, down).gather(2, across) for part in (self.sy, self.yy))
        sg, yg = (
            torch.bmm(part, g[:, :, None])[:, :, 0].double().gather(1, order)
            for part in (self.s, self.y)
        )
        diagonal = sy.diagonal(dim1=1, dim2=2)
        r = sy.triu() + torch.diag_embed((diagonal == 0).double())
        u = torch.linalg.solve_triangular(r, sg[:, :, None], upper=True)
        right = diagonal[:, :, None] * u + gamma[:, :, None] * (yy @ u - yg[:, :, None])
        a = torch.linalg.solve_triangular(r.mT, right, upper=False)
        inverse_order = order.argsort(1)
        a, b = (
            part[:, :, 0].gather(1, inverse_order).to(g.dtype)[:, None]
            for part in (a, -gamma[:, :, None] * u)
        )
        return self.gamma[:, None] * g + (torch.bmm(a, self.s) + torch.bmm(b, self.y))[:, 0]

    def _grow(self, size: int) -> None:
        """Allocate `size` pairs and a quarter more, up to the history."""
        if size <= self.s.shape[1]:
            return
        more = min(self.history, size + max(4, size // 4)) - self.s.shape[1]
        self.s, self.y = (pad(part, (0, 0, 0, more)) for part in (self.s, self.y))
        self.sy, self.yy = (pad(part, (0, more, 0, more)) for part in (self.sy, self.yy))
