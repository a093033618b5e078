"""Masks: noise that both ends of an edge derive from their key, or that is sent as published."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from tacit.core.checks import check_choice
from tacit.core.here import Here
from tacit.core.noise import Noise
from tacit.core.rows import EdgeRows

Masks = Literal["derived", "sent"]


def edge_masks(tag: str, law: Noise, masks: Masks, here: Here) -> tuple[EdgeRows, EdgeRows]:
    """Masks of the out-edges [e, P] and of the in-edges [f, P]; the same numbers either way."""
    sent, received = here.edge_noise(tag, law)
    if masks == "derived":
        return sent, received
    rows = sent.tensor()
    return rows, here.net.send(tag, rows, private=True)


def edge_mask_tensors(tag: str, law: Noise, masks: Masks, here: Here) -> tuple[Tensor, Tensor]:
    """`edge_masks` as tensors, for algorithms that keep them."""
    sent, received = (
        rows if isinstance(rows, Tensor) else rows.tensor()
        for rows in edge_masks(tag, law, masks, here)
    )
    return sent, received


def check_masks(masks: str) -> None:
    check_choice("masks", masks, {"derived": "no bytes", "sent": "as published"})
