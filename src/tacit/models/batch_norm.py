"""Normalisation without statistics of the batch, in the place of batch normalisation."""

from __future__ import annotations

import math
from functools import partial

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tacit.core.checks import check_count
from tacit.models.parameters import copied, replace_layers


def replace_batch_norm(module: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of a module with group normalisation in the place of batch normalisation.

    Batch normalisation keeps statistics of a client's data outside of the parameters, and makes a
    sample's gradient depend on the rest of the batch. Group normalisation does neither. Scale and
    shift are taken over; a trained model has to be trained further.

    Args:
        module: Any module; it is not changed.
        groups: Groups of channels, reduced to a divisor of the number of channels. BatchNorm1d
            becomes one group of all, because a group must have more than one number.

    Example:
        >>> import tacit
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Conv2d(3, 48, 3), nn.BatchNorm2d(48))
        >>> tacit.models.replace_batch_norm(model)[1].num_groups
        16
    """
    check_count("groups", groups)
    return replace_layers(copied(module), partial(_group_norm, groups=groups))


def _group_norm(layer: nn.Module, groups: int) -> nn.GroupNorm | None:
    if not isinstance(layer, _BatchNorm):
        return None
    count = 1 if isinstance(layer, nn.BatchNorm1d) else math.gcd(groups, layer.num_features)
    new = nn.GroupNorm(count, layer.num_features, layer.eps, layer.affine)
    if layer.affine:
        new.weight, new.bias = layer.weight, layer.bias
    return new
