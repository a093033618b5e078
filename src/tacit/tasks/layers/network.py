"""A module as a chain of layers, where it is one, and the gradient of its loss for k clients at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional

from tacit.tasks.flat import ModuleLoss
from tacit.tasks.layers.layer import Layer
from tacit.tasks.layers.pointwise import RELU, SIGMOID, TANH, Flatten
from tacit.tasks.layers.pooling import MaxPool, MeanPool
from tacit.tasks.layers.products import Convolution, Linear
from tacit.tasks.parts import Part, Parts

if TYPE_CHECKING:
    from tacit.tasks.task import Task


class NotLayered(Exception):
    """Why a module is not a chain of layers that we know."""


@dataclass(frozen=True)
class LayeredLoss:
    """The loss of a chain of layers."""

    layers: tuple[Layer, ...]
    criterion: Callable[..., Tensor]
    labelled: bool  # whether the criterion is cross-entropy with a class for every sample
    numbers: int  # that one client takes in a pass

    def write_gradients(self, theta: Tensor, arrays: Part, out: Tensor) -> None:
        """Write the gradients of k clients at `theta` [k, P] on arrays [k, B, ...] into `out` [k, P]."""
        inputs, *targets = arrays
        x = inputs.movedim(1, -1).contiguous()
        widths = [layer.width for layer in self.layers]
        weights, gradients = torch.split(theta, widths, 1), torch.split(out, widths, 1)
        kept: list[Any] = []
        for layer, own in zip(self.layers, weights, strict=True):
            x, needed = layer.forward(own, x)
            kept.append(needed)
        dy: Tensor | None = self._output_gradient(x, targets)
        first = next(number for number, width in enumerate(widths) if width)
        for number in range(len(self.layers) - 1, first - 1, -1):
            assert dy is not None
            layer = self.layers[number]
            dy = layer.backward(weights[number], kept.pop(), dy, gradients[number], number > first)

    def _output_gradient(self, output: Tensor, targets: list[Tensor]) -> Tensor:
        """The gradient of each client's loss by its output [k, O, B], a new tensor."""
        if self.labelled:
            share = output.softmax(1).mul_(1 / output.shape[2])
            return share.scatter_add_(1, targets[0][:, None], _constant(share, -1 / output.shape[2]))
        by_output: Tensor = vmap(grad(self.criterion))(output.mT, *targets)
        return by_output.mT.contiguous()


def _constant(like: Tensor, value: float) -> Tensor:
    return like.new_full((1, 1, 1), value).expand(len(like), 1, like.shape[2])


def _is_labelled(criterion: Callable[..., Tensor], targets: Sequence[Part]) -> bool:
    return criterion is functional.cross_entropy and all(
        len(part) == 1 and part[0].dtype == torch.int64 and bool((part[0] >= 0).all()) for part in targets
    )


def layered(task: Task) -> LayeredLoss | str:
    """The loss of a task as a chain of layers, or why it is none."""
    loss, parts = task.loss, task.parts
    if not isinstance(loss, ModuleLoss) or not isinstance(parts, Parts | Sequence):
        return "the loss is not that of a module on given data"
    held = [parts.arrays] if isinstance(parts, Parts) else parts
    arrays = max(held, key=lambda part: len(part[0]))
    batch = len(arrays[0]) if task.batch_size is None else task.batch_size
    if arrays[0].dtype != loss.flat.dtype:
        return f"inputs are {arrays[0].dtype}, the model {loss.flat.dtype}"
    try:
        layers = _swap_relu(list(_layers(loss.flat.module, arrays[0].ndim - 1)))
    except NotLayered as reason:
        return str(reason)
    if sum(layer.width for layer in layers) != loss.flat.width:
        return "some parameters are frozen or shared"
    if arrays[0].ndim != 2 and not any(isinstance(layer, Flatten) for layer in layers):
        return "its outputs are not vectors"
    labelled = _is_labelled(loss.criterion, [part[1:] for part in held])
    numbers = _numbers(layers, (*arrays[0].shape[1:], batch))
    return LayeredLoss(tuple(layers), loss.criterion, labelled, numbers)


