"""Modules as chains of layers, and the gradient of their loss for k clients at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional

from tacit.gradients.products import OuterProducts
from tacit.models.dropout import REPLACED, KeyedDropout
from tacit.tasks.flat import FlatModule, Loss, ModuleLoss
from tacit.tasks.inputs import ONE_INPUT
from tacit.tasks.layers.basic import (
    RELU,
    SIGMOID,
    TANH,
    Affine,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    MeanPool,
)
from tacit.tasks.layers.convolution import Convolution
from tacit.tasks.layers.dropout import Dropout
from tacit.tasks.parts import Part, Parts
from tacit.tasks.regression import OriginalUnit
from tacit.tasks.stream import Stream

M = TypeVar("M", bound=nn.Module)


class UnsupportedModule(Exception):
    """Why a module is not a chain of supported layers."""


@dataclass(frozen=True)
class Chain:
    """Layers one after the other."""

    layers: tuple[Layer, ...]

    @classmethod
    def from_module(cls, flat: FlatModule, inputs: Tensor, dropout: bool = False) -> Chain | str:
        """The module for inputs [samples, ...] as a chain of layers, or why it is not one.

        With its dropout only if asked for: there is none in evaluation.
        """
        if flat.layout != ONE_INPUT:
            return "it has several or named inputs"
        if inputs.dtype != flat.dtype:
            return f"inputs are {inputs.dtype}, the model {flat.dtype}"
        try:
            layers = _layers(flat.module, inputs.ndim - 1, dropout)
        except UnsupportedModule as reason:
            return str(reason)
        leaves = list(_leaves(flat.module))
        trained = [p for p in flat.module.parameters() if p.requires_grad]
        used = [p for leaf in leaves for p in leaf.parameters()]
        # Not only as many numbers: others may be unused.
        if list(map(id, used)) != list(map(id, trained)):
            return "some parameters are frozen or shared, or unused"
        if inputs.ndim != 2 and not any(isinstance(layer, Flatten) for layer in layers):
            return "its outputs are not vectors"
        return cls(tuple(layers))

    @property
    def widths(self) -> list[int]:
        """Number of weights of each layer."""
        return [layer.width for layer in self.layers]

    def sizes(self, shape: Sequence[int]) -> tuple[int, int]:
        """Numbers that one client's pass over inputs [..., B] takes, and outputs per sample.

        Counts what layers return and save, and the same again for the backward pass. Measured by
        running one sample: with the device "meta" torch would first load its compiler for two
        seconds.
        """
        *features, batch = shape
        x = torch.zeros(1, *features, 1)
        total = x.numel()
        key = torch.zeros(1, 1, dtype=torch.int64)
        for layer in self.layers:
            weights = key if isinstance(layer, Dropout) else torch.zeros(1, layer.width)
            x, saved = layer.forward(weights, x)
            total += 2 * (x.numel() + _numel(saved))
        return batch * total, x.shape[1]

    @property
    def first(self) -> int:
        """The first layer with weights; the gradient of its input is not needed."""
        return next(number for number, width in enumerate(self.widths) if width)

    def split(self, theta: Tensor, keys: Tensor | None = None) -> list[Tensor]:
        """The weights of each layer, [k, width]; for dropout the keys [k, B]."""
        pieces = torch.split(theta, self.widths, 1)
        if keys is None:
            return list(pieces)
        pairs = zip(self.layers, pieces, strict=True)
        return [keys if isinstance(layer, Dropout) else own for layer, own in pairs]

    def forward(self, weights: Sequence[Tensor], x: Tensor) -> tuple[Tensor, list[Any]]:
        """The output for inputs [k, ..., B], and what each layer's backward pass needs."""
        saved: list[Any] = []
        for layer, own in zip(self.layers, weights, strict=True):
            x, needed = layer.forward(own, x)
            saved.append(needed)
        return x, saved

    def output(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """Outputs [k, B, O] of models theta [k, P] for inputs [k, B, ...]."""
        x = _batch_last(inputs)
        for layer, weights in zip(self.layers, torch.split(theta, self.widths, 1), strict=True):
            x, _ = layer.forward(weights, x)
        return x.mT.contiguous()


@dataclass(frozen=True)
class LayeredLoss:
    """The loss of a chain of layers."""

    chain: Chain
    criterion: Callable[..., Tensor]
    labelled: bool  # whether the criterion is cross-entropy with a class for every sample
    workspace: int  # numbers that one client takes in a pass
    keyed: bool = False  # whether the last array has the keys of the samples, for dropout

    def write_gradients(self, theta: Tensor, arrays: Part, out: Tensor) -> None:
        """Write the gradients of k clients at theta [k, P] on arrays [k, B, ...] to out [k, P]."""
        inputs, *targets = arrays
        keys = targets.pop() if self.keyed else None
        layers, gradients = self.chain.layers, torch.split(out, self.chain.widths, 1)
        weights = self.chain.split(theta, keys)
        output, saved = self.chain.forward(weights, _batch_last(inputs))
        dy: Tensor | None = self._output_gradient(output, targets)
        first = self.chain.first
        for number in range(len(layers) - 1, first - 1, -1):
            assert dy is not None
            dy = layers[number].backward(
                weights[number], saved.pop(), dy, gradients[number], number > first
            )

    def sample_gradients(self, theta: Tensor, arrays: Part) -> list[OuterProducts]:
        """The gradient of each sample of arrays [B, ...] at one model theta [P]."""
        inputs, *targets = arrays
        keys = targets.pop()[None] if self.keyed else None
        layers, weights = self.chain.layers, self.chain.split(theta[None], keys)
        output, saved = self.chain.forward(weights, inputs.movedim(0, -1).contiguous()[None])
        dy: Tensor | None = self._sample_output_gradients(output, targets)
        first = self.chain.first
        products: list[OuterProducts] = []
        for number in range(len(layers) - 1, first - 1, -1):
            assert dy is not None
            dy, found = layers[number].sample_gradients(
                weights[number], saved.pop(), dy, number > first
            )
            products[:0] = found
        return products

    def _output_gradient(self, output: Tensor, targets: list[Tensor]) -> Tensor:
        """The gradient of each client's loss by its output [k, O, B], a new tensor."""
        if self.labelled:
            return _cross_entropy_gradient(output, targets[0]).div_(output.shape[2])
        by_output: Tensor = vmap(grad(self.criterion))(output.mT.contiguous(), *targets)
        return by_output.mT.contiguous()

    def _sample_output_gradients(self, output: Tensor, targets: list[Tensor]) -> Tensor:
        """The gradient of each sample's own loss by its output [1, O, B], a new tensor."""
        if self.labelled:
            return _cross_entropy_gradient(output, targets[0][None])
        alone = [target[:, None] for target in targets]
        by_output: Tensor = vmap(grad(self.criterion))(output.mT[0, :, None], *alone)
        return by_output[:, 0].T.contiguous()[None]


def _batch_last(inputs: Tensor) -> Tensor:
    """Inputs [k, B, ...] as [k, ..., B]; on a CPU, the first layer decides about the memory."""
    x = inputs.movedim(1, -1)
    return x.contiguous() if x.is_cuda else x


def _cross_entropy_gradient(output: Tensor, labels: Tensor) -> Tensor:
    """The gradient of each sample's cross-entropy by outputs [k, O, B] for labels [k, B]."""
    classes = torch.arange(output.shape[1], device=output.device)[:, None]
    return torch.add(output.softmax(1), labels[:, None] == classes, alpha=-1)


def layered_loss(
    loss: Loss, parts: Parts | Sequence[Part] | Stream, batch_size: int | None
) -> LayeredLoss | str:
    """The loss of a task as a chain of layers, or why it is not one."""
    if not isinstance(loss, ModuleLoss) or not isinstance(parts, Parts | Sequence):
        return "the loss is not that of a module on given data"
    held = [parts.arrays] if isinstance(parts, Parts) else parts
    arrays = max(held, key=lambda part: len(part[0]))
    batch = len(arrays[0]) if batch_size is None else batch_size
    chain = Chain.from_module(loss.flat, arrays[0], dropout=loss.keyed)
    if isinstance(chain, str):
        return chain
    workspace, classes = chain.sizes((*arrays[0].shape[1:], batch))
    labelled = loss.criterion is functional.cross_entropy and all(
        len(part) == 2 and _are_classes(part[1], classes) for part in held
    )
    return LayeredLoss(chain, loss.criterion, labelled, workspace, loss.keyed)


def _are_classes(labels: Tensor, classes: int) -> bool:
    """Whether each label is a class; cross-entropy ignores or rejects other numbers."""
    whole = labels.ndim == 1 and labels.dtype == torch.int64
    return whole and int(labels.min()) >= 0 and int(labels.max()) < classes


def _numel(saved: Any) -> int:
    """How many numbers a layer saves: in a tensor, or in a tuple with tensors."""
    if isinstance(saved, Tensor):
        return saved.numel()
    nested = isinstance(saved, tuple) and not isinstance(saved, torch.Size)
    return sum(map(_numel, saved)) if nested else 0


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that run one after the other; those of nested Sequentials in their place."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    if any((*hooks, module._backward_hooks, module._backward_pre_hooks)):
        raise UnsupportedModule(f"{type(module).__name__} has hooks")
    if nn.utils.parametrize.is_parametrized(module):
        raise UnsupportedModule(f"{type(module).__name__} has parametrized weights")
    if _computes(module, nn.Sequential):
        # Not module.children(), which skips repeated modules.
        for part in module:
            yield from _leaves(part)
    elif not _computes(module, nn.Identity) and not _drops_nothing(module):
        yield module


def _drops_nothing(module: nn.Module) -> bool:
    return any(_computes(module, kind) and module.p == 0 for kind in REPLACED)


def _layers(module: nn.Module, dimensions: int, dropout: bool) -> list[Layer]:
    """The layers of a module for inputs with this many dimensions besides the batch.

    ReLU and pooling, in any order, move into the convolution before them.
    """
    layers: list[Layer] = []
    for leaf in _leaves(module):
        if isinstance(leaf, KeyedDropout):
            if dropout:
                layers.append(_dropout(leaf, layers))
            continue
        layer = _layer(leaf, dimensions)
        last = layers[-1] if layers else None
        dimensions = 1 if isinstance(layer, Flatten) else dimensions
        if isinstance(last, Convolution) and layer is RELU:
            layers[-1] = replace(last, relu=True)
        elif isinstance(last, Convolution) and isinstance(layer, MaxPool) and last.pool is None:
            layers[-1] = replace(last, pool=layer)
        else:
            layers.append(layer)
    return layers


def _layer(module: nn.Module, dimensions: int) -> Layer:
    for kind, layer in ((nn.ReLU, RELU), (nn.Sigmoid, SIGMOID), (nn.Tanh, TANH)):
        if _computes(module, kind):
            return layer
    if _computes(module, nn.Flatten) and module.start_dim == 1:
        if module.end_dim in (-1, dimensions):
            return Flatten()
    elif _computes(module, nn.Linear) and dimensions == 1:
        return Linear(module.in_features, module.out_features, module.bias is not None)
    elif _computes(module, OriginalUnit):
        return Affine(float(module.mean), float(module.std))
    elif _computes(module, nn.Conv2d) and dimensions == 3:
        return _convolution(module)
    elif isinstance(module, nn.MaxPool2d | nn.AvgPool2d) and dimensions == 3:
        return _pool(module)
    # The text of a module with children has a line for each of them.
    name = type(module).__name__ if any(module.children()) else module
    raise UnsupportedModule(f"{name} is not one of the supported layers")


def _dropout(module: KeyedDropout, before: Sequence[Layer]) -> Dropout:
    if module.alpha:
        raise UnsupportedModule(f"{module} is for SELU")
    number = sum(isinstance(layer, Dropout) for layer in before)
    return Dropout(module.p, number, module.by_channel)


def _convolution(module: nn.Conv2d) -> Convolution:
    zero_padding = module.padding_mode == "zeros" and not isinstance(module.padding, str)
    own_forward = type(module)._conv_forward is not nn.Conv2d._conv_forward
    if module.groups != 1 or not zero_padding or own_forward:
        raise UnsupportedModule(f"{module} is not a plain convolution")
    return Convolution(
        module.in_channels,
        module.out_channels,
        _pair(module.kernel_size),
        _pair(module.stride),
        _pair(module.padding),
        _pair(module.dilation),
        bias=module.bias is not None,
    )


def _pool(module: nn.MaxPool2d | nn.AvgPool2d) -> Layer:
    size, stride = _pair(module.kernel_size), _pair(module.stride)
    plain = _pair(module.padding) == (0, 0) and not module.ceil_mode
    if isinstance(module, nn.MaxPool2d):
        plain = plain and _pair(module.dilation) == (1, 1) and not module.return_indices
        if plain and _computes(module, nn.MaxPool2d):
            return MaxPool(size, stride)
    elif plain and _computes(module, nn.AvgPool2d) and module.divisor_override is None:
        if stride != size:
            raise UnsupportedModule(f"{module} averages windows that overlap or leave gaps")
        return MeanPool(size)
    raise UnsupportedModule(f"{module} is not a plain pool")


def _computes(module: nn.Module, kind: type[M]) -> TypeGuard[M]:
    """Whether a module computes what `kind` does; subclasses may only initialise differently."""
    calls = type(module).__call__ is nn.Module.__call__ and "forward" not in vars(module)
    weights = [name for name, _ in module.named_parameters(recurse=False)]
    # The order in which layers read the flat vector.
    ordered = weights in ([], ["weight"], ["weight", "bias"])
    return isinstance(module, kind) and type(module).forward is kind.forward and calls and ordered


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
