"""Products of a fixed sparse matrix with rows."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tacit.graph.neighbourhood import slots

DENSE = (
    64**2
)  # entries, zeros included: so small a matrix is kept dense; larger ones if a quarter of it is filled
COMPRESSED = ("cpu",)  # where products with compressed rows are fast, and sum in a fixed order
TILE = 1 << 22  # numbers handled at a time


class Product:
    """A·x for a matrix A [n, m] and rows x [m, P]; every row is summed in the order of its entries."""

    def __init__(self, matrix: sp.csr_array, dtype: torch.dtype, device: torch.device | str) -> None:
        self.shape = matrix.shape
        self._matrix: Tensor | None = None
        size = matrix.shape[0] * matrix.shape[1]
        if size <= DENSE or matrix.nnz >= size / 4:
            self._matrix = torch.as_tensor(matrix.toarray(), dtype=dtype, device=device)
            return
        first = torch.as_tensor(matrix.indptr.astype(np.int64), device=device)
        columns = torch.as_tensor(matrix.indices.astype(np.int64), device=device)
        values = torch.as_tensor(matrix.data, dtype=dtype, device=device)
        if torch.device(device).type in COMPRESSED:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says that this kind of tensor is new
                self._matrix = torch.sparse_csr_tensor(first, columns, values, matrix.shape)
        else:
            self._slots = [(rows, columns[entry], values[entry]) for rows, entry in slots(first.diff())]

    def of(self, x: Tensor) -> Tensor:
        """A·x, a new tensor."""
        if self._matrix is not None:
            return self._matrix @ x
        return self.add(x.new_zeros(self.shape[0], x.shape[1]), x)

    def add(self, out: Tensor, x: Tensor) -> Tensor:
        """Write out + A·x into `out` [n, P]."""
        if self._matrix is not None:
            return torch.addmm(out, self._matrix, x, out=out)
        step = max(1, TILE // x.shape[1])
        for rows, columns, values in self._slots:
            for part in range(0, len(rows), step):
                piece = slice(part, part + step)
                # Rows of a slot are distinct, so the sums do not depend on how the device schedules them.
                out.index_add_(0, rows[piece], x[columns[piece]].mul_(values[piece, None]))
        return out
