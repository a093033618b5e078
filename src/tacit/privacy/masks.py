"""Noise that the two ends of an edge share: derived at both from their common key, or sent in private as published."""

from __future__ import annotations

from typing import Literal

from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.core.noise import Noise
from tacit.core.rows import Rows

Masks = Literal["derived", "sent"]


def shared(tag: str, law: Noise, masks: Masks, here: Here) -> tuple[Rows, Rows]:
    """Noise of each out-edge [e, P] and of each in-edge [f, P]; the same numbers either way."""
    told, heard = here.edge_noise(tag, law)
    if masks == "derived":
        return told, heard
    sent = told.tensor()
    return sent, here.net.send(tag, sent, private=True)


def check_masks(masks: str) -> None:
    """Refuse another way to share noise."""
    if masks not in ("derived", "sent"):
        raise Misuse(
            f"masks is {masks!r}.", 'Choose "derived" (no bytes) or "sent" (as published).'
        )
