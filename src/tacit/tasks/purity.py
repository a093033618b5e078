"""Checks that modules are pure functions of parameters and inputs, by a trial on a few samples."""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.core.errors import Misuse, first_line
from tacit.models.mask_keys import MaskKeys
from tacit.tasks.criteria import logits_of
from tacit.tasks.known_layers import is_known
from tacit.tasks.parts import Part
from tacit.tasks.pure import PureModule, layers_of

# Share by which parameters are changed in a trial.
CHANGE = 0.3
# What parameters are multiplied by to see whether the model bounds them.
LARGE = 1000
# Different numbers that parameters are changed by.
DRAWN = 1009
# Share by which results may differ in another order of samples or with replaced parameters, and if
# the same is computed again.
TOLERANCE, AGAIN = 1e-3, 1e-5


def check_deterministic(name: str, work: Callable[[], Any]) -> Any:
    """Run `work` once and return its result; raise Misuse if it drew from a random stream."""
    drew, result = draws(work)
    if drew:
        raise hidden_draws(name)
    return result


def _numbers(function: Any) -> dict[tuple[int, str], int | float | complex]:
    """The numbers that are attributes of a module's layers, or of another object."""
    return {
        (place, name): x
        for place, layer in enumerate(layers_of(function))
        for name, x in vars(layer).items()
        if isinstance(x, int | float | complex)
    }


def _check_counts(name: str, first: Mapping[Any, Any], second: Mapping[Any, Any]) -> None:
    """Raise Misuse if the second of two calls has changed the numbers of `_numbers`."""
    for place, x in second.items():
        if x != first.get(place):
            raise Misuse(
                f"The {name} changes its attribute {place[1]!r} whenever it is called: it keeps a "
                "state, on which gradients could depend.",
                "Remove the state. What changes with time can be an input.",
            )


def hidden_draws(name: str) -> Misuse:
    """The error for a random step that is not keyed."""
    return Misuse(
        f"The {name} draws from a hidden random stream in training.",
        "Remove the random step, or use nn.Dropout or torch.nn.functional.dropout, which Tacit "
        "draws from keys of the samples.",
    )


def check_repeatable(name: str, work: Callable[[], Any], function: Any = None) -> Any:
    """As `check_deterministic`, and raise Misuse if a second call has another result.

    Or if each call of the function or object changes a number that it keeps.
    """
    result, first = check_deterministic(name, work), _numbers(function)
    again = check_deterministic(name, work)
    _check_counts(name, first, _numbers(function))
    if isinstance(result, Tensor) and not _agree([again], [result], AGAIN):
        raise Misuse(
            f"The {name} has another value when it is called again: it keeps a state, or draws "
            "random numbers that are not torch's.",
            "Remove the state and the random step.",
        )
    return result


