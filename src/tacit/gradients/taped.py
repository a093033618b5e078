"""Parameters that all samples have in common, and the gradient of each sample by them.

A module runs on `Stacked` samples, each of which is a batch of one sample, and on `Taped`
parameters. To operations without a rule below, a Taped parameter is a Stacked one whose rows are
all the same: the gradient by its rows is that of each sample. Where layers are larger, that takes
too long. So linear layers, convolutions, tables and normalisation have rules (`TAPED`) that compute
with the common numbers, and note what the parameter met and the gradient of the result, from which
the gradient of each sample follows: see `products`.

What is computed from parameters alone, such as a transpose or a normalised weight, is a Taped
tensor too. Autograd then takes each sample's gradient by it back to the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tacit.gradients.products import Lookups, OuterProducts
from tacit.gradients.stacked import (
    METADATA,
    REFUSED,
    NotStackable,
    Rule,
    Stack,
    Stacked,
    checked_stack,
)

# Functions of a parameter's numbers, which are the same for all samples.
READS = {
    Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__bool__, Tensor.__int__,
    Tensor.__float__, Tensor.__index__, Tensor.__contains__,
    *(getattr(Tensor, name).__get__ for name in ("grad", "grad_fn", "is_leaf")),
}  # fmt: skip
TRANSPOSES = {
    torch.t, Tensor.t, torch.Tensor.T.__get__, torch.Tensor.mT.__get__,  # type: ignore[attr-defined]
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Positions:
    """Part of a gradient by a matrix [O, I]: Σ_t left[t] ⊗ right[t], [B, T, O] and [B, T, I]."""

    left: Tensor
    right: Tensor

    def transposed(self) -> Positions:
        return Positions(self.right, self.left)


# Part of the gradients of B samples by one tensor: [B, *shape], or a form that is cheaper.
Piece = Tensor | Positions | Lookups | OuterProducts


@dataclass(frozen=True, eq=False)
class Tape(Stack):
    """What happened in one pass over samples.

    Attributes:
        taped: The rules of Taped tensors that meet samples; they come before those of `rules`.
        anchor: A number that requires a gradient, so that results do that depend on parameters.
        parameters: All Taped tensors of the pass, which derive from the first ones.
        pieces: Pairs of a Taped tensor and a part of the gradient by it.
    """

    taped: Mapping[Any, Rule]
    anchor: Tensor
    parameters: list[Taped] = field(default_factory=list)
    pieces: list[tuple[Taped, Piece]] = field(default_factory=list)

    def noted(
        self, rows: Tensor, pieces: Callable[[Tensor], Iterable[tuple[Taped, Piece]]]
    ) -> Stacked:
        """A result of samples and parameters.

        Args:
            rows: The result, [B, ...].
            pieces: From the gradient by it [B, ...], those by the parameters.
        """
        if torch.is_grad_enabled():
            if not rows.requires_grad:
                rows = _Begin.apply(self.anchor, [rows])  # type: ignore[no-untyped-call]

            def note(gradient: Tensor) -> None:
                with torch.no_grad():
                    self.pieces.extend(pieces(gradient))

            rows.register_hook(note)  # type: ignore[no-untyped-call]
        return Stacked(rows, self)

    def clear(self) -> None:
        """Let go of all that happened in the pass."""
        self.parameters.clear()
        self.pieces.clear()


class _Begin(torch.autograd.Function):
    """A tensor that requires a gradient, though no sample does."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, held: list[Tensor]) -> Tensor:
        # Within a list, so that it is no input, and the result no view of one.
        return held.pop().detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        return None, None


