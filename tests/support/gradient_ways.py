"""Gradients of k clients as new tensors."""

import torch

from tacit.tasks.batching import write_batched, write_looped


def batched(loss, theta, arrays):
    out = torch.full_like(theta, torch.nan)
    write_batched(loss, theta, arrays, out)
    return out


def looped(loss, theta, arrays):
    out = torch.full_like(theta, torch.nan)
    write_looped(loss, theta, arrays, out)
    return out
