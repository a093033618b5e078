"""Lazy rows: an algorithm's arithmetic builds expressions, which the engine evaluates in place.

In PyTorch `theta - lr * gamma` allocates two tensors [n, P], and new memory costs as much time as
the arithmetic. Here it only notes what to compute. A value is computed when something needs it: a
network, a function of PyTorch, or the end of the iteration. By then it is known what is needed
afterwards, so

- a sum is one pass over memory, written into its first operand if nothing else refers to that;
- tensors whose last use has passed are recycled, those of the previous state among them;
- rows that are all one row in memory, such as a total and what follows from it, stay one.

"Nothing else refers to it" is decided by Python's reference counts, as NumPy does for temporaries.
What is computed, and how it is rounded, never depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from tacit.core import native
from tacit.core.errors import Misuse
from tacit.core.hosted_clients import SamplingRule
from tacit.core.rows import is_shared, shared
from tacit.core.schedules import Schedule
from tacit.core.workers import WorkerPool
from tacit.engines.buffers import Buffers, is_only_in, is_only_reference

SMALL = 1 << 14  # Below this many numbers a plain `add_` is faster.
DEEPEST = 64  # Deeper expressions are evaluated at once: evaluation is recursive.
State = TypeVar("State")
Coefficient = float | Tensor  # A tensor without dimensions in a captured step, else a number.


# See `Computed`.
Write = Callable[[Tensor, Tensor], object]
WriteSum = Callable[[Tensor, Tensor, list[tuple[float, Tensor]], Tensor], object]


@dataclass(frozen=True)
class Workspace:
    """What evaluation uses: recycled memory, and the threads that share the work.

    It notes what an iteration asked for, which captured iterations prepare. `drawn` has the
    gradients that are sums over samples that are drawn, with their rule, and None for gradients on
    batches; `schedules` has the step sizes that change.
    """

    buffers: Buffers = field(default_factory=Buffers)
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(1))
    drawn: dict[int, SamplingRule | None] = field(default_factory=dict)
    schedules: list[Schedule] = field(default_factory=list)

    def add(self, out: Tensor, terms: list[tuple[Coefficient, Tensor]]) -> None:
        """Add Σ coefficient · rows to `out` in place, term by term, two terms per pass.

        Compiled loops give the bits of `add_`, which is faster for few numbers.
        """
        compiled = out.numel() >= SMALL and all(
            isinstance(coefficient, float) and native.supports(rows)
            for coefficient, rows in (*terms, (1.0, out))
        )
        if not compiled:
            for coefficient, rows in terms:
                if isinstance(coefficient, Tensor):
                    out.addcmul_(rows, coefficient)
                else:
                    out.add_(rows, alpha=coefficient)
            return
        for k in range(0, len(terms), 2):
            pair: Any = (*terms[k : k + 2], (0.0, None))
            (a, x), (b, y), *_ = pair
            self.pool.run(partial(native.add, out, a, x, b, y), self.pool.split(len(out)))


class Rows:
    """Rows [n, P] that are computed when needed; a tensor to arithmetic and to PyTorch."""

    __slots__ = ("_depth", "_value", "_workspace", "device", "dtype", "shape", "suspect")

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    __array_priority__ = 1000  # NumPy's numbers leave `number * rows` to this class, as to tensors.

    def __init__(self, like: Tensor | Rows, workspace: Workspace, depth: int = 0) -> None:
        self.shape, self.dtype, self.device = like.shape, like.dtype, like.device
        self._workspace = workspace
        self._value: Tensor | None = None
        self._depth = depth
        # Whether each row may have numbers that are not finite, bool [n]; None if that is unknown.
        self.suspect: Tensor | None = None

    def tensor(self) -> Tensor:
        """The value, computed at the first call."""
        if self._value is None:
            self._value = self._compute()
            self._depth = 0
        return self._value

    def is_known_finite(self) -> bool:
        """Whether all numbers are finite, as far as that was found while computing; a CPU only."""
        return self.suspect is not None and not bool(self.suspect.any())

    def _compute(self) -> Tensor:
        raise NotImplementedError

    def _scaled(self) -> tuple[Coefficient, Rows]:
        """This as coefficient · rows."""
        return 1.0, self

    def __len__(self) -> int:
        return self.shape[0]

    def __add__(self, other: Any) -> Any:
        return _sum(self, other, 1.0, self._workspace)

    def __radd__(self, other: Any) -> Any:
        return _sum(other, self, 1.0, self._workspace)

    def __sub__(self, other: Any) -> Any:
        return _sum(self, other, -1.0, self._workspace)

    def __rsub__(self, other: Any) -> Any:
        return _sum(other, self, -1.0, self._workspace)

    def __mul__(self, other: Any) -> Any:
        if not (_is_coefficient(other) and self.dtype.is_floating_point):
            return self.tensor() * evaluated(other)
        coefficient, rows = self._scaled()
        product = coefficient * other
        if isinstance(product, float) and not _is_normal(product, self.dtype):
            product, rows = 1.0 * other, self  # Two factors may fit where their product does not.
        return LinearCombination([product], [rows], self._workspace)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1.0

    def __truediv__(self, other: Any) -> Any:
        return self.tensor() / evaluated(other)

    def __getitem__(self, index: Any) -> Tensor:
        return self.tensor()[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name.endswith("_"):
            raise Misuse(
                f"{name} would write into rows that other rows may still be computed from.",
                f"Use {name.rstrip('_')}, which makes new ones.",
            )
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Arithmetic with a tensor on the left stays lazy; other functions get the values."""
        lazy = _REFLECTED.get(getattr(function, "__name__", ""))
        if lazy and not kwargs and len(args) == 2 and isinstance(args[1], Rows):
            return getattr(args[1], lazy)(args[0])
        named = {name: _all_evaluated(value) for name, value in (kwargs or {}).items()}
        return function(*map(_all_evaluated, args), **named)