class Taped(Stacked):
    """A tensor that is the same for all samples, and computed from parameters alone.

    Attributes:
        value: Its numbers, a plain tensor; autograd records how it follows from the parameters.
        stack: The tape of its pass.
        transpose_of: The matrix of which it is the transpose, if it is one.
    """

    value: Tensor
    stack: Tape
    transpose_of: Taped | None

    @staticmethod
    def __new__(cls, value: Tensor, tape: Tape, matrix: Taped | None = None) -> Taped:
        made: Taped = Tensor._make_wrapper_subclass(
            cls, value.shape, value.stride(), dtype=value.dtype, layout=value.layout,
            device=value.device, requires_grad=True,
        )  # fmt: skip
        made.value, made.stack, made.transpose_of = value, tape, matrix
        made._version_then, made._rows, made.gradient = value._version, None, None
        tape.parameters.append(made)
        return made

    def __init__(self, value: Tensor, tape: Tape, matrix: Taped | None = None) -> None: ...

    @property
    def rows(self) -> Tensor:  # type: ignore[override]
        """The same numbers for each sample [B, *shape], by which autograd takes gradients."""
        if self._rows is None:
            shape = (self.stack.size, *self.value.shape)
            self._rows = self.unrecorded.expand(shape).requires_grad_()
        return self._rows

    @property
    def unrecorded(self) -> Tensor:
        """The numbers, without how they follow from the parameters."""
        return self.value.detach()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func is Tensor.requires_grad.__get__:  # type: ignore[attr-defined]
            return True
        leaves, spec = tree_flatten((args, kwargs))
        given = [x for x in leaves if isinstance(x, Tensor)]
        if not all(isinstance(x, Taped) for x in given if isinstance(x, Stacked)):
            checked_stack(args, kwargs)
            rule = next(x for x in given if isinstance(x, Taped)).stack.taped.get(func)
            result = NotImplemented if rule is None else rule(*args, **kwargs)
            if result is not NotImplemented:
                return result
            return super().__torch_function__(func, types, args, kwargs)
        if func in REFUSED and func not in READS:
            raise NotStackable(f"the model uses {REFUSED[func]} of a parameter")
        return _of_parameters(func, leaves, spec, given)

    _version_then: int
    _rows: Tensor | None


def _of_parameters(func: Any, leaves: list[Any], spec: Any, given: list[Tensor]) -> Any:
    """The result of a function of parameters alone, and of tensors that are no samples."""
    taped = [x for x in given if isinstance(x, Taped)]
    tape = taped[0].stack
    plain = [x for x in given if not isinstance(x, Taped)]
    if any(x.requires_grad for x in plain):
        raise NotStackable("a tensor requires a gradient and is no parameter of the model")
    versions = [x._version for x in plain]
    values = [x.value if isinstance(x, Taped) else x for x in leaves]
    positional, named = tree_unflatten(values, spec)
    result = func(*positional, **named)
    if versions != [x._version for x in plain] or any(
        x.value._version != x._version_then for x in taped
    ):
        raise NotStackable("a tensor is changed in place by a parameter, or a parameter is")
    if isinstance(result, Tensor) and len(taped) == 1 and result is taped[0].value:
        return taped[0]
    [of, *others] = taped
    transposes = func in TRANSPOSES and not others and of.value.ndim == 2

    def wrapped(x: Any) -> Any:
        if not (isinstance(x, Tensor) and x.requires_grad):
            return x
        same = x.ndim == of.value.ndim and x.shape == of.value.shape and func is Tensor.view
        return of if same else Taped(x, tape, of if transposes else None)

    return tree_map(wrapped, result)


def is_sample(x: Any) -> TypeGuard[Stacked]:
    """Whether a tensor comes from samples."""
    return isinstance(x, Stacked) and not isinstance(x, Taped)


def numbers_of(x: Tensor | None) -> Tensor | None:
    """The numbers of a parameter, which autograd does not see, or a plain tensor itself."""
    return x.unrecorded if isinstance(x, Taped) else x


def tape_of(*values: Tensor | None) -> Tape:
    """The tape of the first parameter."""
    return next(x.stack for x in values if isinstance(x, Taped))


class Kept:
    """What a product has seen, for the gradient by its other factor: it must not change."""

    def __init__(self, rows: Tensor) -> None:
        self._rows, self._version = rows.detach(), rows._version

    def get(self) -> Tensor:
        if self._rows._version != self._version:
            raise NotStackable("what a layer has seen is changed in place afterwards")
        # Real numbers are their own conjugates.
        return self._rows.conj()
