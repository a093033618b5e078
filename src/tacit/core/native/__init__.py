"""Compiled loops for the CPU.

The loops are called by address and without Python's lock. They are absent where no C compiler was
installed; tensor operations then do the same.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from tacit.core.errors import Misuse

# The targets that the loops may be compiled for, from the slowest to the fastest.
TARGETS = ("baseline", "avx2", "avx512")
# The environment variable that selects one of them.
TARGET_VARIABLE = "TACIT_CPU"

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}

# What a loop is given: addresses of numbers, and whole numbers.
Argument = Tensor | float | int | ctypes.Structure | ctypes.Array[ctypes.c_int64] | None

# Integer noise: a guide to thresholds int32 [CELLS], their words int32 [count, 4], the factor.
Law = tuple[Tensor, Tensor, int]
INTEGER_SUFFIX = {torch.int32: "i32", torch.int64: "i64"}
# Cells of the guide to the thresholds of integer noise, and the first of the narrow ones.
CELLS, TAIL_CELL = 7680 + 8192, 7680
# Stands for a number that its first words do not decide.
UNDECIDED = -(1 << 31)


@cache
def _library() -> ctypes.CDLL | None:
    spec = find_spec("tacit.core.native._kernels")
    try:
        return None if spec is None or spec.origin is None else ctypes.CDLL(spec.origin)
    except OSError:
        # Compiled for another machine.
        return None


@cache
def targets() -> tuple[str, ...]:
    """The targets that this processor can run, the fastest last; none without compiled loops."""
    library = _library()
    if library is None:
        return ()
    library.tacit_targets.restype = ctypes.c_int64
    bits = library.tacit_targets()
    return tuple(target for bit, target in enumerate(TARGETS) if bits >> bit & 1)


@cache
def target() -> str:
    """The target whose loops are called: the fastest, unless TACIT_CPU names another.

    All targets give the same bits, except for gradients of single samples and for sums of rows:
    their products are not rounded on processors with fused multiplications, as in torch.

    Raises:
        Misuse: If TACIT_CPU names a target that this processor cannot run.
    """
    requested = os.environ.get(TARGET_VARIABLE)
    if not requested:
        return targets()[-1]
    if requested not in targets():
        raise Misuse(
            f"{TARGET_VARIABLE} is {requested!r}.",
            f"This processor can run {', '.join(targets())}: choose one, or unset the variable.",
        )
    return requested


def is_compiled() -> bool:
    """Whether there are compiled loops."""
    return _library() is not None


def supports(rows: Tensor) -> bool:
    """Whether there are compiled loops for rows of this type, device and layout."""
    return rows.dtype in SUFFIX and _has_plain_rows(rows) and is_compiled()


def supports_integers(rows: Tensor) -> bool:
    """Whether there are compiled loops for integer noise in rows of this type and layout."""
    return rows.dtype in INTEGER_SUFFIX and _has_plain_rows(rows) and is_compiled()


def _has_plain_rows(rows: Tensor) -> bool:
    return rows.ndim == 2 and rows.stride(1) == 1 and rows.is_cpu


def mix(
    begin: Tensor,
    source: Tensor,
    weight: Tensor,
    x: Tensor,
    out: Tensor,
    rows: slice,
    onto: bool = False,
    terms: Sequence[tuple[float, Tensor]] = (),
    bad: Tensor | None = None,
) -> None:
    """out[i] = Σ weight[e] x[source[e]] over e in begin[i] … begin[i+1], for the rows i of a slice.

    Args:
        begin: The first edge of each row, int64 [n + 1].
        source: The row of `x` that each edge reads, int64 [e]; not checked.
        weight: The weight of each edge [e], of the type of `x`.
        x: The rows to sum; each is contiguous.
        out: Where to write [n, P]; each row is contiguous.
        rows: Which rows of `out` to write.
        onto: Add to `out` instead.
        terms: At most two factors with rows like `out`, which are added one after the other. Not
            together with `onto`. One of them may be `out`.
        bad: Where to write whether each row of `out` has a number that is not finite, bool [n],
            contiguous; None if that is not needed.
    """
    if not (x.dtype == out.dtype == weight.dtype and out.shape == (len(begin) - 1, x.shape[1])):
        raise ValueError(
            f"rows {x.dtype} {tuple(x.shape)} for {len(begin) - 1} clients "
            f"with {weight.dtype} weights"
        )
    if len(terms) > (0 if onto else 2) or any(
        (term.shape, term.dtype) != (out.shape, out.dtype) or term.stride(1) != 1
        for _, term in terms
    ):
        raise ValueError(f"{len(terms)} terms onto {out.dtype} {tuple(out.shape)}")
    (p, y), (q, z) = [*terms, (0.0, None), (0.0, None)][:2]
    call(
        f"tacit_mix_{SUFFIX[x.dtype]}",
        *(begin, source, weight, *strided(x), *strided(out), rows.start, rows.stop, x.shape[1]),
        *(int(onto), float(p), *strided(y), float(q), *strided(z), bad),
    )


def add(out: Tensor, a: float, x: Tensor, b: float, y: Tensor | None, rows: slice) -> None:
    """out[i] += a x[i], and then b y[i] if there is a y, for the rows i of a slice.

    The bits are those of `out.add_(x, alpha=a)`.

    Args:
        out: The rows to add to, [n, P]; each is contiguous.
        a: The factor of `x`.
        x: Rows like `out`.
        b: The factor of `y`.
        y: Rows like `out`, or None.
        rows: Which rows of `out` to change.
    """
    if not all(
        part is None or (part.shape, part.dtype) == (out.shape, out.dtype) for part in (x, y)
    ):
        raise ValueError(f"rows {x.dtype} {tuple(x.shape)} onto {out.dtype} {tuple(out.shape)}")
    call(
        f"tacit_add_{SUFFIX[out.dtype]}",
        *(*strided(out), float(a), *strided(x), float(b), *strided(y)),
        *(rows.start, rows.stop, out.shape[1]),
    )


def not_finite(x: Tensor, bad: Tensor, rows: slice) -> None:
    """bad[i] = whether row i of x has a number that is not finite, for the rows i of a slice."""
    call(f"tacit_not_finite_{SUFFIX[x.dtype]}", *strided(x), bad, rows.start, rows.stop, x.shape[1])


def write_words(
    key: int, tick: int, source: Tensor, target: Tensor, column: int, out: Tensor
) -> None:
    """Write the Philox words of (source[i], target[i]) to row i of `out`.

    Args:
        key: The key.
        tick: The tick of all rows.
        source: The first address of each row, int64 [n], contiguous.
        target: The second address of each row, int64 [n], contiguous.
        column: The column of the first word, a multiple of 4.
        out: Where to write, uint32 [n, width].
    """
    is_uint32 = out.dtype == torch.uint32
    if not (is_uint32 and column % 4 == 0 and len(source) == len(target) == len(out)):
        raise ValueError(
            f"words of {len(source)} rows from column {column} on "
            f"into {out.dtype} {tuple(out.shape)}"
        )
    n, width = out.shape
    call("tacit_words_u32", source, target, int(tick), key, column, *strided(out), 0, n, width)


def add_laplace(
    key: int,
    tick: int,
    begin: Tensor,
    source: Tensor,
    target: Tensor,
    scale: float,
    out: Tensor,
    rows: slice,
) -> None:
    """out[i] += Laplace noise of (source[e], target[e]) for e in begin[i] … begin[i+1], in order.

    Args:
        key: The key.
        tick: The tick of all edges.
        begin: The first edge of each row, int64 [n + 1], contiguous.
        source: The first address of each edge, int64 [e], contiguous.
        target: The second address of each edge, int64 [e], contiguous.
        scale: The scale β; a negative one subtracts the noise.
        out: The rows to add to, [n, P].
        rows: Which rows to change.
    """
    if not (len(begin) == len(out) + 1 and len(source) == len(target)):
        raise ValueError(
            f"noise of {len(source)} edges of {len(begin) - 1} clients onto {tuple(out.shape)}"
        )
    call(
        f"tacit_laplace_{SUFFIX[out.dtype]}",
        *(begin, source, target, int(tick), key, float(scale)),
        *(*strided(out), rows.start, rows.stop, out.shape[1]),
    )


def add_integers(
    law: Law,
    keys: tuple[int, int],
    tick: int,
    begin: Tensor,
    source: Tensor,
    out: Tensor,
    rows: slice,
    columns: slice,
) -> None:
    """out[i] += integer noise of source[e] for e in begin[i] … begin[i+1]; sums wrap around.

    Args:
        law: The distribution.
        keys: The key, and the key of further words.
        tick: The tick of all rows.
        begin: The first client of each row, int64 [n + 1], contiguous.
        source: The clients, int64 [k], contiguous.
        out: The rows to add to, int32 or int64 [n, P].
        rows: Which rows to change.
        columns: Which columns to change; they start at a multiple of 4.
    """
    if not (len(begin) == len(out) + 1 and columns.start % 4 == 0 and columns.stop <= out.shape[1]):
        raise ValueError(f"noise in {columns} of {len(begin) - 1} rows onto {tuple(out.shape)}")
    call(
        f"tacit_integers_{INTEGER_SUFFIX[out.dtype]}",
        *(*_checked(law), begin, source, int(tick), *keys),
        *(*strided(out), rows.start, rows.stop, columns.start, columns.stop),
    )


def integers_of_words(law: Law, words: Tensor, out: Tensor) -> None:
    """Write the numbers that words stand for, or UNDECIDED.

    Args:
        law: The distribution.
        words: The bits of the words, int32 [rows, width], contiguous; 2·width with a factor.
        out: Where to write, int32 [rows, width], contiguous.
    """
    each = 2 if law[2] else 1
    if not (words.dtype == out.dtype == torch.int32 and words.numel() == each * out.numel()):
        raise ValueError(f"words {tuple(words.shape)} into {out.dtype} {tuple(out.shape)}")
    call("tacit_integers_of_words", *_checked(law), words, out, out.numel())


def add_encoded(
    x: Tensor, scale: float, limit: int, out: Tensor, largest: Tensor, columns: slice
) -> None:
    """Add Σ round(scale · x) over the rows of x, each limited to ±limit, for a slice of columns.

    Args:
        x: The rows, [n, P]; each is contiguous.
        scale: The factor.
        limit: The largest magnitude of a summand; what is not a number counts as the limit.
        out: The sum to add to, float64 [P], contiguous. Exact while it is below 2⁵³.
        largest: Becomes at least the largest magnitude before the limit, float64 [1].
        columns: Which columns to change.
    """
    if not (out.dtype == largest.dtype == torch.float64 and out.shape == x.shape[1:]):
        raise ValueError(f"the sum of {tuple(x.shape)} into {out.dtype} {tuple(out.shape)}")
    call(
        f"tacit_encoded_sum_{SUFFIX[x.dtype]}",
        *(*strided(x), len(x), float(scale), float(limit)),
        *(out, largest, columns.start, columns.stop),
    )


def _checked(law: Law) -> tuple[Argument, ...]:
    guide, thresholds, factor = law
    if len(guide) != CELLS:
        raise ValueError(f"a guide of {len(guide)} cells")
    return guide, thresholds, len(thresholds), factor


def strided(x: Tensor | None) -> tuple[Argument, Argument]:
    """Rows and their distance; zeros if there are none."""
    return (x, 0 if x is None else x.stride(0))


def call(name: str, *arguments: Argument) -> None:
    """Call a loop of the target; numbers that are not whole and structs go by their addresses.

    A tensor goes by the address of its numbers, also one of a single number: a captured step has
    its tick in one, which the functions above read.
    """
    passed: list[int] = []
    # What must live until the loop has ended.
    held: list[ctypes.c_double] = []
    for value in arguments:
        if isinstance(value, Tensor):
            passed.append(value.data_ptr())
        elif isinstance(value, float):
            held.append(ctypes.c_double(value))
            passed.append(ctypes.addressof(held[-1]))
        elif isinstance(value, ctypes.Structure | ctypes.Array):
            passed.append(ctypes.addressof(value))
        else:
            passed.append(0 if value is None else value)
    _function(_library(), f"{name}_{target()}", len(passed))(*passed)


@cache
def _function(library: ctypes.CDLL | None, name: str, arguments: int) -> Callable[..., None]:
    """A loop that takes so many integers; declaring them is faster than converting each."""
    function: Callable[..., None] = getattr(library, name)
    function.argtypes = (ctypes.c_int64,) * arguments  # type: ignore[attr-defined]
    function.restype = None  # type: ignore[attr-defined]
    return function
