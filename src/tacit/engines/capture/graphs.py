"""Work recorded once on a GPU and played again: one launch instead of a hundred."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Work = Callable[[], None]
Pass = Callable[
    [Tensor, Tensor, Tensor], None
]  # models [n, P], samples [n, B], where gradients go [n, P]
REHEARSALS = 2  # before it is recorded: libraries choose and load their kernels then


def recorded(work: Work, device: torch.device, rehearsals: int = 0) -> Work:
    """Work on the GPU whose shapes and places never change; recording itself computes nothing.

    Work that asks the GPU something on the way cannot be recorded: whatever it raises is passed on, and the GPU is as
    it was.
    """
    stream = torch.cuda.current_stream(device)
    aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    try:
        aside.wait_stream(stream)
        with torch.cuda.stream(aside):
            for _ in range(rehearsals):
                work()
        stream.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # Other threads of the process may go on using the GPU meanwhile.
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            work()
    except BaseException:
        torch.cuda.set_stream(stream)  # a recording that failed may leave us on its own
        torch.cuda.synchronize(device)
        raise
    play: Work = graph.replay
    return play


class RecordedPass:
    """A pass of gradients, recorded with places of its own for what goes in and comes out."""

    def __init__(self, work: Pass, theta: Tensor, index: Tensor) -> None:
        self._theta, self._index = theta.clone(), index.clone()
        self._out = torch.empty_like(theta)
        self._play = recorded(
            lambda: work(self._theta, self._index, self._out), theta.device, rehearsals=REHEARSALS
        )

    def __call__(self, theta: Tensor, index: Tensor, out: Tensor) -> None:
        """Play it for these models and samples."""
        self._theta.copy_(theta)
        self._index.copy_(index)
        self._play()
        out.copy_(self._out)


def recorded_pass(work: Pass, theta: Tensor, index: Tensor) -> Pass:
    """The pass recorded, or itself where it cannot be."""
    try:
        return RecordedPass(work, theta, index)
    except Exception:
        return work
