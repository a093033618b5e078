"""Tensors with a hidden leading dimension of rows.

A module that is given `Stacked` tensors runs once and computes for all rows: for n clients, each
with weights of its own. The module sees the *logical* shape; `.rows` is the plain tensor
[n, *logical], which autograd records. Whatever comes from a Stacked tensor is Stacked, so that
which tensors differ from row to row follows from where they come from, and never from a size.

An operation has a rule where one that works on the tensors of all rows is faster. Any other
operation goes through `torch.func.vmap` by itself, with the result that each row would have alone.
What does neither raises `NotStackable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

# Takes the arguments of the function in whose table entry it is, at least one of them Stacked.
# Returns NotImplemented for arguments that it leaves to vmap.
Rule = Callable[..., Any]


class NotStackable(Exception):
    """Why an operation cannot be computed for all rows at once."""


class Unseen(NotStackable):
    """An operation that reached torch without `__torch_function__`, as inside of torch.func."""


@dataclass(frozen=True, eq=False)
class Stack:
    """What Stacked tensors of one pass have in common.

    Attributes:
        size: The number of rows.
        rules: How to compute functions of torch; all others go through vmap.
    """

    size: int
    rules: Mapping[Any, Rule]


class Stacked(Tensor):
    """A tensor that has other numbers in each row of a hidden leading dimension.

    Attributes:
        rows: The numbers, a plain tensor [n, *shape].
        stack: What it has in common with all others of its pass.
        gradient: Where the gradient of a parameter is collected, [n, *shape]; a rule may write it
            there itself. None for other tensors.
    """

    rows: Tensor
    stack: Stack
    gradient: GradientPlace | None

    @staticmethod
    def __new__(cls, rows: Tensor, stack: Stack, gradient: GradientPlace | None = None) -> Stacked:
        made: Stacked = Tensor._make_wrapper_subclass(
            cls, rows.shape[1:], rows.stride()[1:], dtype=rows.dtype, layout=rows.layout,
            device=rows.device, requires_grad=rows.requires_grad,
        )  # fmt: skip
        made.rows, made.stack, made.gradient = rows, stack, gradient
        return made

    def __init__(
        self, rows: Tensor, stack: Stack, gradient: GradientPlace | None = None
    ) -> None: ...

    def like(self, rows: Tensor) -> Stacked:
        """A tensor with other rows, in the same pass."""
        return Stacked(rows, self.stack)

    def written(self) -> Stacked:
        """This tensor after its rows were changed in place."""
        if self.rows.requires_grad and not _metadata(Tensor.requires_grad.__get__, self):  # type: ignore[attr-defined]
            _metadata(Tensor.requires_grad_, self)
        return self

    def __repr__(self, *args: Any, **kwargs: Any) -> str:  # type: ignore[override]
        return f"Stacked({self.stack.size} × {tuple(self.rows.shape[1:])})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in METADATA:
            return _metadata(func, *args, **kwargs)
        if func in OF_ROWS:
            return func(args[0].rows)
        if func in REFUSED:
            raise NotStackable(f"the model uses {REFUSED[func]} of a tensor")
        stack = checked_stack(args, kwargs)
        rule = stack.rules.get(func)
        if rule is not None:
            try:
                result = rule(*args, **kwargs)
            except TypeError:
                # An option by another name, such as `axis`.
                result = NotImplemented
            if result is not NotImplemented:
                return result
        return by_vmap(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Torch asks only the tensor that is indexed, not the index, for __torch_function__.
        if func is torch.ops.aten.index.Tensor and not isinstance(args[0], Stacked):
            return by_vmap(torch.ops.aten.index.Tensor, args, kwargs or {})
        raise Unseen(f"{func} meets a tensor without a rule for it")


class GradientPlace:
    """Where the gradient [n, ...] of a parameter goes.

    One rule may claim the place and write into it itself; it then returns no gradient to autograd.
    """

    def __init__(self, place: Tensor) -> None:
        self.place = place
        self.claimed = self.collected = False

    def claim(self) -> Tensor | None:
        """The place, for the first caller; None for all others, whose gradients are added."""
        if self.claimed:
            return None
        self.claimed = True
        return self.place

    def collect(self, parameter: Tensor) -> None:
        """Take the gradient of a parameter, which autograd has added up."""
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        self.collected = True
        if self.claimed:
            self.place.add_(gradient)
        else:
            self.place.copy_(gradient)


def written_gradient(place: GradientPlace | None, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Where a rule writes the gradient by a tensor, and what it then returns to autograd.

    That is nothing if it could claim the place.
    """
    claimed = None if place is None else place.claim()
    if claimed is not None:
        return claimed, None
    new = torch.empty_like(like, memory_format=torch.contiguous_format)
    return new, new


def stacked(value: Any) -> bool:
    """Whether this is a Stacked tensor."""
    return isinstance(value, Stacked)


def rows_of(x: Tensor, stack: Stack) -> Tensor:
    """The rows [n, ...] of any tensor, which are all the same if it is plain."""
    return x.rows if isinstance(x, Stacked) else x.expand(stack.size, *x.shape)


def aligned(x: Tensor, ndim: int) -> Tensor:
    """A tensor for broadcasting with rows [n, ...] of `ndim` logical dimensions."""
    if not isinstance(x, Stacked):
        return x
    missing = ndim + 1 - x.rows.ndim
    return x.rows if missing <= 0 else x.rows[(slice(None), *([None] * missing))]


