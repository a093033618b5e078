"""Loss and accuracy of a node at its past evaluations, for curves; bounded in memory."""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

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
            self._points.append(Score(step, _number(loss), _number(accuracy)))
            if len(self._points) > MAX_POINTS:
                self._points = [*self._points[:-1:2], self._points[-1]]

    def points(self) -> list[Score]:
        with self._lock:
            return list(self._points)

    def to_wire(self) -> wire.Scores:
        points = self.points()
        return wire.Scores(
            step=[point.step for point in points],
            loss=[math.nan if point.loss is None else point.loss for point in points],
            accuracy=[math.nan if point.accuracy is None else point.accuracy for point in points],
        )


def _number(value: Any) -> float | None:
    """A finite number; None for anything else, as a damaged history may hold."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    # An integer beyond all floats.
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
