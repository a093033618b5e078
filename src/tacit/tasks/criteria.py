"""Losses that fit a model's output: classes, tokens of sequences, one logit, or a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from tacit.core.errors import Misuse, unknown_name

IGNORED = -100  # torch's default of ignore_index

Criterion = Callable[..., Tensor]


LOSSES: dict[str, Criterion] = {
    "cross-entropy": functional.cross_entropy,
    "binary-cross-entropy": functional.binary_cross_entropy_with_logits,
    "mse": functional.mse_loss,
    "l1": functional.l1_loss,
    "huber": functional.huber_loss,
}


def find_loss(loss: str | Criterion) -> Criterion:
    """The loss of this name; a function is returned as it is."""
    if not isinstance(loss, str):
        return loss
    if loss not in LOSSES:
        raise unknown_name(f"There is no loss {loss!r}.", loss, LOSSES)
    return LOSSES[loss]


@dataclass(frozen=True)
class TokenLoss:
    """Cross-entropy of each token: outputs [B, T, V] and classes [B, T]."""

    criterion: Criterion

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        logits, classes = output.flatten(0, -2), targets.flatten()
        if self.criterion is not functional.cross_entropy:
            return self.criterion(logits, classes)
        total = functional.cross_entropy(logits, classes, reduction="sum")
        # At least 1: a batch in which all are ignored has loss 0, not 0/0.
        return total / (classes != IGNORED).sum().clamp(min=1)


@dataclass(frozen=True)
class BinaryLoss:
    """Cross-entropy of two classes by one logit: outputs [B] or [B, 1] and classes 0 and 1."""

    criterion: Criterion

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        return self.criterion(output.flatten(), targets.flatten().to(output.dtype))


@dataclass(frozen=True)
class StandardizedLoss:
    """A loss of standardised numbers: outputs [B] or [B, 1] and targets [B] in their own unit."""

    criterion: Criterion
    mean: float
    std: float

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        pair = (output.flatten(), targets.flatten().to(output.dtype))
        return self.criterion(*((x - self.mean) / self.std for x in pair))


def logits_of(output: Any) -> Tensor:
    """The output of a model as a tensor: itself, or the logits in a dictionary, object or tuple.

    Raises:
        Misuse: If there is no such tensor.
    """
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, Mapping) else None
    if logits is None:
        logits = getattr(output, "logits", None)
    if logits is None and isinstance(output, tuple | list) and output:
        logits = output[0]
    if isinstance(logits, Tensor):
        return logits
    keys = f" with {', '.join(map(repr, output))}" if isinstance(output, Mapping) else ""
    raise Misuse(
        f"The model returns a {type(output).__name__}{keys}, in which there are no logits.",
        'Return a tensor, a dictionary with "logits", or a tuple that begins with them.',
    )


def check_loss(criterion: Criterion) -> None:
    """Raise Misuse if a loss is not callable, or has trainable parameters of its own."""
    given: Any = criterion
    if not callable(given):
        raise Misuse(f"loss is {given!r}.", "Give a function of the output and the targets.")
    trained = dict(given.named_parameters()) if isinstance(given, nn.Module) else {}
    names = [name for name, parameter in trained.items() if parameter.requires_grad]
    if names:
        raise Misuse(
            f"The loss has trainable parameters, such as {names[0]!r}, but clients train and "
            "exchange those of the model only.",
            "Make them part of the model, which may return what the loss needs of them, or freeze "
            "them: loss.requires_grad_(False).",
        )


def fitting_criterion(criterion: Criterion, output: Tensor, targets: Tensor) -> Criterion:
    """The loss for outputs and targets of these shapes: the given one unless it does not fit them.

    Cross-entropy of sequences is that of their tokens, and of one logit that of two classes.

    Raises:
        Misuse: If the meaning of the output is not clear.
    """
    plain = criterion is functional.cross_entropy
    binary = criterion is functional.binary_cross_entropy_with_logits
    if binary or isinstance(criterion, nn.BCEWithLogitsLoss):
        return BinaryLoss(criterion) if _is_one_logit(output, targets) else criterion
    if not (plain or isinstance(criterion, nn.CrossEntropyLoss)):
        return criterion
    if _is_one_logit(output, targets):
        return BinaryLoss(functional.binary_cross_entropy_with_logits) if plain else criterion
    if output.ndim != 3 or output.shape[:2] != targets.shape:
        return criterion
    if output.shape[1] == output.shape[2]:
        raise Misuse(
            f"An output of shape {tuple(output.shape)} may be [samples, tokens, classes] or "
            "[samples, classes, tokens].",
            "Give a `loss` of your own, e.g. lambda output, y: "
            "cross_entropy(output.flatten(0, 1), y.flatten()).",
        )
    return TokenLoss(criterion)


def check_targets(criterion: Criterion, output: Tensor, targets: Tensor) -> None:
    """Raise Misuse if targets are not the classes that the output has.

    Args:
        criterion: The loss, as `fitting_criterion` returns it.
        output: Of a few samples.
        targets: Of all samples.
    """
    if targets.is_complex() and isinstance(criterion, BinaryLoss | StandardizedLoss):
        raise Misuse("Targets are complex numbers.", "Give real ones.")
    if isinstance(criterion, BinaryLoss):
        # Numbers between are probabilities.
        if bool(((targets < 0) | (targets > 1)).any()):
            raise Misuse(
                f"The model has one logit, and targets are {_range(targets)}.",
                "Use 0 and 1 as targets, or a model with one output per class.",
            )
        return
    if isinstance(criterion, StandardizedLoss):
        if output.numel() != len(output):
            raise Misuse(
                f"The target is one number, and the model's output for {len(output)} samples has "
                f"shape {tuple(output.shape)}.",
                f"Give the model one output: ({len(output)}, 1).",
            )
        return
    tokens = isinstance(criterion, TokenLoss)
    inner = _inner(criterion)
    plain = inner is functional.cross_entropy or isinstance(inner, nn.CrossEntropyLoss)
    whole = not (targets.is_floating_point() or targets.is_complex())
    if not (plain and whole) or output.ndim < 2:
        return
    classes = output.shape[-1 if tokens else 1]
    used = targets[targets != ignored_class(criterion)]
    if len(used) and not (int(used.min()) >= 0 and int(used.max()) < classes):
        raise Misuse(
            f"The model has {classes} outputs, and classes are {_range(used)}.",
            f"Number the classes from 0 to {classes - 1}, or give the model more outputs; "
            f"{IGNORED} marks what is ignored.",
        )


def ignored_class(criterion: Criterion) -> int:
    """The class that a loss ignores."""
    ignored = getattr(_inner(criterion), "ignore_index", IGNORED)
    return ignored if isinstance(ignored, int) else IGNORED


def _inner(criterion: Criterion) -> Any:
    """The loss that a criterion applies."""
    inner: Any = criterion
    if isinstance(criterion, TokenLoss | BinaryLoss | StandardizedLoss):
        inner = criterion.criterion
    # The loss itself, if each thread has a copy of it.
    return getattr(inner, "original", inner)


def _is_one_logit(output: Tensor, targets: Tensor) -> bool:
    shape = tuple(output.shape)
    return len(shape) in (1, 2) and shape[1:] in ((), (1,)) and targets.numel() == output.numel()


def _range(targets: Tensor) -> str:
    return f"from {targets.min().item():g} to {targets.max().item():g}"
