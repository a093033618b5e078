"""Ranks, and the area under the ROC curve that follows from them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Scores that are sorted at a time.
SORTED_AT_ONCE = 1 << 24


def auc_of_logits(logits: Tensor, actual: Tensor) -> Tensor:
    """AUC of one model; see `auc`. Logits are [n] or [n, 2] for two classes, or [n, C]."""
    logits = logits.double()
    if logits.ndim == 1:
        return auc(logits[:, None], actual, (1,))
    if logits.shape[1] == 2:
        # Probabilities of confident predictions all round to 1; these do not.
        return auc(logits.diff(dim=1), actual, (1,))
    return auc(functional.softmax(logits, 1), actual, range(logits.shape[1]))


def auc(scores: Tensor, actual: Tensor, positives: tuple[int, ...] | range) -> Tensor:
    """The mean of the areas of several classes, each against the rest.

        AUC = P(s⁺ > s⁻) + ½ P(s⁺ = s⁻)

    Classes that all or none of the samples have are left out; NaN if no class remains, or if a
    score is NaN.

    Args:
        scores: One column per positive class, [n, c].
        actual: The classes of the samples, [n].
        positives: The classes that the columns are of.
    """
    step = max(1, SORTED_AT_ONCE // max(1, len(scores)))
    areas = torch.cat(
        [
            _areas(scores[:, low : low + step], actual, positives[low : low + step])
            for low in range(0, len(positives), step)
        ]
    )
    # Not nanmean: a score that is NaN makes all of it NaN.
    defined = ~areas.isnan()
    mean = torch.where(defined, areas, 0).sum() / defined.sum()
    return torch.where(scores.isnan().any(), torch.nan, mean)


def _areas(scores: Tensor, actual: Tensor, positives: tuple[int, ...] | range) -> Tensor:
    """The area of each column; NaN for a class that all or none have."""
    positive = actual[:, None] == torch.tensor(list(positives), device=scores.device)
    number = positive.sum(0)
    pairs = number * (len(scores) - number)
    wins = torch.where(positive, doubled_ranks(scores), 0).sum(0) - number * (number + 1)
    return torch.where(pairs > 0, wins.double() / (2 * pairs), torch.nan)


def doubled_ranks(scores: Tensor) -> Tensor:
    """Twice the rank of each score in its column [n, c], from 1 on; equal scores share the mean.

    Doubled, ranks are whole numbers, whose sums are exact.
    """
    columns = scores.T.contiguous()
    ordered = columns.sort().values
    # Of the scores of its column, how many are smaller, and how many are at most as large.
    below, up_to = (torch.searchsorted(ordered, columns, right=right) for right in (False, True))
    return (below + up_to + 1).T
