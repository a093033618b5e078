"""Guesses against the truth: MSE and PSNR of any data, SSIM of images, and the best assignment.

    MSE  = mean over all numbers of a sample of (guess − truth)²
    PSNR = 10 log₁₀(R²/MSE) in dB, R the range of the data; ∞ for an exact copy
    SSIM = mean over windows of (2μₓμᵧ + C₁)(2σₓᵧ + C₂) / ((μₓ² + μᵧ² + C₁)(σₓ² + σᵧ² + C₂)),
           C₁ = (0.01 R)², C₂ = (0.03 R)²   (Wang, Bovik, Sheikh, Simoncelli 2004)

All are computed in float64. A batch has no order, so the scorer uses the best assignment,

    π = argmin over permutations of Σⱼ MSE(guess[π(j)], truth[j])

by the Hungarian method (Kuhn 1955). The attacker does not see π.
"""

from __future__ import annotations

from typing import Literal

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

from tacit.core.checks import check_number
from tacit.core.errors import Misuse

Window = Literal["gaussian", "uniform"]
SIDES: dict[Window, int] = {"gaussian": 11, "uniform": 7}
SIGMA = 1.5


def mse(guess: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error [N] of samples [N, *shape]."""
    guess, truth = _pair(guess, truth)
    return (guess - truth).square().flatten(1).mean(1)


def psnr(guess: Tensor, truth: Tensor, data_range: float) -> Tensor:
    """Peak signal-to-noise ratio [N] in dB of samples [N, *shape]; infinite if equal."""
    check_range(data_range)
    return 10 * torch.log10(data_range**2 / mse(guess, truth))


def ssim(guess: Tensor, truth: Tensor, data_range: float, window: Window = "gaussian") -> Tensor:
    """Structural similarity [N] of images [N, C, H, W], the mean over channels and whole windows.

    "gaussian" is the paper's window: 11×11, σ = 1.5, weighted moments. "uniform" is 7×7 with
    unbiased (co)variances, for smaller images and for comparison with software that has it as
    default. Windows that cross the edge do not count.
    """
    check_range(data_range)
    guess, truth = _pair(guess, truth)
    if window not in SIDES:
        raise Misuse(f"window is {window!r}.", f"Choose one of: {', '.join(SIDES)}.")
    side = SIDES[window]
    if guess.ndim != 4 or min(guess.shape[2:]) < side:
        raise Misuse(
            f"SSIM with the {window} window got samples of shape {tuple(guess.shape[1:])}.",
            f"It needs images [C, H, W] of at least {side}×{side}; for other data use mse, psnr.",
        )
    taps = _taps(window).to(guess.device)

    def local(x: Tensor) -> Tensor:
        """The weighted mean of each window, in each channel."""
        rows = functional.conv2d(x.flatten(0, 1)[:, None], taps[None, None, :, None])
        return functional.conv2d(rows, taps[None, None, None, :])

    bias = side**2 / (side**2 - 1) if window == "uniform" else 1.0
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    mx, my = local(guess), local(truth)
    vx, vy = bias * (local(guess**2) - mx**2), bias * (local(truth**2) - my**2)
    vxy = bias * (local(guess * truth) - mx * my)
    similarity = (2 * mx * my + c1) * (2 * vxy + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    return similarity.reshape(len(guess), -1).mean(1)


def window_for(shape: torch.Size | tuple[int, ...]) -> Window | None:
    """The largest window for samples of this shape; None if they are not images, or too small."""
    if len(shape) != 3:
        return None
    return next((window for window, side in SIDES.items() if min(shape[1:]) >= side), None)


def check_range(data_range: float) -> None:
    check_number(
        "data_range", data_range, above=0, hint="largest minus smallest value, 1.0 for [0, 1]"
    )


def pairwise_mse(guess: Tensor, truth: Tensor) -> Tensor:
    """MSE [V, b, b] of every guess (rows) and every true sample (columns), each [V, b, *shape]."""
    check_batches(guess, truth)
    rows, columns = (x.detach().double().flatten(2) for x in (guess, truth.to(guess.device)))
    # Not ‖g‖² + ‖t‖² − 2⟨g, t⟩, which is mostly rounding if a guess is nearly exact.
    distance = torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square() / rows.shape[2]


def match(guess: Tensor, truth: Tensor) -> Tensor:
    """π [V, b] for batches [V, b, *shape]: guess π[v, j] belongs to true sample j of victim v."""
    # True samples are the rows, so the assigned columns are π.
    cost = pairwise_mse(guess, truth).mT.cpu().numpy()
    order = [torch.from_numpy(linear_sum_assignment(victim)[1]) for victim in cost]
    return torch.stack(order).to(guess.device)


def reorder(values: Tensor, order: Tensor) -> Tensor:
    """The values [V, b, ...] of each victim in the order π [V, b]."""
    victims = torch.arange(len(order), device=order.device)[:, None]
    return values[victims, order]


def check_batches(guess: Tensor, truth: Tensor) -> None:
    """Require finite guesses and truths of one shape, one batch per victim."""
    if guess.shape != truth.shape or guess.ndim < 3 or 0 in guess.shape:
        raise Misuse(
            f"The guess has shape {tuple(guess.shape)}, the truth {tuple(truth.shape)}.",
            "Give both as [victims, batch, *shape], nothing empty.",
        )
    for name, x in (("guess", guess), ("truth", truth)):
        if bad := torch.nonzero(~x.isfinite().flatten(1).all(1)).flatten().tolist():
            raise Misuse(
                f"The {name} for victim {bad[0]} has NaN or infinite values.",
                "Give finite numbers: the best finite guess of the attack.",
            )


def _taps(window: Window) -> Tensor:
    side = SIDES[window]
    if window == "uniform":
        return torch.full((side,), 1 / side, dtype=torch.float64)
    offset = torch.arange(side, dtype=torch.float64) - side // 2
    weights = torch.exp(-(offset**2) / (2 * SIGMA**2))
    return weights / weights.sum()


def _pair(guess: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    if guess.shape != truth.shape or guess.ndim < 2:
        raise Misuse(
            f"The guess has shape {tuple(guess.shape)}, the truth {tuple(truth.shape)}.",
            "Give both as [N, *shape], one row per sample.",
        )
    return guess.detach().double(), truth.detach().double().to(guess.device)
