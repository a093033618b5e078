"""Gradients of single samples: in one pass by the tape, or one by one.

The way is a function of the model, its shapes and types and the device alone. It must tell nothing
about the data, and gradients must not depend on it from one step to the next. So all that is tried
here is tried with made-up samples. That holds for the check that samples do not influence each
other, too: whether a run begins must tell nothing about the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from tacit.core.errors import Misuse, first_line
from tacit.gradients.products import OuterProducts, Products
from tacit.gradients.samples import sample_products
from tacit.gradients.stacked import NotStackable
from tacit.gradients.workspace import pass_numbers
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.known_layers import has_backward_hooks
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Part, Parts

Way = Literal["taped", "looped"]
# Sizes of passes on the CPU are multiples of this. Tiles of matrix products are then full, and
# torch's loops have no rest, whose numbers they would round otherwise: with AVX-512 they take two
# vectors of 16 numbers at a time.
GRAIN = 32
# Places of a pass that are tried before the way is chosen.
TRIED = 8 * GRAIN
# By how much the smallest pass may exceed the workspace, before samples go one by one.
EXCESS = 16
# A model [P] and arrays [B, ...] → the gradient of each sample.
SampleGradients = Callable[[Tensor, Part], Sequence[Products]]
# Share by which gradients may differ from those of single samples one by one: far above rounding.
# A GPU may multiply numbers with fewer digits.
LARGEST_ERROR = {torch.float32: 1e-3, torch.float64: 1e-9}
LARGEST_ERROR_GPU = 1e-2
# Share of that error by which the gradient of a parameter may differ, of the whole gradient.
ROUNDING = 1e-2


# Standard deviation of what is added to the model: with zero weights nothing has an influence.
PERTURBATION = 0.01
# Classes that are tried.
MOST_CLASSES = 32


def taped(loss: Loss, theta: Tensor, arrays: Part) -> list[Products]:
    """The gradient of each sample's own loss, in one pass over the module as it is.

    Raises:
        NotStackable: If the loss has a step that cannot be computed for all samples at once.
    """
    if not isinstance(loss, ModuleLoss):
        return sample_products(lambda parts, own: loss(parts[0], *own), [theta], arrays)
    if has_backward_hooks(loss.flat.module):
        raise NotStackable("the model has hooks of its backward pass")
    parts = list(loss.flat.unflatten(theta).values())
    return sample_products(lambda parts, own: loss(tuple(parts), *own), parts, arrays)


def looped(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """The gradient [B, P] of each sample's own loss, one by one: slow and obviously right."""
    out = theta.new_empty(len(arrays[0]), len(theta))
    for row in range(len(out)):
        point = theta.detach().clone().requires_grad_()
        value = loss(point, *(array[row : row + 1] for array in arrays))
        (out[row],) = torch.autograd.grad(value, point)
    return out


@dataclass(frozen=True, eq=False)
class Trial:
    """What passes are tried with before a run: a model and made-up samples.

    Attributes:
        loss: The loss of a batch.
        model: A model [P].
        like: Samples [B, ...], of which only the shape and the type are used.
    """

    loss: Loss
    model: Tensor
    like: Part

    @classmethod
    def of(cls, loss: Loss, theta: Tensor, like: Part) -> Trial:
        return cls(loss, perturbed(theta), like)

    @property
    def inputs(self) -> int:
        """How many of the arrays of a sample are inputs of the model."""
        return self.loss.flat.layout.count if isinstance(self.loss, ModuleLoss) else 1

    def samples(self, count: int, classes: int | None = None) -> Part:
        """Made-up samples; see `made_up`."""
        return made_up(self.like, count, self.inputs, classes)