def _on_values(name: str) -> Callable[..., Any]:
    def operator(rows: Rows, *others: Any) -> Any:
        return getattr(rows.tensor(), name)(*map(evaluated, others))

    return operator


# What is not linear is computed at once, as tensors do it.
for _name in (
    *("eq", "ne", "lt", "le", "gt", "ge", "abs", "bool", "pow", "rpow", "rtruediv"),
    *("matmul", "rmatmul", "mod", "rmod", "floordiv", "rfloordiv"),
):
    setattr(Rows, f"__{_name}__", _on_values(f"__{_name}__"))


_REFLECTED = {"add": "__radd__", "sub": "__rsub__", "mul": "__rmul__"} | {
    f"__{name}__": f"__r{name}__" for name in ("add", "sub", "mul")
}


class Known(Rows):
    """A tensor as rows. It must not be written into while they are in use."""

    __slots__ = ("_version",)

    def __init__(self, value: Tensor, workspace: Workspace) -> None:
        super().__init__(value, workspace)
        self._value = value
        self._version = _version(value)

    def tensor(self) -> Tensor:
        value = super().tensor()
        if _version(value) != self._version:
            raise Misuse(
                "A tensor was written into after rows were computed from it.",
                "Write `x = x + y` instead of `x += y` or `x.add_(y)`.",
            )
        return value


class Computed(Rows):
    """Rows that `write(out, value)` computes from the value of other rows of the same shape.

    If there is a `write_sum(out, value, terms, bad)`, it adds up to two terms coefficient · rows in
    the same pass, with the same result, and writes whether each row is not finite to `bad`.
    """

    __slots__ = ("_inputs", "_write", "_write_sum")

    def __init__(
        self,
        write: Write,
        rows: Rows,
        workspace: Workspace,
        write_sum: WriteSum | None = None,
    ) -> None:
        super().__init__(rows, workspace, rows._depth + 1)
        self._write, self._write_sum = write, write_sum
        self._inputs = [rows]
        if self._depth > DEEPEST:
            self.tensor()

    def can_add(self, coefficients: list[Coefficient], rows: list[Rows]) -> bool:
        """Whether `plus` can add these terms: not those that are drawn while they are added."""
        return (
            self._write_sum is not None
            and 1 <= len(rows) <= 2
            and self.shape.numel() >= SMALL
            and all(isinstance(coefficient, float) for coefficient in coefficients)
            and not any(isinstance(term, Added) for term in rows)
        )

    def plus(
        self, terms: list[tuple[float, Tensor]], out: Tensor | None, suspect: Tensor
    ) -> Tensor:
        """The value plus coefficient · rows of each term, written into `out`, one of the terms.

        Writes whether each row of the sum is not finite to `suspect`.
        """
        return self._compute(terms, out, suspect)

    def _compute(
        self,
        terms: list[tuple[float, Tensor]] | None = None,
        out: Tensor | None = None,
        suspect: Tensor | None = None,
    ) -> Tensor:
        self._inputs[0].tensor()
        value, owned = _take(self._inputs)
        out = self._workspace.buffers.take(value) if out is None else out
        if terms is None or self._write_sum is None or suspect is None:
            self._write(out, value)
        else:
            self._write_sum(out, value, terms, suspect)
        buffers = self._workspace.buffers
        values = [value]
        del value
        if owned and is_only_reference(values, buffers):  # A loss may have kept a part of it.
            buffers.give(values[0])
        return out


