"""The line of an algorithm's text at which it fails on symbols, or is not linear.

On symbols a row has one number per unknown, and what the text computes of rows X [n, U] must be the
same for each column, f(X M) = f(X) M for every matrix M [U, U]. Signs, norms, products of rows,
constants that are added and functions of a coordinate's position are not. `first_nonlinear_line`
runs the algorithm again, asks that of every operation its text calls, and names the first line
that fails. It only explains: what is left out of proofs is decided by `replay`.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from tacit.core.errors import Misuse, TacitError, first_line

PACKAGE, TORCH = Path(__file__).parents[2], Path(torch.__file__).parent
# Parts of the package that algorithms are written with; the others run them.
TEXT = {"algorithms"}
USED_BY_TEXT = {"privacy", "compression"}
REMEDY = (
    "Give a function of rows that is not linear, or that needs the order or number of a model's "
    "parameters, to here.nonlinear(tag, function, rows)."
)


@dataclass(frozen=True)
class Line:
    """A line of an algorithm's text."""

    file: str
    number: int

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.number).strip()
        return f"line {self.number} of {Path(self.file).name}" + (f", `{text}`" if text else "")


def first_nonlinear_line(run: Callable[[], object], width: int) -> Line | None:
    """The first line of the text that is not linear in rows; None if none was recognised.

    Args:
        run: Runs the algorithm on symbols.
        width: The width of rows in that run.
    """
    check = _LinearityCheck(width)
    with check:
        run()
    return check.line


@contextmanager
def failures_located(name: str) -> Iterator[None]:
    """Say which line of an algorithm's text fails, if one does while the block runs."""
    try:
        yield
    except TacitError:
        raise
    except Exception as problem:
        # The last of the frames of the text is the innermost.
        walked = traceback.walk_tb(problem.__traceback__)
        lines = [
            Line(frame.f_code.co_filename, number)
            for frame, number in walked
            if _kind(frame) == "text"
        ]
        if not lines:
            raise
        raise Misuse(
            f"The audit runs {name} on rows of other widths than the model's, and {lines[-1]} "
            f"fails there: {first_line(problem)}.",
            REMEDY,
        ) from problem


class _LinearityCheck(TorchFunctionMode):
    """Checks every operation that the text of an algorithm calls until one is not linear."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.line: Line | None = None
        generator = torch.Generator().manual_seed(0)
        self._width = width
        self._mix = 3 * torch.randn(width, width, generator=generator, dtype=torch.float64)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        at = None if self.line is not None else _caller(sys._getframe(1))
        if at is not None and not self._is_linear(func, args, kwargs):
            self.line = Line(*at)
        return func(*args, **kwargs)

    def _is_linear(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether f(X M) = f(X) M, for what is returned and for what is changed in place."""
        given = args, kwargs
        tensors = (leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor))
        if func.__name__ == "empty_like" or not any(map(self._is_row, tensors)):
            return True
        plain, mixed = (
            tree_map_only(Tensor, change, given) for change in (torch.clone, self._times_mix)
        )
        try:
            results = [(func(*x[0], **x[1]), x) for x in (plain, mixed)]
        except (RuntimeError, TypeError, ValueError):
            return True  # What fails is no function of rows.
        pairs = zip(tree_leaves(results[0]), tree_leaves(results[1]), strict=False)
        return all(self._follows(before, after) for before, after in pairs)

    def _follows(self, before: Any, after: Any) -> bool:
        """Whether a result for mixed rows is the mixed result, or does not depend on rows."""
        if not isinstance(before, Tensor):
            return isinstance(after, Tensor) or bool(before == after)
        if self._is_row(before):
            expected = self._times_mix(before)
            size = float(expected.abs().max()) if expected.numel() else 0.0
            return torch.allclose(expected, after, rtol=1e-6, atol=1e-9 * size)
        # Rows in another layout are not recognised.
        return self._width in before.shape or torch.equal(before, after)

    def _is_row(self, given: Tensor) -> bool:
        return given.is_floating_point() and given.ndim > 0 and given.shape[-1] == self._width

    def _times_mix(self, given: Tensor) -> Tensor:
        if not self._is_row(given):
            return given.clone()
        return given @ self._mix.to(given.dtype)


def _caller(frame: FrameType | None) -> tuple[str, int] | None:
    """The line of the text that calls; None if it is the machinery that does."""
    while frame is not None:
        kind = _kind(frame)
        if kind == "machinery":
            return None
        if kind == "text":
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _kind(frame: FrameType) -> str:
    """Whose code a frame runs: an algorithm's "text", "used" by it, or the "machinery"."""
    path = Path(frame.f_code.co_filename)
    if path.is_relative_to(PACKAGE):
        room = path.relative_to(PACKAGE).parts[0]
        return "text" if room in TEXT else "used" if room in USED_BY_TEXT else "machinery"
    is_library = path.is_relative_to(TORCH) or not path.is_file()
    return "used" if is_library else "text"
