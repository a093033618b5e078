"""The rows that an inversion searches: R guesses for each of V victims, and their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.auditing.attacks.closed_forms import recover_labels
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.observation import Observation
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key, tiles, uniform, words
from tacit.tasks.flat import Loss, ModuleLoss

# Labels, and what they rest on.
KnownLabels = tuple[Tensor, str]
Labels = Tensor | Sequence[KnownLabels] | Literal["optimise"] | None


@dataclass(frozen=True)
class GuessLayout:
    """A row: inputs [T, batch, *shape], then targets if they are searched (`soft`).

    Targets are logits [T, batch, classes], or standardised numbers [T, batch, *numbers.shape].
    """

    batches: int  # T
    spec: DataSpec
    soft: bool

    @property
    def pixels(self) -> int:
        """How many numbers of a row are inputs."""
        return self.batches * self.spec.batch * math.prod(self.spec.shape)

    @property
    def width(self) -> int:
        numbers = self.spec.numbers
        each = self.spec.classes if numbers is None else math.prod(numbers.shape)
        return self.pixels + self.soft * self.batches * self.spec.batch * each

    def inputs(self, rows: Tensor) -> Tensor:
        """The inputs [..., T, batch, *shape] in rows [..., n]."""
        lead = *rows.shape[:-1], self.batches, self.spec.batch
        return rows[..., : self.pixels].reshape(*lead, *self.spec.shape)

    def targets(self, rows: Tensor) -> Tensor:
        """The distributions [..., T, batch, classes] or numbers in rows [..., n]."""
        found, lead = rows[..., self.pixels :], (*rows.shape[:-1], self.batches, self.spec.batch)
        numbers = self.spec.numbers
        if numbers is None:
            return found.reshape(*lead, self.spec.classes).softmax(-1)
        return numbers.mean + numbers.deviation * found.reshape(*lead, *numbers.shape)

    def clamp(self, rows: Tensor) -> Tensor:
        """Rows [..., n] with inputs clamped to the box."""
        inputs, targets = rows[..., : self.pixels], rows[..., self.pixels :]
        return torch.cat((self.spec.clamp(inputs), targets), -1)


def choose_labels(
    labels: Labels,
    loss: Loss,
    observation: Observation,
    layout: GuessLayout,
    restarts: int,
    seed: int,
) -> tuple[Tensor | None, list[str]]:
    """The labels of the guesses [V, L·R, T, batch, ...]; None: soft labels.

    And what each of L alternatives rests on: the first R guesses are with the first, and so on.

    Args:
        labels: Known labels, or how to find them: see `invert`.
        loss: The loss of a batch at a model.
        observation: What the adversary observed.
        layout: What the numbers of a row stand for.
        restarts: Guesses per victim and alternative, R.
        seed: Keys random choices.
    """
    if isinstance(labels, Tensor):
        labels = [(labels, "labels known")]
    if isinstance(labels, Sequence) and not isinstance(labels, str):
        each = torch.stack([_known(given, observation, layout) for given, _ in labels], 1)
        return each.repeat_interleave(restarts, 1), [source for _, source in labels]
    if labels not in (None, "optimise"):
        raise Misuse(f"labels is {labels!r}.", 'Give a tensor, "optimise" or None.')
    if layout.spec.numbers is not None:
        return None, ["targets optimised along with the inputs, as numbers"]
    optimised = "labels optimised along with the inputs, as distributions"
    if labels == "optimise" or not bool((observation.coefficients > 0).all()):
        return None, [optimised]
    found, reason = _recovered(loss, observation, layout, restarts, seed)
    if found is None:
        return None, [f"{optimised} ({reason})"]
    if int(found.max()) >= layout.spec.classes:
        raise Misuse(
            f"The last layer has class {int(found.max())}, but classes is {layout.spec.classes}.",
            "Give the number of the model's outputs.",
        )
    return found, [reason]


def draw_starts(layout: GuessLayout, values: Tensor, guesses: int, seed: int) -> Tensor:
    """Random first rows [V·R, n] for observed values [V, ...], keyed by victim and guess.

    Inputs are uniform in the box, or normal if there is none; what targets are made of is normal.
    """
    device, box = values.device, layout.spec.box
    victim = torch.arange(len(values), device=device).repeat_interleave(guesses)
    guess = torch.arange(guesses, device=device).repeat(len(values))
    out = values.new_empty(len(victim), layout.width)
    for rows, columns in tiles(len(out), out.shape[1], out.device):
        drawn = words(derive_key(seed, "inversion", "start"), 0, victim[rows], guess[rows], columns)
        cells = uniform(drawn)
        start = torch.special.ndtri(cells)
        if box is not None:
            pixel = torch.arange(columns.start, columns.stop, device=device) < layout.pixels
            start = torch.where(pixel, box[0] + (box[1] - box[0]) * cells, start)
        out[rows, columns.start : columns.stop] = start.to(out.dtype)
    return out


def _known(labels: Tensor, observation: Observation, layout: GuessLayout) -> Tensor:
    """Given labels as [V, T, batch, ...]."""
    victims, batches, batch = len(observation.values), layout.batches, layout.spec.batch
    classes = layout.spec.classes
    lead = (victims, batch) if observation.same_data else (victims, batches, batch)
    if labels.shape[: len(lead)] != lead or labels.ndim > len(lead) + 1:
        raise Misuse(
            f"The labels have shape {tuple(labels.shape)}.",
            f"They are {list(lead)}, or distributions {[*lead, classes]}.",
        )
    if not labels.is_floating_point() and not bool(((labels >= 0) & (labels < classes)).all()):
        raise Misuse(
            f"The labels are from {int(labels.min())} to {int(labels.max())}.",
            f"With {classes} classes they are from 0 to {classes - 1}.",
        )
    dtype = observation.values.dtype if labels.is_floating_point() else torch.int64
    placed = labels.to(observation.values.device, dtype)
    return placed.reshape(victims, batches, batch, *labels.shape[len(lead) :])


def _recovered(
    loss: Loss,
    observation: Observation,
    layout: GuessLayout,
    restarts: int,
    seed: int,
) -> tuple[Tensor | None, str]:
    """Labels [V, R, T, batch] from the last layer; restarts assign a sum's labels differently."""
    if not observation.is_single:
        return None, "labels not recovered: that needs one value, not several"
    if not isinstance(loss, ModuleLoss):
        return None, "labels not recovered: the loss is not known to be a module's"
    flat = loss.flat.to(observation.values.device)
    found, reason = recover_labels(flat, observation, layout.spec)
    if found is None:
        return None, reason
    victims, samples = len(observation.values), layout.batches * layout.spec.batch
    labels = found.reshape(victims, 1, samples).expand(-1, restarts, -1).flatten(0, 1)
    if layout.batches > 1:
        row = torch.arange(len(labels), device=labels.device)
        key = derive_key(seed, "inversion", "deal")
        order = words(key, 0, row, torch.zeros_like(row), range(samples)).argsort(1)
        labels = labels.gather(1, order)
        reason += "; assigned to the clients at random, differently in every restart"
    return labels.reshape(victims, restarts, layout.batches, layout.spec.batch), reason