def _numbers(layers: Sequence[Layer], shape: Sequence[int]) -> int:
    """How many numbers one client's pass takes: what layers give and keep, and as many on the way back."""
    x = torch.empty(1, *shape, device="meta")
    total = x.numel()
    for layer in layers:
        x, kept = layer.forward(torch.empty(1, layer.width, device="meta"), x)
        held = kept if isinstance(kept, tuple) else (kept,)
        total += 2 * x.numel() + 2 * sum(
            one.numel() for one in held if isinstance(one, Tensor) and one is not x
        )
    return total


def _layers(module: nn.Module, dimensions: int) -> Iterator[Layer]:
    """The layers of a module whose inputs have so many dimensions besides the batch."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    if any((*hooks, module._backward_hooks, module._backward_pre_hooks)):
        raise NotLayered(f"{type(module).__name__} has hooks")
    if nn.utils.parametrize.is_parametrized(module):
        raise NotLayered(f"{type(module).__name__} has parametrized weights")
    if isinstance(module, nn.Sequential) and _is(module, nn.Sequential):
        for part in module:  # not its children(), which leave out what occurs twice
            flattens = False
            for layer in _layers(part, dimensions):
                flattens = flattens or isinstance(layer, Flatten)
                yield layer
            dimensions = 1 if flattens else dimensions
        return
    if _is(module, nn.Identity):
        return
    yield _layer(module, dimensions)


def _layer(module: nn.Module, dimensions: int) -> Layer:
    for kind, layer in ((nn.ReLU, RELU), (nn.Sigmoid, SIGMOID), (nn.Tanh, TANH)):
        if _is(module, kind):
            return layer
    if isinstance(module, nn.Flatten) and _is(module, nn.Flatten) and module.start_dim == 1:
        if module.end_dim in (-1, dimensions):
            return Flatten()
    elif isinstance(module, nn.Linear) and _is(module, nn.Linear) and dimensions == 1:
        return Linear(module.in_features, module.out_features, module.bias is not None)
    elif isinstance(module, nn.Conv2d) and _is(module, nn.Conv2d) and dimensions == 3:
        return _convolution(module)
    elif isinstance(module, nn.MaxPool2d | nn.AvgPool2d) and dimensions == 3:
        return _pool(module)
    raise NotLayered(f"{module} is not among the layers that are batched by hand")


def _convolution(module: nn.Conv2d) -> Convolution:
    plain = module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    if not plain or type(module)._conv_forward is not nn.Conv2d._conv_forward:
        raise NotLayered(f"{module} is not a plain convolution")
    size, stride, padding, dilation = (
        _pair(value) for value in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    bias = module.bias is not None
    return Convolution(module.in_channels, module.out_channels, size, stride, padding, dilation, bias)


def _pool(module: nn.MaxPool2d | nn.AvgPool2d) -> Layer:
    size, stride = _pair(module.kernel_size), _pair(module.stride)
    plain = stride == size and _pair(module.padding) == (0, 0) and not module.ceil_mode
    if isinstance(module, nn.MaxPool2d):
        if (
            plain
            and _is(module, nn.MaxPool2d)
            and _pair(module.dilation) == (1, 1)
            and not module.return_indices
        ):
            return MaxPool(size)
    elif plain and _is(module, nn.AvgPool2d) and module.divisor_override is None:
        return MeanPool(size)
    raise NotLayered(f"{module} pools windows that overlap")


def _is(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module computes what `kind` does; one that is derived from it may have other weights to begin with."""
    own = "forward" in vars(module)
    return isinstance(module, kind) and type(module).forward is kind.forward and not own


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _swap_relu(layers: list[Layer]) -> list[Layer]:
    """Pool before ReLU: the same values and gradients, on fewer numbers."""
    for at, (one, next_one) in enumerate(pairwise(layers)):
        if one is RELU and isinstance(next_one, MaxPool):
            layers[at : at + 2] = [next_one, one]
    return layers
