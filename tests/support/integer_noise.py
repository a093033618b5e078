"""Integer noise by itself, which the library only ever adds to integers."""

import torch


def integers(randomness, tag, law, tick, source, width):
    """The noise int32 [len(source), width] that clients add to zeros."""
    out = torch.zeros(len(source), width, dtype=torch.int32, device=source.device)
    randomness.add_integers(tag, law, tick, source, out)
    return out
