"""Work captured once as a CUDA graph and replayed: one launch instead of a hundred."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Work = Callable[[], None]
# Takes models [n, P], sample indices [n, B] and the output [n, P].
Pass = Callable[[Tensor, Tensor, Tensor], None]
# Runs before the capture: libraries choose and load their kernels then.
WARM_UP = 2


def captured(work: Work, device: torch.device, warm_up: int = 0) -> Work:
    """Capture work on the GPU whose shapes and addresses never change; return its replay.

    Capturing computes nothing. Work that reads from the GPU cannot be captured: its exception is
    passed on, and the GPU is left as it was.
    """
    stream = torch.cuda.current_stream(device)
    aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    try:
        aside.wait_stream(stream)
        with torch.cuda.stream(aside):
            for _ in range(warm_up):
                work()
        stream.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # Other threads of this process may keep using the GPU.
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            work()
    except BaseException:
        torch.cuda.set_stream(stream)  # A failed capture may leave its own.
        torch.cuda.synchronize(device)
        raise
    replay: Work = graph.replay
    return replay


class CapturedPass:
    """A captured gradient pass with its own tensors for inputs and outputs."""

    def __init__(self, work: Pass, theta: Tensor, index: Tensor) -> None:
        self._theta, self._index = theta.clone(), index.clone()
        self._out = torch.empty_like(theta)
        self._replay = captured(
            lambda: work(self._theta, self._index, self._out), theta.device, warm_up=WARM_UP
        )

    def __call__(self, theta: Tensor, index: Tensor, out: Tensor) -> None:
        self._theta.copy_(theta)
        self._index.copy_(index)
        self._replay()
        out.copy_(self._out)


def captured_pass(work: Pass, theta: Tensor, index: Tensor) -> Pass:
    """The captured pass, or the pass itself if it cannot be captured."""
    try:
        return CapturedPass(work, theta, index)
    except Exception:
        return work
