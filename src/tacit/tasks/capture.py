"""A pass of gradients recorded once on a GPU and played again: one launch instead of a hundred."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Work = Callable[[Tensor, Tensor, Tensor], None]  # models [n, P], samples [n, B], where gradients go [n, P]
REHEARSALS = 2  # before it is recorded: libraries choose and load their kernels then


class Captured:
    """Work on the GPU whose shapes never change; it must not ask the GPU anything."""

    def __init__(self, work: Work, theta: Tensor, index: Tensor) -> None:
        self._theta, self._index = theta.clone(), index.clone()
        self._out = torch.empty_like(theta)
        aside = torch.cuda.Stream(theta.device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(theta.device))
        with torch.cuda.stream(aside):
            for _ in range(REHEARSALS):
                work(self._theta, self._index, self._out)
        torch.cuda.current_stream(theta.device).wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads of the process may go on using the GPU meanwhile.
        with torch.cuda.graph(self._graph, stream=aside, capture_error_mode="thread_local"):
            work(self._theta, self._index, self._out)

    def __call__(self, theta: Tensor, index: Tensor, out: Tensor) -> None:
        """Play it for these models and samples."""
        self._theta.copy_(theta)
        self._index.copy_(index)
        self._graph.replay()
        out.copy_(self._out)


def capture(work: Work, theta: Tensor, index: Tensor) -> Work:
    """The work recorded, or itself where it cannot be."""
    stream = torch.cuda.current_stream(theta.device)
    try:
        return Captured(work, theta, index)
    except Exception:  # it asks the GPU something on the way, which a recording cannot
        torch.cuda.set_stream(stream)  # a recording that failed may leave us on its own
        torch.cuda.synchronize(theta.device)
        return work
