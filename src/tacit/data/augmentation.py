"""Random crops and flips of images, drawn from keys of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tacit.core.checks import check_count, check_flag
from tacit.core.errors import Misuse
from tacit.core.sample_keys import below, fold

# Draws of the model come after it.
DRAW = 0


@dataclass(frozen=True)
class Augment:
    """Random changes of the images of each gradient; models are evaluated on the images as given.

    An image is changed in a way that depends on the seed, the client, the sample and the number of
    the batch only.

    Args:
        crop: Pixels that an image is moved by at most, in both directions: it is padded with zeros
            on all sides by so many, and a part of its own size is cut out.
        flip: Whether half of the images are mirrored, left to right.

    Example:
        >>> import torch, tacit
        >>> tacit.Augment(crop=4, flip=True)
        Augment(crop=4, flip=True)
    """

    crop: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        check_count("crop", self.crop, at_least=0)
        check_flag("flip", self.flip)

    def check(self, shape: Sequence[int]) -> None:
        """Raise Misuse if inputs of this shape, without the batch, are not large enough images."""
        if len(shape) != 3 or min(shape[1:]) <= self.crop:
            raise Misuse(
                f"Inputs of shape {tuple(shape)} cannot be augmented with crop = {self.crop}.",
                "Augment images [channels, height, width] with a crop of fewer pixels than they "
                "have.",
            )

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        """Change images [..., C, H, W] by keys [...]."""
        height, width = images.shape[-2:]
        crop = self.crop
        down, right, mirrored = below(fold(keys, DRAW), (2 * crop + 1, 2 * crop + 1, 2))
        rows = torch.arange(height, device=keys.device) + down[..., None]
        columns = torch.arange(width, device=keys.device)
        if self.flip:
            columns = torch.where(mirrored[..., None] == 1, columns.flip(0), columns)
        columns = columns + right[..., None]
        padded = functional.pad(images, (crop,) * 4)
        pixels = rows[..., :, None] * padded.shape[-1] + columns[..., None, :]
        index = pixels.flatten(-2)[..., None, :].expand(*images.shape[:-2], height * width)
        return padded.flatten(-2).gather(-1, index).view(images.shape)