class Added(Rows):
    """Rows that `add_to(out)` adds in place, such as noise that is drawn while it is added."""

    __slots__ = ("add_to",)

    def __init__(
        self,
        add_to: Callable[[Tensor], object],
        shape: tuple[int, int],
        like: Any,
        workspace: Workspace,
    ) -> None:
        super().__init__(like, workspace)
        self.shape = torch.Size(shape)
        self.add_to = add_to

    def _compute(self) -> Tensor:
        out = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        self.add_to(out)
        return out


class LinearCombination(Rows):
    """Σ coefficient · rows, added from left to right."""

    __slots__ = ("_coefficients", "_rows")

    def __init__(
        self, coefficients: list[Coefficient], rows: list[Rows], workspace: Workspace
    ) -> None:
        super().__init__(rows[0], workspace, 1 + max(operand._depth for operand in rows))
        self._coefficients, self._rows = coefficients, rows
        if self._depth > DEEPEST:
            self.tensor()

    def _scaled(self) -> tuple[Coefficient, Rows]:
        if self._value is None and len(self._rows) == 1:
            return self._coefficients[0], self._rows[0]
        return 1.0, self

    def _compute(self) -> Tensor:
        # Operands are popped off the end of a reversed list and never get a name: a variable, even
        # a loop's, would count as a reference, and their memory could not be written into.
        coefficients, rows = self._coefficients[::-1], self._rows[::-1]
        self._coefficients, self._rows = [], []
        # The first operand is a sum that is used nowhere else: continue it, so that ((a + b) + c)
        # is one pass.
        while _is_one(coefficients[-1]) and _is_open(rows[-1]) and is_only_in(rows):
            inner = cast(LinearCombination, rows.pop())
            coefficients[-1:] = reversed(inner._coefficients)
            rows += reversed(inner._rows)
            inner._rows = []
            del inner
        if self._adds_to_first(coefficients, rows):
            return self._first_plus(coefficients, rows)
        # The operands first: computing them may be the last other use of the first one.
        for index in range(len(rows) - 1, -1, -1):
            if not isinstance(rows[index], Added):
                rows[index].tensor()
        if all(operand._value is not None and is_shared(operand._value) for operand in rows):
            return self._shared_sum(coefficients, rows)
        out = self._begin(coefficients.pop(), rows)
        terms: list[tuple[Coefficient, Tensor]] = []
        recycled = []
        while rows:
            if isinstance(added := rows[-1], Added) and _is_one(coefficients[-1]):
                self._workspace.add(out, terms)
                terms = []
                rows.pop(), coefficients.pop()
                added.add_to(out)
                continue
            del added
            value, owned = _take(rows)
            terms.append((coefficients.pop(), value))
            if owned:
                recycled.append(value)
        self._workspace.add(out, terms)
        for value in recycled:
            self._workspace.buffers.give(value)
        return out

    def _adds_to_first(self, coefficients: list[Coefficient], rows: list[Rows]) -> bool:
        """Whether the first operand is still to be computed, for this only, and can add others."""
        if not (is_only_in(rows) and _is_one(coefficients[-1])):
            return False
        first = rows[-1]
        is_open = isinstance(first, Computed) and first._value is None
        return is_open and cast(Computed, first).can_add(coefficients[:-1], rows[:-1])

    def _first_plus(self, coefficients: list[Coefficient], rows: list[Rows]) -> Tensor:
        """The sum of rows, last one first, computed with the first operand in one pass."""
        first = cast(Computed, rows.pop())
        coefficients.pop()
        # What is not finite makes a sum not finite: if the sum is finite, all of its terms are.
        self.suspect = torch.empty(len(self), dtype=torch.bool)
        for term in reversed(rows):
            term.tensor()
            term.suspect = self.suspect
        del term
        terms, owned_values = [], []
        while rows:
            value, owned = _take(rows)
            terms.append((cast(float, coefficients.pop()), value))
            if owned and value.is_contiguous():
                owned_values.append(value)
        # Into the memory of a term, if nothing else needs it.
        out = first.plus(terms, owned_values.pop() if owned_values else None, self.suspect)
        for value in owned_values:
            self._workspace.buffers.give(value)
        return out

    def _shared_sum(self, coefficients: list[Coefficient], rows: list[Rows]) -> Tensor:
        """The sum of shared rows, last one first, computed once."""
        first, *others = reversed(list(zip(coefficients, rows, strict=True)))
        out = first[0] * first[1].tensor()[:1]
        self._workspace.add(out, [(factor, term.tensor()[:1]) for factor, term in others])
        return shared(out, len(self))

    def _begin(self, coefficient: Coefficient, rows: list[Rows]) -> Tensor:
        """Coefficient times the last of `rows`, which is removed, in memory to write into."""
        value, owned = _take(rows)
        if owned and _is_one(coefficient) and value.is_contiguous():
            return value
        out = self._workspace.buffers.take(value)
        if _is_one(coefficient):
            out.copy_(value)
        else:
            torch.mul(value, coefficient, out=out)
        if owned:
            self._workspace.buffers.give(value)
        return out


