"""Executes an algorithm on hosted clients, step by step: lazily in place, or captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.core.errors import Misuse, first_line
from tacit.core.precision import consistent_tf32
from tacit.engines.capture.iteration import CapturedStep
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.lazy_rows import evaluated_state
from tacit.engines.watchdog import Watchdog

# Iterations before one is captured: libraries choose and load their kernels then.
WARM_UP = 2


class Execution:
    """The state of an algorithm, advanced step by step.

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
        self.algorithm, self.here, self.device = algorithm, here, device
        self._watchdog = watchdog
        self._state: Any = None
        self._captured: CapturedStep | None = None
        # Iterations to compute before one is captured; -1: none will be.
        self._warm_up = WARM_UP if capture else -1
        self.why_not_captured: str | None = None

    @property
    def state(self) -> Any:
        """The state after the last step, which later steps leave as it is; None before the start.

        With a captured step it is a copy: to continue from another state, assign it.
        """
        return self._state if self._captured is None else self._captured.copy_of_state()

    @state.setter
    def state(self, state: Any) -> None:
        if self._captured is not None:
            self._captured, self._warm_up = None, WARM_UP
        self._state = None if state is None else evaluated_state(state)

    @property
    def latest(self) -> Any:
        """The state to read now. The next step may overwrite it."""
        return self._state

    @property
    def captured(self) -> bool:
        """Whether steps are replayed from a CUDA graph."""
        return self._captured is not None

    def start(self) -> None:
        """Compute the state before the first iteration."""
        with reproducible(self.device), self.here.workspace.pool.exclusive():
            self.state = evaluated_state(self.algorithm.start(self.here))
        self._watchdog.check(0, tensors_of(self._state))

    def step(self, t: int) -> None:
        """Compute iteration t."""
        if self._state is None:
            raise Misuse(
                "There is no state: the simulation was not started, or an iteration failed.",
                "Start it, or restore a saved state.",
            )
        if self._captured is not None and not self._captured.is_of(self.algorithm, self.here):
            self.state = self._captured.copy_of_state()
        if self._captured is None and self._warm_up == 0:
            self._capture()
        if self._captured is None:
            self._compute(t)
        else:
            self._replay(self._captured, t)

    def _compute(self, t: int) -> None:
        here, before = self.here.at(t), self._state
        with reproducible(self.device), self.here.workspace.pool.exclusive():
            # A list, because nothing may refer to the lazy state while it is evaluated.
            after = [self.algorithm.step(here.lazy_state(before), here)]
            # From here on the tensors of the last state are overwritten, unless others hold them.
            self._state = before = None
            state = evaluated_state(after.pop())
            self._watchdog.check(t + 1, tensors_of(state))
        self._state = state
        self._warm_up -= self._warm_up > 0

    def _replay(self, captured: CapturedStep, t: int) -> None:
        try:
            with torch.cuda.device(self.device):
                captured.replay(t)
        except BaseException:
            self._state = self._captured = None
            raise

    def _capture(self) -> None:
        """Capture a step, or remember why this algorithm's steps cannot be captured."""
        try:
            with reproducible(self.device):
                rows = {name: rows.clone() for name, rows in tensors_of(self._state).items()}
                state = replace(self._state, **rows)
                self._captured = CapturedStep(self.algorithm, self.here, state, self._watchdog)
                self._state = state
        except Exception as problem:  # It reads from the GPU, or uses the iteration.
            self._warm_up = -1
            self.why_not_captured = first_line(problem)


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Use this device, with kernels that give the same bits every time, in full precision."""
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
        with torch.cuda.device(device), consistent_tf32():
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled
