"""Work captured once as a CUDA graph and replayed: one launch instead of a hundred."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Work = Callable[[], None]
# Takes models, indices of samples and the output.
Pass = Callable[[Tensor, Tensor, Tensor], None]
# Runs before the capture: libraries choose and load their kernels then.
WARM_UP = 2


def captured(work: Work, device: torch.device, warm_up: int = 0, pool: Any = None) -> Work:
    """Capture work on the GPU whose shapes and addresses never change; return its replay.

    Capturing computes nothing. Work that reads from the GPU, or launches nothing on it, cannot be
    captured: that raises an exception and leaves the GPU as it was. Works that are replayed in the
    order of their captures can share a `pool` of memory (`torch.cuda.graph_pool_handle()`).
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
        with warnings.catch_warnings():
            # Torch only warns if nothing was captured: a replay would compute nothing.
            warnings.filterwarnings("error", "The CUDA Graph is empty")
            # Other threads of this process may keep using the GPU.
            with torch.cuda.graph(graph, pool, aside, capture_error_mode="thread_local"):
                work()
    except BaseException as problem:
        torch.cuda.set_stream(stream)  # A failed capture may leave its own.
        torch.cuda.synchronize(device)
        # If work raised an error before it launched anything, that is why the graph is empty.
        cause = problem.__context__ if isinstance(problem, UserWarning) else None
        raise cause or problem from None
    replay: Work = graph.replay
    return replay


def captured_pass(work: Pass, theta: Tensor, index: Tensor, out: Tensor | None = None) -> Pass:
    """The captured pass, or the pass itself if it cannot be captured.

    The output has the shape of `out`, by default that of the models.
    """
    try:
        like = theta if out is None else out
        fixed = (theta.clone(), index.clone(), torch.empty_like(like))
        replay = captured(lambda: work(*fixed), theta.device, warm_up=WARM_UP)
    except Exception:
        return work

    def replayed(theta: Tensor, index: Tensor, out: Tensor) -> None:
        fixed[0].copy_(theta)
        fixed[1].copy_(index)
        replay()
        out.copy_(fixed[2])

    return replayed
