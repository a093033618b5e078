"""Gradients of k clients as new tensors."""

import torch

from tacit.tasks.client_gradients import write_looped, write_stacked


def stacked(loss, theta, arrays):
    out = torch.full_like(theta, torch.nan)
    write_stacked(loss, theta, arrays, out)
    return out


def looped(loss, theta, arrays):
    out = torch.full_like(theta, torch.nan)
    write_looped(loss, theta, arrays, out)
    return out