@dataclass(frozen=True, eq=False)
class SampleBackend:
    """Computes the gradients of single samples of one task.

    Attributes:
        way: How.
        gradients: The gradients by all parameters, block by block.
        workspace: How many numbers one sample takes in a pass, roughly.
        reason: Why samples go one by one, if they do.
    """

    way: Way
    gradients: SampleGradients
    workspace: int
    reason: str = ""

    @classmethod
    def of(cls, task: Objective, way: Way, theta: Tensor | None = None) -> SampleBackend:
        """The backend for a task with mini-batches; `theta` [P] is a model to try it with.

        Raises:
            NotStackable: If the way is "taped" and the loss has a step that cannot be.
        """
        loss = task.loss
        if way == "looped":
            numel = task.source.batch_numel // (task.batch_size or 1)
            return cls(
                way,
                lambda theta, arrays: [OuterProducts(looped(loss, theta, arrays))],
                4 * task.parameters + 16 * numel,
            )
        theta = task.initial(0, [0])[0] if theta is None else theta
        return cls(way, partial(taped, loss), _numbers(task, theta))

    @classmethod
    def first_usable(cls, task: Objective, theta: Tensor, arrays: Part) -> SampleBackend:
        """The fastest backend that works for a model [P].

        Args:
            task: The task.
            theta: A model.
            arrays: Samples [B, ...], of which only the shape and the type are used.
        """
        trial = Trial.of(task.loss, theta, arrays)
        try:
            backend = cls.of(task, "taped", trial.model)
            reason = backend.problem(trial)
        except Exception as error:  # torch.func and users' losses raise many kinds
            reason = first_line(error)
        return replace(cls.of(task, "looped"), reason=reason) if reason else backend

    def problem(self, trial: Trial) -> str:
        """Why this way is not to be used; "" if it is.

        Compares gradients of made-up samples with those one by one, and tries whether the place in
        a pass matters, or the other samples.
        """
        theta, few = trial.model, trial.samples(2)
        if theta.device.type == "cpu" and self.fit(theta.device) * EXCESS < GRAIN:
            return "gradients of several samples do not fit into memory"
        blocks = [block.rows() for block in self.gradients(theta, few)]
        together, expected = torch.cat(blocks, 1), looped(trial.loss, theta, few)
        share = LARGEST_ERROR_GPU if theta.is_cuda else LARGEST_ERROR[expected.dtype]
        if not agree(together, expected, [x.shape[1] for x in blocks], share, ROUNDING * share):
            return "gradients in one pass are not those of single samples"
        return self.problem_of_pass(trial, min(TRIED, self.samples_per_pass(theta.device)))

    def problem_of_pass(self, trial: Trial, count: int) -> str:
        """Why passes of so many samples are not to be used; "" if they are."""
        if self.way == "looped":
            return ""
        if not self.ignores_places(trial.model, trial.samples(1), count):
            return "the place of a sample in a pass matters to the rounding of its gradient"
        if not self.ignores_others(trial.model, trial.samples(count + 1, 2)):
            return "a sample changes the gradients of others in its pass"
        return ""

    def samples_per_pass(self, device: torch.device | str) -> int:
        """How many samples a pass may take: as many as fit into its workspace.

        A multiple of GRAIN, unless each goes by itself: a gradient must not depend on the place in
        a pass, or one sample more would change those of others.
        """
        fit = self.fit(device)
        return fit if self.way == "looped" else max(1, fit // GRAIN) * GRAIN

    def fit(self, device: torch.device | str) -> int:
        """How many samples fit into the workspace of a pass, at least one."""
        return max(1, min(pass_numbers(torch.device(device)), 1 << 30) // self.workspace)

    def ignores_places(self, theta: Tensor, sample: Part, count: int | None = None) -> bool:
        """Whether a sample [1, ...] has the same gradient, to the last bit, at all places.

        Some functions of torch round a number by those next to it: GELU on a CPU, for one. The
        gradient of a sample would then depend on others. On a GPU every number has its own thread.
        """
        count = count or min(TRIED, self.samples_per_pass(theta.device))
        blocks = self.gradients(theta, tuple(array.repeat_interleave(count, 0) for array in sample))
        return all(_same(x, x[:1].expand_as(x)) for x in _tensors(blocks))

    def ignores_others(self, theta: Tensor, samples: Part) -> bool:
        """Whether a sample changes the gradients of no others: no bit of them on a CPU.

        Args:
            theta: A model [P].
            samples: Those of one pass and another one, [B + 1, ...], which then takes the place of
                a sample in the middle.
        """
        count = len(samples[0]) - 1
        index = torch.arange(count, device=samples[0].device)
        place = count // 2 | 1  # an odd one: made-up whole numbers repeat with every other sample
        changed = torch.where(index == place, count, index)
        first, second = (
            self.gradients(theta, tuple(array[which] for array in samples))
            for which in (index, changed)
        )
        others = slice(0, place), slice(place + 1, count)
        pairs = list(zip(_tensors(first), _tensors(second), strict=True))
        return all(_same(x[rows], y[rows]) for rows in others for x, y in pairs)


def _same(x: Tensor, y: Tensor) -> bool:
    """Whether numbers are the same to the last bit, or on a GPU but for rounding."""
    if not x.is_cuda or not x.numel():
        # Made-up samples may overflow; such gradients count as zero.
        return torch.equal(x, y) or bool(((x == y) | (x.isnan() & y.isnan())).all())
    return bool((x - y).abs().max() <= LARGEST_ERROR[torch.float32] * x.abs().max())


def _tensors(blocks: Sequence[Products]) -> list[Tensor]:
    """All numbers of gradients, each with a dimension of samples first."""
    return [x for block in blocks for x in vars(block).values() if isinstance(x, Tensor)]


def _numbers(task: Objective, theta: Tensor) -> int:
    """How many numbers a sample more takes in a pass by the tape, roughly."""
    assert isinstance(task.parts, Parts)
    arrays = tuple(array[:1].to(theta.device) for array in task.parts.arrays)
    if task.draws.keys:
        arrays = (*arrays, torch.zeros(1, dtype=torch.int64, device=theta.device))
    samples = Trial(task.loss, theta, arrays).samples(4, 2)
    few = _numbers_of(task.loss, theta, tuple(array[:2] for array in samples))
    return max(1, (_numbers_of(task.loss, theta, samples) - few) // 2)


def _numbers_of(loss: Loss, theta: Tensor, arrays: Part) -> int:
    """What a pass saves for its backward pass, and the gradients, each of them twice."""
    storages: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        blocks = taped(loss, theta, arrays)
    return 2 * (sum(storages.values()) // theta.itemsize + sum(x.numel() for x in _tensors(blocks)))


def agree(
    found: Tensor, expected: Tensor, sizes: Sequence[int], tolerance: float, rounding: float
) -> bool:
    """Whether two gradients [..., P] agree in each of their parameters.

    Args:
        found: One of them.
        expected: The other one.
        sizes: The numbers of each parameter.
        tolerance: The largest error, as a share of the gradient by the parameter.
        rounding: What is added to it, as a share of the whole gradient.
    """
    errors, norms = (
        torch.stack([torch.linalg.vector_norm(piece) for piece in torch.split(x, list(sizes), -1)])
        for x in (found - expected, expected)
    )
    # Not "none is larger": NaN would be allowed.
    return bool((errors <= tolerance * norms + rounding * expected.norm()).all())


def perturbed(theta: Tensor) -> Tensor:
    """Models with some noise, the same every time."""
    generator = torch.Generator().manual_seed(0)
    shift = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
    return theta + PERTURBATION * shift.to(theta.device)


def check_separable(trial: Trial) -> None:
    """Raise Misuse if samples influence each other. Compares some together and alone."""
    loss, theta, count = trial.loss, trial.model, 2
    if isinstance(loss, ModuleLoss):
        count = _check_module(loss, theta, trial.samples(2)[: trial.inputs])
    some = trial.samples(count)
    alone = [tuple(array[k : k + 1] for array in some) for k in range(count)]
    try:
        together = _gradient(loss, theta, some)
        each = torch.stack([_gradient(loss, theta, sample) for sample in alone])
    except Exception as error:  # users' losses raise many kinds
        raise Misuse(
            f"The loss cannot be tried on made-up samples ({first_line(error)}), and trying it on "
            "real ones would tell something about them.",
            "Give a loss that takes any samples of this shape and type.",
        ) from error
    total = each.sum(0)
    if not (_close(together, total, each) or _close(together, total / count, each)):
        raise Misuse(
            "The gradient of some samples is neither the mean nor the sum of their own gradients, "
            "so a sample cannot be clipped by itself.",
            "Give a loss that is the mean over the samples of a batch; class weights make it "
            "something else.",
        )


def _check_module(loss: ModuleLoss, theta: Tensor, pair: Part) -> int:
    """How many made-up samples have all classes; raises Misuse if outputs depend on others."""
    try:
        with torch.no_grad():
            together = loss.flat(theta, *pair)
            alone = ([array[k : k + 1] for array in pair] for k in range(2))
            apart = torch.cat([loss.flat(theta, *sample) for sample in alone])
        close = _close(together, apart, apart)
        problem = "" if close else "its output depends on the rest of the batch"
    except Exception as error:  # BatchNorm refuses a batch of one sample
        problem = first_line(error)
    if problem:
        raise Misuse(
            f"The model cannot treat a sample by itself ({problem}), so a sample's gradient "
            "cannot be clipped.",
            "Use layers without statistics of the batch: nn.GroupNorm instead of BatchNorm.",
        )
    # One of these dimensions counts the classes.
    return min(max(2, min(together.shape[1:], default=2)), MOST_CLASSES)


def made_up(arrays: Part, count: int, inputs: int, classes: int | None = None) -> Part:
    """Samples of the same shape and type: normal numbers, or 0, 1, … for whole numbers.

    Whole numbers that are targets are below `classes`, by default `count`, and those of the
    `inputs` first arrays below 2.
    """
    generator = torch.Generator().manual_seed(1)
    made = []
    for place, array in enumerate(arrays):
        shape = (count, *array.shape[1:])
        if array.is_floating_point():
            sample = torch.randn(shape, generator=generator, dtype=array.dtype)
        else:
            below = 2 if place < inputs else classes or count
            number = torch.arange(count).view(-1, *(1 for _ in shape[1:])).expand(shape)
            if place < inputs:
                # Not the same everywhere in a sample: a mask would hide all of it.
                number = number + torch.arange(math.prod(shape[1:])).view(shape[1:])
            sample = number.remainder(below).to(array.dtype)
        made.append(sample.to(array.device))
    return tuple(made)


def _gradient(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    point = theta.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(point, *arrays), point)[0]


def _close(x: Tensor, y: Tensor, scale: Tensor) -> bool:
    """Whether two tensors agree to half of the digits of the largest number of `scale`.

    NaN agrees with NaN only: alone, a sample may have no variance.
    """
    tolerance = torch.finfo(x.dtype).eps ** 0.5
    largest = scale.nan_to_num(0, 0, 0).abs().max()
    different = (x - y).abs() > tolerance * largest
    return not bool((different | (x.isnan() != y.isnan())).any())