def first_stacked(*values: Any) -> Stacked:
    """The first Stacked tensor among arguments."""
    return next(value for value in values if isinstance(value, Stacked))


def by_vmap(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation for all rows by `torch.func.vmap`.

    Raises:
        NotStackable: If vmap cannot compute it.
    """
    leaves, spec = tree_flatten((args, kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Stacked)]
    stack = leaves[places[0]].stack
    shape: Any = None
    kept: list[Any] = []

    def for_one(*batched: Tensor) -> tuple[Tensor, ...]:
        nonlocal shape, kept
        given = list(leaves)
        for k, x in zip(places, batched, strict=True):
            given[k] = x
        positional, named = tree_unflatten(given, spec)
        results, shape = tree_flatten(func(*positional, **named))
        same = {id(x): k for k, x in zip(places, batched, strict=True)}
        # What was changed in place stays the tensor that it was.
        kept = [
            leaves[same[id(x)]] if id(x) in same else None if isinstance(x, Tensor) else x
            for x in results
        ]
        new = [x for x in results if isinstance(x, Tensor) and id(x) not in same]
        return tuple(new) or (batched[0],)

    try:
        computed = iter(vmap(for_one)(*(leaves[k].rows for k in places)))
    except NotStackable:
        raise
    except Exception as error:  # torch.func raises many kinds
        name = getattr(func, "__name__", str(func))
        raise NotStackable(
            f"{name}: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from error
    results = []
    for value in kept:
        if isinstance(value, Stacked):
            results.append(value.written())
        elif value is None:
            results.append(Stacked(next(computed), stack))
        else:
            results.append(value)
    return tree_unflatten(results, shape)


class NoHooks(TorchFunctionMode):
    """Refuses, inside of vmap, what it would ignore."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in HOOKS:
            raise NotStackable("the model uses torch.func and hooks of tensors")
        return func(*args, **(kwargs or {}))


def checked_stack(args: Any, kwargs: dict[str, Any]) -> Stack:
    """The stack of the arguments of a function.

    Raises:
        NotStackable: If autograd saw one of them as a whole, or takes gradients past the rows, or
            they are of several passes.
    """
    stack: Stack | None = None
    for value in (*args, *kwargs.values()):
        for x in value if isinstance(value, tuple | list) else (value,):
            if isinstance(x, Stacked):
                if stack is not None and x.stack is not stack:
                    raise NotStackable("the model keeps tensors of an earlier call")
                stack = x.stack
                if _metadata(_GRAD_FN, x) is not None:
                    raise NotStackable("the model has a torch.autograd.Function of its own")
            elif isinstance(x, Tensor) and x.requires_grad:
                raise NotStackable("a tensor requires a gradient that is no parameter of the model")
    if stack is None:
        leaves, _ = tree_flatten((args, kwargs))
        stack = first_stacked(*leaves).stack
    return stack


def _metadata(func: Any, *args: Any, **kwargs: Any) -> Any:
    """What the wrapper itself says: the logical shape, the type, the device."""
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _getters(*names: str) -> set[Any]:
    return {getattr(Tensor, name).__get__ for name in names if hasattr(Tensor, name)}


_GRAD_FN: Any = getattr(Tensor, "grad_fn").__get__  # noqa: B009
METADATA = frozenset(
    _getters(
        "shape", "dtype", "device", "layout", "ndim", "names", "itemsize", "is_cuda", "is_cpu",
        "is_sparse", "is_sparse_csr", "is_quantized", "is_meta", "is_nested", "is_mkldnn",
        "is_mps", "is_xpu", "is_xla", "is_ipu", "is_maia", "is_vulkan", "is_mtia",
    )
) | {
    Tensor.size, Tensor.dim, Tensor.ndimension, Tensor.numel, Tensor.nelement, Tensor.stride,
    Tensor.is_contiguous, Tensor.is_floating_point, Tensor.is_complex, Tensor.is_signed,
    Tensor.element_size, Tensor.get_device, Tensor.__len__, Tensor.__hash__,
    torch.is_floating_point, torch.is_complex, torch.numel, torch.is_signed,
}  # fmt: skip
OF_ROWS = frozenset(_getters("requires_grad", "_version"))
HOOKS = frozenset(
    (Tensor.register_hook, Tensor.register_post_accumulate_grad_hook, Tensor.retain_grad)
)
# What has no meaning for all rows at once.
REFUSED: dict[Any, str] = {
    Tensor.register_hook: "register_hook",
    Tensor.register_post_accumulate_grad_hook: "register_post_accumulate_grad_hook",
    Tensor.backward: "backward",
    Tensor.retain_grad: "retain_grad",
    Tensor.requires_grad_: "requires_grad_",
    Tensor.item: "the value (item)",
    Tensor.tolist: "the value (tolist)",
    Tensor.numpy: "the value (numpy)",
    Tensor.__array__: "the value (numpy)",
    Tensor.__bool__: "the value (bool)",
    Tensor.__int__: "the value (int)",
    Tensor.__float__: "the value (float)",
    Tensor.__index__: "the value (index)",
    Tensor.__contains__: "the value (in)",
    Tensor.data_ptr: "data_ptr",
    Tensor.untyped_storage: "the storage",
    Tensor.set_: "set_",
    Tensor.resize_: "resize_",
    **{
        getattr(Tensor, name).__get__: name
        for name in ("grad", "grad_fn", "is_leaf", "_backward_hooks")
    },
    **{getattr(Tensor, name).__set__: name for name in ("data", "grad", "requires_grad")},
}
