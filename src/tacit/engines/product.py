"""Products of a fixed sparse matrix with rows, as in mixing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tacit.core import native
from tacit.core.neighbourhood import slots
from tacit.core.workers import WorkerPool

# Without compiled loops, matrices of at most this many entries (zeros included) are kept dense.
DENSE = 64**2
# With our kernel on a GPU, matrices of at most this many entries per row are not kept dense.
FEW = 8
# Numbers handled at a time where there are no compiled loops.
TILE = 1 << 22


@cache
def _gpu_kernel(device: torch.device) -> ModuleType | None:
    """Our kernel if it compiles and runs on the device: needs a GPU, Triton and a C compiler."""
    if device.type != "cuda":
        return None
    try:
        from tacit.engines import gpu_product

        begin, source = torch.tensor([[0, 1], [0, 0]], device=device)
        one = torch.ones(1, 1, device=device)
        gpu_product.write(begin, source[:1], one[0], one, one.clone(), False)
    except Exception:
        # Triton's errors have no common base class. Tensor operations work in any case.
        return None
    return gpu_product


class Product:
    """A·x for a matrix A [n, m] and rows x [m, P]; each row is summed in the order of its entries.

    A matrix that is at least a quarter full is kept dense. Compiled loops, and our kernel on a GPU,
    sum other matrices row by row, on a GPU also those with a few entries per row. Without them,
    small matrices are kept dense too, and large ones are summed by slots: the first entry of every
    row, then the second, and so on.
    """

    def __init__(
        self,
        matrix: sp.csr_array,
        dtype: torch.dtype,
        device: torch.device | str,
        pool: WorkerPool | None = None,
    ) -> None:
        matrix.sort_indices()
        self._columns = matrix.shape[1]
        self._pool = pool or WorkerPool(1)
        self._dense: Tensor | None = None
        self._compiled = native.supports(torch.empty(0, 0, dtype=dtype, device=device))
        self._kernel = _gpu_kernel(torch.device(device))
        size = matrix.shape[0] * matrix.shape[1]
        few = self._kernel is not None and matrix.nnz <= FEW * matrix.shape[0]
        small = size <= DENSE and not self._compiled and self._kernel is None
        if (matrix.nnz >= size / 4 or small) and not few:
            self._compiled = False
            self._dense = torch.as_tensor(matrix.toarray(), dtype=dtype, device=device)
            return
        self._begin = torch.as_tensor(matrix.indptr.astype(np.int64), device=device)
        self._source = torch.as_tensor(matrix.indices.astype(np.int64), device=device)
        self._weight = torch.as_tensor(matrix.data, dtype=dtype, device=device)
        if not self._compiled and self._kernel is None:
            parts = slots(self._begin.diff())
            self._slots = [
                (rows, self._source[entry], self._weight[entry]) for rows, entry in parts
            ]

    @property
    def adds_terms(self) -> bool:
        """Whether `write` can add other rows."""
        return self._compiled

    def write(
        self,
        out: Tensor,
        x: Tensor,
        *,
        accumulate: bool = False,
        terms: Sequence[tuple[float, Tensor]] = (),
        bad: Tensor | None = None,
    ) -> None:
        """Write A·x into `out` [n, P], or add it to `out` if `accumulate`.

        With `adds_terms`, up to two terms factor·rows are added in the same pass, one after the
        other, and bad[i] becomes whether row i of `out` has a number that is not finite.
        """
        if len(x) != self._columns:
            raise ValueError(f"{len(x)} rows for a matrix of {self._columns} columns")
        if self._dense is not None:
            self._write_dense(self._dense, out, x, accumulate)
        elif self._compiled:
            entries, x = (self._begin, self._source, self._weight), x.contiguous()
            self._pool.run(
                lambda rows: native.mix(*entries, x, out, rows, accumulate, terms, bad),
                self._pool.split(len(out)),
            )
        elif self._kernel is not None:
            entries, x = (self._begin, self._source, self._weight), x.contiguous()
            self._kernel.write(*entries, x, out, accumulate)
        else:
            self._add_slots(out if accumulate else out.zero_(), x)

    def _write_dense(self, dense: Tensor, out: Tensor, x: Tensor, accumulate: bool) -> None:
        def write(columns: slice) -> None:
            torch.addmm(
                out[:, columns], dense, x[:, columns], beta=int(accumulate), out=out[:, columns]
            )

        self._pool.run(write, self._pool.split(x.shape[1]))

    def _add_slots(self, out: Tensor, x: Tensor) -> None:
        step = max(1, TILE // x.shape[1])
        for rows, columns, values in self._slots:
            for part in range(0, len(rows), step):
                piece = slice(part, part + step)
                # Rows of a slot are distinct, so the sums do not depend on the device's scheduling.
                out.index_add_(0, rows[piece], x[columns[piece]].mul_(values[piece, None]))
