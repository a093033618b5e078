"""Convolutional networks for images [C, H, W] and fully connected ones for any inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from tacit.core.checks import (
    check_choice,
    check_count,
    check_number,
    check_positive,
    is_count,
)
from tacit.core.errors import Misuse

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}


def two_layer_cnn(
    shape: Sequence[int], classes: int, *, filters: Sequence[int] = (16, 32), padding: int = 0
) -> nn.Module:
    """Two 5×5 convolutions with ReLU and 2×2 pooling; a linear layer (LPPA paper, section 6)."""
    channels, height, width = check_image(shape, "cnn2", least=16)
    if not isinstance(filters, Sequence) or len(filters) != 2:
        raise Misuse(f"filters is {filters!r}.", "Give two numbers, e.g. filters = [16, 32].")
    first, second = filters
    for count in filters:
        check_count("filters", count)
    check_count("padding", padding, at_least=0)
    shrink = 4 - 2 * padding
    cells = ((height - shrink) // 2 - shrink) // 2 * (((width - shrink) // 2 - shrink) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, first, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * cells, classes),
    )


def sigmoid_cnn(
    shape: Sequence[int], classes: int, *, filters: int = 12, uniform: float | None = None
) -> nn.Module:
    """Three 5×5 sigmoid convolutions and a linear layer (dual-protection paper, section 5.2).

    Strides are 2, 2 and 1, as in the network of the first gradient inversion, which the paper
    follows. With `uniform`, initial weights are uniform between −uniform and uniform, because the
    sigmoids hardly learn from torch's smaller ones. That network has 0.5, the paper 1.
    """
    channels, height, width = check_image(shape, "sigmoid-cnn3", least=4)
    check_count("filters", filters)
    if uniform is not None:
        check_positive("uniform", uniform, example=0.5)
    layers: list[nn.Module] = []
    for stride in (2, 2, 1):
        layers.append(UniformConv2d(channels, filters, 5, stride, padding=2, uniform=uniform))
        layers.append(nn.Sigmoid())
        channels = filters
    cells = -(-height // 4) * -(-width // 4)
    last = UniformLinear(filters * cells, classes, uniform=uniform)
    return nn.Sequential(*layers, nn.Flatten(), last)


class UniformWeights(nn.Module):
    """Initial weights that are uniform in ±`uniform`; None for torch's own."""

    def __init__(self, *sizes: int, uniform: float | None, **options: int) -> None:
        # Before the weights are drawn.
        self.uniform = uniform
        super().__init__(*sizes, **options)

    def reset_parameters(self) -> None:
        super().reset_parameters()  # type: ignore[misc]
        if self.uniform is not None:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -self.uniform, self.uniform)


class UniformConv2d(UniformWeights, nn.Conv2d):
    """A convolution with uniform initial weights."""


class UniformLinear(UniformWeights, nn.Linear):
    """A linear layer with uniform initial weights."""


def tanh_cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """Convolutions 8×8 and 4×4 with tanh, 2 linear layers; for private training on small images.

    Strides are 2, and pooling is 2×2 with stride 1 (Papernot et al. 2021, Table 1). It has 26,010
    parameters for images of 28×28 pixels and ten classes. Per-sample gradients are clipped, which
    suits the bounded activations.
    """
    channels, height, width = check_image(shape, "tanh-cnn2", least=16)
    cells = ((height // 2 - 3) // 2 - 1) * ((width // 2 - 3) // 2 - 1)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * cells, 32),
        nn.Tanh(),
        nn.Linear(32, classes),
    )


def deep_tanh_cnn(shape: Sequence[int], classes: int, *, width: int = 32) -> nn.Module:
    """Six 3×3 convolutions with tanh, 2 linear layers; for private training on colour images.

    Pairs of convolutions have `width`, 2·width and 4·width filters, with 2×2 pooling after each
    pair (Papernot et al. 2021, Table 2).
    """
    channels, *sides = check_image(shape, "tanh-cnn6", least=8)
    check_count("width", width)
    layers: list[nn.Module] = []
    for filters in (width, 2 * width, 4 * width):
        for inputs in (channels, filters):
            layers += [nn.Conv2d(inputs, filters, 3, padding=1), nn.Tanh()]
        layers.append(nn.MaxPool2d(2))
        channels = filters
    cells = math.prod(side // 8 for side in sides)
    last = [nn.Linear(channels * cells, 128), nn.Tanh(), nn.Linear(128, classes)]
    return nn.Sequential(*layers, nn.Flatten(), *last)


def lenet(shape: Sequence[int], classes: int, *, activation: str = "relu") -> nn.Module:
    """LeNet-5: convolutions of 6 and 16 filters with pooling, then linear layers of 120 and 84."""
    channels, height, width = check_image(shape, "lenet", least=16)
    check_choice("activation", activation, ACTIVATIONS.keys())
    act = ACTIVATIONS[activation]
    cells = ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        act(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        act(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * cells, 120),
        act(),
        nn.Linear(120, 84),
        act(),
        nn.Linear(84, classes),
    )


class HeConv2d(nn.Conv2d):
    """A convolution before a ReLU, with weights that keep the size of activations (He 2015)."""

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def vgg11(shape: Sequence[int], classes: int) -> nn.Module:
    """VGG-11 for images of about 32×32 pixels: eight 3×3 convolutions and a linear layer.

    It has no normalisation (Simonyan and Zisserman 2015, configuration A), and 9,225,610 parameters
    for colour images and ten classes.
    """
    channels, *sides = check_image(shape, "vgg11", least=16)
    layers: list[nn.Module] = []
    for group in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for filters in group:
            layers += [HeConv2d(channels, filters, 3, padding=1), nn.ReLU()]
            channels = filters
        # Sides below 32 are not halved five times.
        if min(sides) > 1:
            layers.append(nn.MaxPool2d(2))
            sides = [side // 2 for side in sides]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * math.prod(sides), classes))


def mlp(
    shape: Sequence[int],
    classes: int,
    *,
    hidden: Sequence[int] = (64,),
    activation: str = "relu",
    dropout: float = 0.0,
) -> nn.Module:
    """Linear layers of the `hidden` sizes with an activation after each, and a last linear one.

    With `dropout`, each number after an activation is dropped with this probability in training.
    """
    check_choice("activation", activation, ACTIVATIONS.keys())
    check_number("dropout", dropout, at_least=0, below=1, example=0.1)
    act = ACTIVATIONS[activation]
    if not hidden or not all(is_count(size) for size in hidden):
        raise Misuse(f"hidden is {hidden!r}.", "Give a list of layer sizes such as [64].")
    sizes = [math.prod(shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), act()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))


def linear(shape: Sequence[int], classes: int) -> nn.Module:
    """Logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def check_image(shape: Sequence[int], model: str, least: int) -> tuple[int, int, int]:
    """Channels, height and width of images that are large enough for a model."""
    if len(shape) != 3 or min(shape[1:]) < least:
        raise Misuse(
            f"Model {model!r} got inputs of shape {tuple(shape)}.",
            f"It needs images [channels, height, width] of at least {least}×{least}; "
            'use "mlp" for tables.',
        )
    channels, height, width = shape
    return channels, height, width
