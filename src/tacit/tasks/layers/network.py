"""A module as a chain of layers, where it is one, and the gradient of its loss for k clients at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional

from tacit.tasks.flat import FlatModule, ModuleLoss
from tacit.tasks.layers.convolution import Block, Convolution
from tacit.tasks.layers.layer import Layer
from tacit.tasks.layers.pointwise import RELU, SIGMOID, TANH, Flatten
from tacit.tasks.layers.pooling import MaxPool, MeanPool
from tacit.tasks.layers.products import Linear
from tacit.tasks.parts import Part, Parts

if TYPE_CHECKING:
    from tacit.tasks.task import Task


class NotLayered(Exception):
    """Why a module is not a chain of layers that we know."""


@dataclass(frozen=True)
class Chain:
    """Layers one after the other."""

    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, flat: FlatModule, inputs: Tensor) -> Chain | str:
        """The module for inputs [samples, ...] as a chain of layers, or why it is none."""
        if inputs.dtype != flat.dtype:
            return f"inputs are {inputs.dtype}, the model {flat.dtype}"
        try:
            layers = _blocks(list(_layers(flat.module, inputs.ndim - 1)))
        except NotLayered as reason:
            return str(reason)
        if sum(layer.width for layer in layers) != flat.width:
            return "some parameters are frozen or shared"
        if inputs.ndim != 2 and not any(isinstance(layer, Flatten) for layer in layers):
            return "its outputs are not vectors"
        return cls(tuple(layers))

    @property
    def widths(self) -> list[int]:
        """How many weights each layer has."""
        return [layer.width for layer in self.layers]

    def sizes(self, shape: Sequence[int]) -> tuple[int, int]:
        """How many numbers one client's pass over inputs [..., B] takes, and how many outputs each sample has.

        That is what layers give and keep, and as many on the way back. One sample is passed through to see: on the
        device "meta", which passes shapes alone, torch would load its compiler first, for two seconds.
        """
        *features, batch = shape
        x = torch.zeros(1, *features, 1)
        total = x.numel()
        for layer in self.layers:
            x, kept = layer.forward(torch.zeros(1, layer.width), x)
            total += 2 * (x.numel() + _size(kept))
        return batch * total, x.shape[1]

    def output(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """What models theta [k, P] give for inputs [k, B, ...]: [k, B, O]."""
        x = inputs.movedim(1, -1).contiguous()
        for layer, own in zip(self.layers, torch.split(theta, self.widths, 1), strict=True):
            x, _ = layer.forward(own, x)
        return x.mT.contiguous()


@dataclass(frozen=True)
class LayeredLoss:
    """The loss of a chain of layers."""

    chain: Chain
    criterion: Callable[..., Tensor]
    labelled: bool  # whether the criterion is cross-entropy with a class for every sample
    numbers: int  # that one client takes in a pass

    def write_gradients(self, theta: Tensor, arrays: Part, out: Tensor) -> None:
        """Write the gradients of k clients at `theta` [k, P] on arrays [k, B, ...] into `out` [k, P]."""
        inputs, *targets = arrays
        layers, widths = self.chain.layers, self.chain.widths
        weights, gradients = torch.split(theta, widths, 1), torch.split(out, widths, 1)
        x = inputs.movedim(1, -1).contiguous()
        kept: list[Any] = []
        for layer, own in zip(layers, weights, strict=True):
            x, needed = layer.forward(own, x)
            kept.append(needed)
        dy: Tensor | None = self._output_gradient(x, targets)
        first = next(number for number, width in enumerate(widths) if width)
        for number in range(len(layers) - 1, first - 1, -1):
            assert dy is not None
            dy = layers[number].backward(
                weights[number], kept.pop(), dy, gradients[number], number > first
            )

    def _output_gradient(self, output: Tensor, targets: list[Tensor]) -> Tensor:
        """The gradient of each client's loss by its output [k, O, B], a new tensor."""
        if self.labelled:
            classes = torch.arange(output.shape[1], device=output.device)[:, None]
            right = targets[0][:, None] == classes
            return torch.add(output.softmax(1), right, alpha=-1).div_(output.shape[2])
        by_output: Tensor = vmap(grad(self.criterion))(output.mT.contiguous(), *targets)
        return by_output.mT.contiguous()


def _is_labelled(criterion: Callable[..., Tensor], targets: Sequence[Part], classes: int) -> bool:
    return criterion is functional.cross_entropy and all(
        len(part) == 1 and _are_classes(part[0], classes) for part in targets
    )


def _are_classes(labels: Tensor, classes: int) -> bool:
    """Whether each is one of the classes; cross-entropy leaves some out, and refuses others."""
    whole = labels.ndim == 1 and labels.dtype == torch.int64
    return whole and int(labels.min()) >= 0 and int(labels.max()) < classes


def layered(task: Task) -> LayeredLoss | str:
    """The loss of a task as a chain of layers, or why it is none."""
    loss, parts = task.loss, task.parts
    if not isinstance(loss, ModuleLoss) or not isinstance(parts, Parts | Sequence):
        return "the loss is not that of a module on given data"
    held = [parts.arrays] if isinstance(parts, Parts) else parts
    arrays = max(held, key=lambda part: len(part[0]))
    batch = len(arrays[0]) if task.batch_size is None else task.batch_size
    chain = Chain.of(loss.flat, arrays[0])
    if isinstance(chain, str):
        return chain
    numbers, classes = chain.sizes((*arrays[0].shape[1:], batch))
    labelled = _is_labelled(loss.criterion, [part[1:] for part in held], classes)
    return LayeredLoss(chain, loss.criterion, labelled, numbers)


def _size(kept: Any) -> int:
    """How many numbers are in what a layer keeps: tensors, and tuples of them and of others."""
    if isinstance(kept, Tensor):
        return kept.numel()
    return (
        sum(map(_size, kept)) if isinstance(kept, tuple) and not isinstance(kept, torch.Size) else 0
    )


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


def _convolution(module: nn.Conv2d) -> Block:
    plain = (
        module.groups == 1
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )
    if not plain or type(module)._conv_forward is not nn.Conv2d._conv_forward:
        raise NotLayered(f"{module} is not a plain convolution")
    size, stride, padding, dilation = (
        _pair(value)
        for value in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    convolution = Convolution(
        module.in_channels, module.out_channels, size, stride, padding, dilation
    )
    return Block(convolution, module.bias is not None, pool=None, relu=False)


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
    calls = type(module).__call__ is nn.Module.__call__ and "forward" not in vars(module)
    weights = [name for name, _ in module.named_parameters(recurse=False)]
    ordered = weights in (
        [],
        ["weight"],
        ["weight", "bias"],
    )  # as layers take them from the flat vector
    return isinstance(module, kind) and type(module).forward is kind.forward and calls and ordered


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _blocks(layers: list[Layer]) -> list[Layer]:
    """Put ReLU and pooling, in whichever order, into the convolution that they come after."""
    joined: list[Layer] = []
    for layer in layers:
        last = joined[-1] if joined else None
        if isinstance(last, Block) and layer is RELU:
            joined[-1] = replace(last, relu=True)
        elif isinstance(last, Block) and isinstance(layer, MaxPool) and last.pool is None:
            joined[-1] = replace(last, pool=layer)
        else:
            joined.append(layer)
    return joined
