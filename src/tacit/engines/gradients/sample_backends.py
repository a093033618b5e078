"""Gradients of single samples, by one of three backends: layered, batched or looped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.core.errors import Misuse
from tacit.core.workers import without_onednn
from tacit.engines.gradients.separable import made_up, perturbed
from tacit.engines.gradients.strategies import STRATEGIES, Strategy, pass_numbers
from tacit.tasks.batching import attention_of_samples
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.layers import LayeredLoss, layered_loss
from tacit.tasks.parts import Part
from tacit.tasks.sample_gradients import OuterProducts
from tacit.tasks.task import Task

# Sizes of passes on the CPU are multiples of this. Tiles of matrix products are then full, and
# torch's loops have no rest, whose numbers they would round otherwise: with AVX-512 they take two
# vectors of 16 numbers at a time.
GRAIN = 32
# Places of a pass that are tried.
TRIED = 8 * GRAIN
# A model [P] and arrays [B, ...] → the gradient of each sample.
SampleGradients = Callable[[Tensor, Part], Sequence[OuterProducts]]
# Share by which gradients may differ from those of single samples one by one: far above rounding.
LARGEST_ERROR = 0.01


def batched(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """The gradient [B, P] of each sample's own loss, in one pass."""

    def of_one(theta: Tensor, *sample: Tensor) -> Tensor:
        return loss(theta, *(array[None] for array in sample))

    with attention_of_samples():
        gradients: Tensor = vmap(grad(of_one), (None, *(0 for _ in arrays)))(theta, *arrays)
    return gradients


def looped(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """The gradient [B, P] of each sample's own loss, one by one: slow and obviously right."""
    out = theta.new_empty(len(arrays[0]), len(theta))
    for row in range(len(out)):
        point = theta.detach().clone().requires_grad_()
        value = loss(point, *(array[row : row + 1] for array in arrays))
        (out[row],) = torch.autograd.grad(value, point)
    return out


@dataclass(frozen=True, eq=False)
class SampleBackend:
    """Computes the gradients of single samples of one task.

    `workspace` is how many numbers one sample takes in a pass, roughly.
    """

    strategy: Strategy
    gradients: SampleGradients
    workspace: int

    @classmethod
    def of(cls, task: Task, strategy: Strategy) -> SampleBackend:
        """The backend for a task with mini-batches.

        Raises:
            Misuse: If the strategy is "layered" but the loss is not that of a chain of layers.
        """
        if strategy == "layered":
            net = layered_loss(task.loss, task.parts, 1)
            if isinstance(net, str):
                raise Misuse(f'gradients is "layered", but {net}.', 'Use "batched" or "looped".')
            return cls(strategy, net.sample_gradients, net.workspace + 2 * task.parameters)
        compute = {"batched": batched, "looped": looped}[strategy]

        def gradients(theta: Tensor, arrays: Part) -> list[OuterProducts]:
            return [OuterProducts(compute(task.loss, theta, arrays))]

        numel = task.source.batch_numel // (task.batch_size or 1)
        return cls(strategy, gradients, 4 * task.parameters + 16 * numel)

    @classmethod
    def first_usable(cls, task: Task, theta: Tensor, arrays: Part) -> SampleBackend:
        """The fastest backend that works for a model [P] and arrays [B, ...]."""
        net = layered_loss(task.loss, task.parts, 1)
        theta = perturbed(theta)
        inputs = task.loss.flat.layout.count if isinstance(task.loss, ModuleLoss) else 1
        sample = made_up(arrays, 1, inputs)
        if isinstance(net, LayeredLoss) and net.labelled:
            # Works: no need to compile kernels for a trial.
            backend = cls.of(task, "layered")
            if backend.ignores_places(theta, sample):
                return backend
        expected = looped(task.loss, theta, arrays)
        for strategy in STRATEGIES[:-1]:
            try:
                backend = cls.of(task, strategy)
                # Layers do not keep the gradients of samples, so GRAIN of them always fit.
                few = not theta.is_cuda and backend.fit(theta.device) < GRAIN
                if strategy == "batched" and few:
                    continue
                found = torch.cat([block.rows() for block in backend.gradients(theta, arrays)], 1)
                placeless = backend.ignores_places(theta, sample)
            except Exception:  # torch.func and users' losses raise many kinds
                continue
            # torch.func does not see everything that modules do, such as hooks.
            right = bool((found - expected).norm() <= LARGEST_ERROR * expected.norm())
            if right and placeless:
                return backend
        return cls.of(task, STRATEGIES[-1])

    def samples_per_pass(self, device: torch.device | str) -> int:
        """How many samples a pass may take: as many as fit into its workspace.

        A multiple of GRAIN, unless each goes by itself: a gradient must not depend on the place in
        a pass, or one sample more would change those of others.
        """
        fit = self.fit(device)
        return fit if self.strategy == "looped" else max(1, fit // GRAIN) * GRAIN

    def fit(self, device: torch.device | str) -> int:
        """How many samples fit into the workspace of a pass, at least one."""
        return max(1, min(pass_numbers(torch.device(device)), 1 << 30) // self.workspace)

    def ignores_places(self, theta: Tensor, sample: Part) -> bool:
        """Whether a sample [1, ...] has the same gradient, to the last bit, at all places.

        Some functions of torch round a number by those next to it: GELU on a CPU, for one. The
        gradient of a sample would then depend on others. On a GPU every number has its own thread.
        """
        if theta.is_cuda:
            return True
        count = min(TRIED, self.samples_per_pass(theta.device))
        with self.pass_context(theta.device):
            blocks = self.gradients(
                theta, tuple(array.repeat_interleave(count, 0) for array in sample)
            )
        factors = [one for block in blocks for one in (block.left, block.right) if one is not None]
        return all(torch.equal(one, one[:1].expand_as(one)) for one in factors)

    def pass_context(self, device: torch.device | str) -> AbstractContextManager[None]:
        """The context of a pass: in layered ones, each worker multiplies matrices by itself."""
        return without_onednn(device) if self.strategy == "layered" else nullcontext()