def _take(rows: list[Rows]) -> tuple[Tensor, bool]:
    """Remove the last rows of a list: their value, and whether nothing else refers to it."""
    rows[-1].tensor()
    buffers, is_last_use = rows[-1]._workspace.buffers, is_only_in(rows)
    values = [rows.pop().tensor()]
    owned = is_last_use and is_only_reference(values, buffers)
    return values[0], owned


def _is_open(rows: Rows) -> bool:
    return isinstance(rows, LinearCombination) and rows._value is None


def _is_one(coefficient: Coefficient) -> bool:
    return isinstance(coefficient, float) and coefficient == 1.0


def _is_normal(number: float, dtype: torch.dtype) -> bool:
    limits = torch.finfo(dtype)
    return limits.tiny <= abs(number) <= limits.max


def _is_coefficient(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.ndim == 0 and value.is_floating_point()
    return isinstance(value, int | float)


def _version(tensor: Tensor) -> int:
    """How often a tensor was written into."""
    return 0 if tensor.is_inference() else tensor._version


def _sum(left: Any, right: Any, sign: float, workspace: Workspace) -> Any:
    operands = [
        Known(operand, workspace) if isinstance(operand, Tensor) else operand
        for operand in (left, right)
    ]
    if not all(isinstance(operand, Rows) and _alike(operand, operands[0]) for operand in operands):
        left, right = evaluated(left), evaluated(right)
        return left + right if sign > 0 else left - right
    pairs = [operand._scaled() for operand in operands]
    coefficients = [pairs[0][0], sign * pairs[1][0]]
    return LinearCombination(coefficients, [rows for _, rows in pairs], workspace)


def _alike(rows: Rows, other: Rows) -> bool:
    """Whether the sum has the shape and type of both."""
    same = (rows.shape, rows.dtype) == (other.shape, other.dtype)
    return same and rows.dtype.is_floating_point


def evaluated(value: Any) -> Any:
    """The tensor of rows that are lazy; anything else as it is."""
    return value.tensor() if isinstance(value, Rows) else value


def _all_evaluated(value: Any) -> Any:
    """The same with lists and tuples of rows."""
    if type(value) in (list, tuple):
        return type(value)(map(_all_evaluated, value))
    return evaluated(value)


def evaluated_state(state: State, finite: set[str] | None = None) -> State:
    """A state with all of its tensors computed. The caller must keep no reference to `state`.

    Adds the names of fields that are known to be finite to `finite`.
    """
    kind = type(state)
    waiting = {field.name: getattr(state, field.name) for field in fields(cast(Any, state))}
    del state
    done = {}
    lazy = {}
    for name in list(waiting):
        rows = waiting.pop(name)
        done[name] = evaluated(rows)
        if isinstance(rows, Rows):
            lazy[name] = rows
    if finite is not None:
        # At the end: rows may be terms of sums that are computed after them.
        finite.update(name for name, rows in lazy.items() if rows.is_known_finite())
    return kind(**done)
