"""First weights whose gradients contain single samples (Fowl et al. 2022, "Robbing the Fed").

The first layer, with K units and a ReLU, measures every input x by one number, h·x, and compares
it with K thresholds. The second layer treats all units alike:

    zₖ = s (h·x − qₖ),  q₀ < q₁ < … < q_{K−1};       second layer: every column is a

With δ(x) = aᵀ ∂L/∂(second layer), which is the same for all units, the gradient of unit k is

    G_W[k] = Σ δ(x) x,   G_b[k] = Σ δ(x)    over samples with h·x > qₖ

so G_W[k] − G_W[k+1] has only the samples with qₖ < h·x ≤ qₖ₊₁. If that is one sample, the quotient
of the two differences is the sample, exactly. Sums over clients have the same form, and so has
every combination of gradients at these weights: a bin with one sample gives that sample.

Thresholds are the quantiles of h·x in public data, so that samples are spread evenly: of n samples
about n (1 − 1/K)ⁿ⁻¹ are alone. h is the mean over all inputs, the brightness of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tacit.auditing.attacks.linear_layers import LinearLayer, first_two_linear
from tacit.auditing.attacks.reconstruction_attacks import why_not_classifying
from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting
from tacit.tasks.flat import FlatModule, ModuleLoss

# Units whose difference is smaller than this, relative to the largest, hold no sample.
EMPTY = 1e-6
ASSUMED = (
    "one client distributes the first weights; thresholds are quantiles of public data of the same "
    "kind"
)


def imprint_weights(flat: FlatModule, theta: Tensor, public: Tensor, seed: int = 0) -> Tensor:
    """Weights [P] with an imprint layer; `theta` gives all other layers.

    Args:
        flat: A model that begins with a linear layer, a ReLU and a linear layer.
        theta: Weights [P] to change.
        public: Inputs [n, *shape] of the same kind as those to recover.
        seed: Draws the second layer.

    Raises:
        Misuse: The model begins in another way.
    """
    first, second = first_two_linear(flat, public.shape[1:])
    units, inputs = first.weight.shape
    measured = public.flatten(1).double().mean(1)
    spread = float(measured.std()) or 1.0
    levels = torch.arange(units, dtype=torch.float64) / units
    thresholds = torch.quantile(measured, levels)
    thresholds[0] -= spread
    # A large first layer keeps its bins during training; a large second one has large gradients.
    scale = 1.0 / (units**0.5 * spread)
    generator = torch.Generator().manual_seed(seed)
    column = torch.randn(second.weight.shape[0], generator=generator, dtype=torch.float64)
    column /= units**0.5
    theta = theta.clone()
    theta[first.weight] = scale / inputs
    theta[first.bias] = (-scale * thresholds).to(theta.dtype)
    theta[second.weight] = column[:, None].expand(second.weight.shape).to(theta.dtype)
    return theta


def imprinted(setting: Setting, victim: int) -> Setting:
    """The same setting in which all clients start from an imprint model.

    Raises:
        Misuse: Clients do not start alike, the model begins in another way, or there are no public
            data.
    """
    if not setting.start_alike:
        raise Misuse(
            "Clients start from different models, so no client can choose those of others.",
            'Set init = "same", or choose another behaviour.',
        )
    task = setting.task
    if (reason := why_not_classifying(task)) is not None:
        raise Misuse(f"An imprint model cannot be made: {reason}.", "Choose another behaviour.")
    assert isinstance(task.loss, ModuleLoss)  # checked by why_not_classifying
    public = Truth(task, int(setting.seed)).non_members(victim)
    assert public is not None  # checked by why_not_classifying
    honest = task.initial(int(setting.seed), [0])[0]
    theta = imprint_weights(task.loss.flat, honest, public[0], int(setting.seed))

    def initial(seed: int, clients: Sequence[int]) -> Tensor:
        return theta.repeat(len(clients), 1)

    return replace(setting, task=replace(task, initial=initial))


def read_samples(layer: LinearLayer, values: Tensor) -> Tensor:
    """Candidates for samples [c, inputs] in the gradient of a first layer.

    The quotients G_W/G_b of each unit and of the differences of neighbouring units. Without an
    imprint layer, units that are active for one sample only still give that sample.

    Args:
        layer: The first layer, with a bias.
        values: A combination of gradients [P].
    """
    assert layer.bias is not None  # checked by the caller
    weight, bias = layer.weight_of(values.double()), values.double()[layer.bias]
    weight = torch.cat((weight, weight[:-1] - weight[1:]))
    bias = torch.cat((bias, bias[:-1] - bias[1:]))
    kept = bias.abs() > EMPTY * bias.abs().max()
    return weight[kept] / bias[kept, None]