def draws(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether work draws from a hidden random stream, and its result.

    The streams are those of torch, NumPy and Python, and are left as they were.
    """
    numpy_stream, python_stream = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            stream = torch.get_rng_state()
            result = work()
            same = torch.equal(stream, torch.get_rng_state())
        same = same and random.getstate() == python_stream
        return not (same and _same_numpy_stream(numpy_stream)), result
    finally:
        np.random.set_state(numpy_stream)
        random.setstate(python_stream)


def _same_numpy_stream(before: Any) -> bool:
    return all(map(np.array_equal, before, np.random.get_state()))


def checked(pure: PureModule, *inputs: Tensor) -> PureModule:
    """The module after a trial with a few samples [B, ...], with its dropout found.

    Raises:
        Misuse: If it is not pure, or has dropout of tensors that do not divide into samples.
    """
    if not check_pure(pure, inputs):
        pure = replace(pure, masks=pure.masks or MaskKeys(), functions=True)
        if not check_pure(pure, inputs):
            raise hidden_draws("model")
    if not is_known(pure.module):
        check_constraints(pure, inputs)
        check_gradient(pure, inputs)
    if pure.masks is not None:
        _find_batch_dims(pure, pure.masks, inputs)
        check_masks(pure, inputs)
    return pure


def in_evaluation(pure: PureModule, inputs: Part) -> PureModule:
    """A copy in evaluation mode, if that changes the output for these inputs; or the module."""
    other = light_copy(pure)
    other.module.eval()
    return pure if has_same_output(other, pure, inputs) else other


def _find_batch_dims(pure: PureModule, masks: MaskKeys, inputs: Part) -> None:
    shapes = []
    for count in (2, 3):
        some = tuple(array[torch.arange(count) % len(array)] for array in inputs)
        with masks.recorded() as seen:
            check_deterministic("model", partial(pure.trial, some, torch.arange(count)))
        shapes.append(seen)
    masks.find_batch_dims(*shapes)


def light_copy(pure: PureModule, *, trainable: bool = False) -> PureModule:
    """A copy that has the same tensors, or only the same frozen ones: they may be large."""
    shared = [x for x in pure.tensors() if not (trainable and x.requires_grad)]
    return copy.deepcopy(pure, {id(x): x for x in shared})


def check_pure(pure: PureModule, inputs: Part) -> bool:
    """Return whether a module draws nothing at random but what is keyed.

    Raises:
        Misuse: If it changes itself or its inputs, or remembers what it has seen.
    """
    used, fresh = light_copy(pure), light_copy(pure)
    given = tuple(array.clone() for array in inputs)
    before = {name: (x, _content(x), x._version) for name, x in _tensors(used.module)}
    if draws(lambda: used.trial(given))[0]:
        return False
    for name, tensor in _tensors(used.module):
        same, content, version = before[name]
        unchanged = version == tensor._version and torch.equal(content, _content(tensor))
        if tensor is same and unchanged:
            continue
        if isinstance(tensor, nn.Parameter):
            raise _changes_parameter(name)
        raise Misuse(
            f"Buffer {name!r} of the model changes in training and is not part of what clients "
            "exchange.",
            "Make it a parameter, or use a layer without such a buffer (nn.GroupNorm for "
            "BatchNorm, weight_norm for spectral_norm).",
        )
    _check_unchanged(given, inputs)
    first = _numbers(used.module)
    with torch.no_grad():
        used.trial(given)
    _check_counts("model", first, _numbers(used.module))
    # Other samples, whose output must not depend on those before.
    others = tuple(array[-1:].expand(array.shape).clone() for array in inputs)
    with torch.no_grad():
        after, alone = (logits_of(copied.trial(others)) for copied in (used, fresh))
    if after.shape != alone.shape or not _agree([after], [alone], AGAIN):
        raise Misuse(
            "The model's output depends on earlier calls: it keeps a state, or draws random "
            "numbers that are not torch's.",
            "Remove the state from forward, and random steps but for dropout.",
        )
    return True


def check_constraints(pure: PureModule, inputs: Part) -> None:
    """Raise Misuse if the model changes its parameters where they are large.

    As a bound on the norm of weights does, which has no effect in the beginning.
    """
    for factor in (LARGE, -LARGE):
        tried = light_copy(pure, trainable=True)
        with torch.no_grad():
            for p in tried.module.parameters():
                if p.requires_grad:
                    p.add_(1).mul_(factor)
        before = {name: _content(p) for name, p in tried.module.named_parameters()}
        try:
            with _quiet(), torch.random.fork_rng(devices=[]), torch.no_grad():
                tried.trial(tuple(array.clone() for array in inputs))
        except Exception:  # numbers may be too large for the model
            continue
        for name, p in tried.module.named_parameters():
            if not torch.equal(before[name], _content(p)):
                raise _changes_parameter(name)


def has_same_output(pure: PureModule, other: PureModule, inputs: Part) -> bool:
    """Whether two modules agree on some inputs, but for rounding."""
    # Torch's fast path of encoders, in evaluation, leaves out tokens that are masked.
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            one, two = (logits_of(module.trial(inputs)) for module in (pure, other))
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return one.shape == two.shape and _agree([one], [two])


def _changes_parameter(name: str) -> Misuse:
    return Misuse(
        f"The model changes its parameter {name!r} when it is called.",
        "Do not change parameters in forward: compute a new tensor from them.",
    )


def check_gradient(pure: PureModule, inputs: Part) -> None:
    """Raise Misuse if gradients with replaced parameters are not those of the module itself."""
    plain, called = light_copy(pure, trainable=True), light_copy(pure)
    drawn = torch.Generator().manual_seed(0)
    own = {name: p for name, p in plain.module.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for p in own.values():
            # The same numbers again and again: to draw millions takes longer than the rest.
            few = torch.randn(min(p.numel(), DRAWN), generator=drawn, dtype=p.dtype)
            noise = few.repeat(-(-p.numel() // max(1, len(few))))[: p.numel()].view(p.shape)
            p.add_(CHANGE * noise * (p.abs() + p.abs().mean() if p.numel() else p))
    given = {name: p.detach().clone().requires_grad_() for name, p in own.items()}
    try:
        with _quiet(), torch.random.fork_rng(devices=[]), torch.enable_grad():
            expected = _gradient(logits_of(plain.trial(inputs)), own.values())
            replaced = _gradient(called(given, inputs, None), given.values())
    except Exception as error:  # users' modules raise many kinds
        raise Misuse(
            f"The gradient of the model fails on two samples: {first_line(error).rstrip('.')}.",
            "Check that plain PyTorch can train it: model(x).sum().backward(). Do not use "
            "torch.utils.checkpoint.",
        ) from error
    if expected is None:
        raise Misuse(
            "The model's output does not depend on its trainable parameters.",
            "Do not detach it, and do not compute it under torch.no_grad().",
        )
    if replaced is None or not _agree(replaced, expected):
        raise Misuse(
            "The gradient of the model is another one when it is called with other parameters.",
            "Do not recompute activations (torch.utils.checkpoint): Tacit computes as many clients "
            "at a time as fit into memory. Do not keep parameters in a closure.",
        )


def _check_unchanged(given: Part, inputs: Part) -> None:
    # NaN, which the data may have, equals nothing.
    same = (((a == b) | (a.isnan() & b.isnan())).all() for a, b in zip(given, inputs, strict=True))
    if not all(map(bool, same)):
        raise Misuse(
            "The model changes its inputs when it is called.",
            "Let it change a copy: x = 2 * x instead of x.mul_(2), and apply no dropout to them in "
            "place.",
        )


def check_masks(pure: PureModule, inputs: Part) -> None:
    """Raise Misuse if dropout changes the inputs, or goes by the keys of other samples.

    In another order, samples and keys must give the same outputs in that order.
    """
    tried, swapped = light_copy(pure), tuple(array.flip(0) for array in inputs)
    keys, given_inputs = torch.arange(len(inputs[0])), tuple(array.clone() for array in inputs)
    with torch.no_grad():
        tried.trial(given_inputs, keys)
    _check_unchanged(given_inputs, inputs)
    for given in (None, keys):
        back = None if given is None else given.flip(0)
        with torch.no_grad():
            first = logits_of(tried.trial(inputs, given))
            second = logits_of(tried.trial(swapped, back))
        if first.shape == second.shape and _agree([second.flip(0)], [first]):
            continue
        if given is None:
            # The order matters to the model itself.
            return
        raise Misuse(
            "The model applies dropout to samples in an order of its own, so the mask of one would "
            "depend on the rest of the batch.",
            "Apply dropout before samples are flattened with other dimensions, or with the samples "
            "first: x.transpose(0, 1).flatten(0, 1).",
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings, which a run would repeat, and outside of inference mode."""
    with warnings.catch_warnings(), torch.inference_mode(False):
        warnings.simplefilter("ignore")
        yield


def _gradient(output: Tensor, by: Iterable[Tensor]) -> list[Tensor] | None:
    """The gradient of a number that each output has a part in; None if it does not depend."""
    if not output.requires_grad:
        return None
    # Different for each output, because softmax has no gradient of a plain sum.
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape)
    gradients = torch.autograd.grad((weights * output).sum(), list(by), materialize_grads=True)
    return list(gradients)


def _agree(values: list[Tensor], expected: list[Tensor], tolerance: float = TOLERANCE) -> bool:
    """Whether tensors agree but for rounding; NaN is not compared."""
    norms = [float(torch.linalg.vector_norm(x, math.inf)) for x in expected if x.numel()]
    limit = tolerance * max(norms, default=0.0)
    pairs = zip(values, expected, strict=True)
    return not any(bool(((x - y).abs_() > limit).any()) for x, y in pairs)


def _content(x: Tensor) -> Tensor:
    """The numbers of a buffer, and sums of those of a parameter, of which there are many."""
    if not isinstance(x, nn.Parameter):
        return x.detach().clone().nan_to_num()
    if not x.is_floating_point():
        return x.detach().clone()
    return torch.stack((x.detach().sum(), torch.linalg.vector_norm(x.detach()))).nan_to_num()


def _tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]
