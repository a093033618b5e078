"""ResNet-18 for small images, with GroupNorm in the place of BatchNorm."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.models.networks import check_image


def resnet18(shape: Sequence[int], classes: int, *, width: int = 64, groups: int = 8) -> nn.Module:
    """ResNet-18 with GroupNorm for images of about 32×32 pixels (He et al. 2016; Wu and He 2018).

    The first convolution is 3×3 without pooling; four stages have `width`, 2·width, 4·width and
    8·width channels. It has 11,173,962 parameters for colour images and ten classes, 701,466 with
    width = 16. Statistics are those of one sample: nothing has to be averaged between clients.
    """
    channels, _, _ = check_image(shape, "resnet18-gn", least=8)
    check_count("width", width)
    check_count("groups", groups)
    if width % groups:
        raise Misuse(
            f"width is {width}, which is not a multiple of groups = {groups}.",
            "Choose groups that divide the channels, such as groups = 8.",
        )
    return ResNet(channels, classes, width, groups)


class ResNet(nn.Module):
    """Images [B, C, H, W] → logits [B, classes]."""

    def __init__(self, channels: int, classes: int, width: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, width)
        blocks: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            outputs = width * 2**stage
            blocks.append(BasicBlock(inputs, outputs, 1 if stage == 0 else 2, groups))
            blocks.append(BasicBlock(outputs, outputs, 1, groups))
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.conv(x)))
        logits: Tensor = self.linear(self.blocks(x).mean((2, 3)))
        return logits


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut, which is a 1×1 convolution if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(nn.GroupNorm(groups, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))
