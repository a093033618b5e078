"""The rows an inversion searches: R guesses for each of V victims, and the labels they come with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.auditing.attacks.labels import recover_labels
from tacit.auditing.attacks.observation import JointObservation, Observation
from tacit.core.errors import Misuse, unknown_name
from tacit.core.randomness import key_of, tiles, words
from tacit.tasks.flat import Loss, ModuleLoss

Labels = Tensor | str | None
Box = tuple[float, float] | None
WAYS = ("recover", "optimise", "enumerate")


@dataclass(frozen=True)
class GuessLayout:
    """How a row is read: inputs [T, batch, *shape], and after them logits [T, batch, classes] if searched too."""

    batches: int  # T
    batch: int
    shape: tuple[int, ...]
    classes: int
    soft: bool

    @property
    def pixels(self) -> int:
        """How many numbers of a row are inputs."""
        return self.batches * self.batch * math.prod(self.shape)

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return self.pixels + self.soft * self.batches * self.batch * self.classes

    def inputs(self, rows: Tensor) -> Tensor:
        """Of rows [..., n]: [..., T, batch, *shape]."""
        return rows[..., : self.pixels].reshape(
            *rows.shape[:-1], self.batches, self.batch, *self.shape
        )

    def soft_labels(self, rows: Tensor) -> Tensor:
        """Of rows [..., n]: distributions [..., T, batch, classes]."""
        logits = rows[..., self.pixels :].reshape(
            *rows.shape[:-1], self.batches, self.batch, self.classes
        )
        return logits.softmax(-1)

    def into_box(self, rows: Tensor, box: Box) -> Tensor:
        """Rows [..., n] with inputs moved to the border of the box where they are outside."""
        if box is None:
            return rows
        return torch.cat((rows[..., : self.pixels].clamp(*box), rows[..., self.pixels :]), -1)


@dataclass(frozen=True, eq=False)
class Settled:
    """Labels [V, R, T, batch, ...] of R guesses per victim, or None if they are searched; and the reason."""

    labels: Tensor | None
    guesses: int
    assumption: str


def settle_labels(
    labels: Labels,
    loss: Loss,
    observation: Observation | JointObservation,
    *,
    shape: Sequence[int],
    batch: int,
    classes: int,
    restarts: int,
    seed: int,
    box: Box,
) -> Settled:
    """What the guesses are labelled with, by what is known: see `invert`."""
    victims, batches = len(observation.values), observation.batches
    if isinstance(labels, Tensor):
        known = _known(labels, observation, batch, classes)
        return Settled(
            known[:, None].expand(-1, restarts, *known.shape[1:]), restarts, "labels known"
        )
    if labels is not None and labels not in WAYS:
        raise unknown_name(f"labels is {labels!r}.", labels, WAYS, also=", a tensor, or None")
    if labels == "enumerate":
        if batch * batches > 1:
            raise Misuse(
                f'labels="enumerate" with {batch * batches} samples behind each value.',
                'It is for one sample; use "recover" or "optimise".',
            )
        every = torch.arange(classes, device=observation.values.device).repeat(restarts)
        every = every[None, :, None, None].expand(victims, -1, 1, 1)
        return Settled(
            every, restarts * classes, f"labels enumerated: {restarts} restarts for each class"
        )
    reason = ""
    difference = not bool(
        (observation.coefficients > 0).all()
    )  # those tell labels by a rule of thumb only
    if labels == "recover" or (labels is None and not difference):
        found, reason = _recovered(loss, observation, shape, batch, restarts, seed, box)
        if found is not None and int(found.max()) >= classes:
            raise Misuse(
                f"The last layer tells of class {int(found.max())}, but classes is {classes}.",
                "Give the number of the model's outputs.",
            )
        if found is not None:
            return Settled(found, restarts, reason)
        if labels == "recover":
            raise Misuse(f"{reason[0].upper()}{reason[1:]}.", 'Give them, or use "optimise".')
    along = "labels optimised along with the inputs, as distributions"
    return Settled(None, restarts, f"{along} ({reason})" if reason else along)


def draw_starts(
    layout: GuessLayout, victims: int, guesses: int, box: Box, seed: int, like: Tensor
) -> Tensor:
    """Random rows [V·R, n], keyed by victim and guess: inputs uniform in the box or normal, logits normal."""
    victim = torch.arange(victims, device=like.device).repeat_interleave(guesses)
    guess = torch.arange(guesses, device=like.device).repeat(victims)
    out = like.new_empty(len(victim), layout.width)
    for rows, columns in tiles(len(out), out.shape[1], out.device):
        drawn = words(key_of(seed, "inversion", "start"), 0, victim[rows], guess[rows], columns)
        uniform = drawn.to(torch.float64).add_(0.5).mul_(2.0**-32)
        pixel = torch.arange(columns.start, columns.stop, device=like.device) < layout.pixels
        boxed = pixel if box is not None else torch.zeros_like(pixel)
        low, high = box if box is not None else (0.0, 1.0)
        start = torch.where(boxed, low + (high - low) * uniform, torch.special.ndtri(uniform))
        out[rows, columns.start : columns.stop] = start.to(out.dtype)
    return out


def _known(
    labels: Tensor, observation: Observation | JointObservation, batch: int, classes: int
) -> Tensor:
    """Given labels as [V, T, batch, ...]."""
    victims, batches = len(observation.values), observation.batches
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
    placed = labels.to(observation.values.device)
    placed = placed.to(observation.values.dtype) if placed.is_floating_point() else placed.long()
    return placed.reshape(victims, batches, batch, *labels.shape[len(lead) :])


def _recovered(
    loss: Loss,
    observation: Observation | JointObservation,
    shape: Sequence[int],
    batch: int,
    restarts: int,
    seed: int,
    box: Box,
) -> tuple[Tensor | None, str]:
    """Labels [V, R, T, batch] read off the last layer; dealt to a sum's clients at random in every restart."""
    if isinstance(observation, JointObservation):
        return None, "labels not recovered: they are read off one value, not off several"
    if not isinstance(loss, ModuleLoss):
        return None, "labels not recovered: the loss is not known to be a module's"
    flat = loss.flat.to(observation.values.device)
    found = recover_labels(flat, observation, shape=shape, batch=batch, box=box)
    if found.labels is None:
        return None, found.assumption
    victims, batches = len(observation.values), observation.batches
    labels = (
        found.labels.reshape(victims, 1, batches * batch).expand(-1, restarts, -1).flatten(0, 1)
    )
    reason = found.assumption
    if batches > 1:
        row = torch.arange(len(labels), device=labels.device)
        key = key_of(seed, "inversion", "deal")
        order = words(key, 0, row, torch.zeros_like(row), range(batches * batch)).argsort(1)
        labels = labels.gather(1, order)
        reason += "; dealt to the clients at random, anew in every restart"
    return labels.reshape(victims, restarts, batches, batch), reason
