"""The ways to compute gradients, and how much memory a pass may take."""

from __future__ import annotations

from typing import Literal

Strategy = Literal["layered", "batched", "looped"]
STRATEGIES: tuple[Strategy, ...] = ("layered", "batched", "looped")
# Numbers that one pass of one worker may take, roughly.
WORKSPACE = {"cpu": 1 << 25, "cuda": 1 << 30}
