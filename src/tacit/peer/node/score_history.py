"""Loss and accuracy of a node at its past evaluations, for curves; bounded in memory."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from tacit.core.missing_numbers import finite_or_none, nan_if_none
from tacit.peer.wire import wire_pb2 as wire

MAX_POINTS = 400
MAX_STEP = 1 << 53  # what every reader of JSON can hold


class Score(NamedTuple):
    step: int
    loss: float | None
    accuracy: float | None  # percent


class ScoreHistory:
    """Scores by step, safe to use from many threads.

    Of a long run it keeps every second, fourth, … point, and always the newest.
    """

    def __init__(self) -> None:
        self._points: list[Score] = []
        self._lock = threading.Lock()

    def add(self, step: int, loss: Any, accuracy: Any) -> None:
        """Add a point. It replaces those of its step and later ones, which are repeated."""
        # A damaged history may hold any integer.
        if not 0 <= step < MAX_STEP:
            return
        with self._lock:
            while self._points and self._points[-1].step >= step:
                self._points.pop()
            self._points.append(Score(step, finite_or_none(loss), finite_or_none(accuracy)))
            if len(self._points) > MAX_POINTS:
                self._points = [*self._points[:-1:2], self._points[-1]]

    def points(self) -> list[Score]:
        with self._lock:
            return list(self._points)

    def to_wire(self) -> wire.Scores:
        points = self.points()
        return wire.Scores(
            step=[point.step for point in points],
            loss=[nan_if_none(point.loss) for point in points],
            accuracy=[nan_if_none(point.accuracy) for point in points],
        )
