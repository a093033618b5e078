"""Executes an algorithm on hosted clients, step by step: lazily in place, or captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.core.devices import float32_products
from tacit.core.errors import Misuse, first_line
from tacit.engines.capture.iteration import CapturedStep, copied_state
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.lazy_rows import evaluated_state
from tacit.engines.state_checks import require_state
from tacit.engines.watchdog import Watchdog

# Iterations before one is captured: libraries choose and load their kernels then.
WARM_UP = 2


class Execution:
    """An algorithm in progress: `state` after `t` iterations, advanced by `step`.

    Args:
        algorithm: What to execute.
        here: The hosted clients.
        device: Where their rows live.
        watchdog: Looks at every state.
        capture: Whether steps may be captured as CUDA graphs, after a few were computed.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        here: LazyClients,
        device: torch.device,
        watchdog: Watchdog,
        capture: bool,
    ) -> None:
        self.algorithm, self.here, self.device, self.t = algorithm, here, device, 0
        self._watchdog = watchdog
        self._state: Any = None
        self._captured: CapturedStep | None = None
        # Iterations to compute before one is captured; -1: none will be.
        self._warm_up = WARM_UP if capture else -1
        self.why_not_captured: str | None = None

    @property
    def state(self) -> Any:
        """The state after t iterations, which later ones leave as it is; None before the start.

        On a GPU it may be a copy: to continue from another state, assign it.
        """
        return self._state if self._captured is None else copied_state(self._captured.state)

    @state.setter
    def state(self, state: Any) -> None:
        if self._captured is not None:
            self._captured, self._warm_up = None, WARM_UP
        self._state = None if state is None else evaluated_state(state)

    @property
    def _current(self) -> Any:
        """The state itself, to be read before the next iteration."""
        return self._state if self._captured is None else self._captured.state

    @property
    def captured(self) -> bool:
        """Whether iterations are replayed from a CUDA graph."""
        return self._captured is not None

    def start(self) -> None:
        """Compute the state before the first iteration."""
        with reproducible(self.device), self.here.workspace.pool.exclusive():
            first = [self.algorithm.start(self.here)]
            require_state(type(self.algorithm).__name__, "start", first[0])
            self.state = evaluated_state(first.pop())
            self.check_rows("start", self._state)
        self._watchdog.check(0, tensors_of(self._state))

    def check_rows(self, method: str, state: Any) -> None:
        """Raise Misuse if the state that `start` or `step` returned does not fit."""

    def step(self) -> None:
        """Compute one iteration."""
        if self._captured is None and self._state is None:
            raise Misuse(
                "There is no state: the simulation was not started, or an iteration failed.",
                "Start it, or restore a saved state.",
            )
        if self._captured is not None and not self._captured.is_of(self.algorithm, self.here):
            self.state = self.state
        if self._captured is None and self._warm_up == 0:
            self._capture()
        if self._captured is None:
            self._compute()
        else:
            try:
                with torch.cuda.device(self.device):
                    self._captured.replay(self.t)
            except BaseException:
                self._captured = None
                raise
        self.t += 1

    def _compute(self) -> None:
        here, before = self.here.at(self.t), self._state
        here.workspace.schedules.clear()
        with reproducible(self.device), self.here.workspace.pool.exclusive():
            # A list, because nothing may refer to the lazy state while it is evaluated.
            after = [self.algorithm.step(here.lazy_state(before), here)]
            require_state(type(self.algorithm).__name__, "step", after[0])
            # From here on the tensors of the last state are overwritten, unless others hold them.
            self._state = before = None
            finite: set[str] = set()
            state = evaluated_state(after.pop(), finite)
            if self.t == 0:
                self.check_rows("step", state)
            tensors = tensors_of(state).items()
            unchecked = {name: rows for name, rows in tensors if name not in finite}
            self._watchdog.check(self.t + 1, unchecked)
        self._state = state
        self._warm_up -= self._warm_up > 0

    def _capture(self) -> None:
        """Capture a step, or remember why this algorithm's steps cannot be captured."""
        # Captured work has memory of its own, and cannot use what is kept here.
        self.here.workspace.buffers.clear()
        step: CapturedStep | None = None
        try:
            with reproducible(self.device):
                # Replays overwrite the state, which others may refer to.
                waiting, self._state = [self._state], None
                self._state = copied_state(waiting.pop())
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                step = CapturedStep(self.algorithm, self.here, self._state, self._watchdog)
                self._state = None
                step.capture()
                self._captured = step
        except Exception as problem:  # It reads from the GPU, or uses the iteration.
            if step is not None:
                self._state = step.state
            self._warm_up = -1
            self.why_not_captured = first_line(problem)


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Use this device, with kernels that give the same bits every time, in full precision.

    Gradients choose their own precision.
    """
    if device.type == "cpu":
        yield
        return
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # All of it is written anyway.
    try:
        with torch.cuda.device(device), float32_products():
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled
