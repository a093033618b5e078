"""The same guarantees by Google's dp-accounting, to check ours by code that we did not write.

The library is a development tool, not needed by Tacit: `tacit privacy --check` uses it if it is
installed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.core.errors import Misuse
from tacit.privacy.accounting.sampled_gaussian import check_mechanism, loss_spread

# Steps of the library's grid in the spread of the loss, and its finest grid.
CELLS_PER_SPREAD, FINEST = 50, 2e-5
# Orders of the Rényi divergences. The library computes whole ones without series.
ORDERS = (*range(2, 65), 96, 128, 192, 256, 512, 1024)


@dataclass(frozen=True)
class SecondOpinion:
    """ε by dp-accounting.

    Attributes:
        pld: By privacy-loss distributions, as ours is.
        rdp: By Rényi divergences, an independent and looser bound.
    """

    pld: float
    rdp: float


def second_opinion(
    noise_multiplier: float, sampling_rate: float, steps: int, delta: float
) -> SecondOpinion:
    """The ε of `sampled_gaussian_epsilon`, by the two accountants of dp-accounting.

    Raises:
        Misuse: If dp-accounting is not installed.
    """
    check_mechanism(noise_multiplier, sampling_rate, steps)
    if noise_multiplier == 0 or steps == 0:
        epsilon = math.inf if steps else 0.0
        return SecondOpinion(epsilon, epsilon)
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant
    except ModuleNotFoundError:
        raise Misuse(
            "The check needs Google's dp-accounting, which is not installed.",
            "Install it (pip install dp-accounting), or leave out --check.",
        ) from None

    noise = dp_accounting.GaussianDpEvent(noise_multiplier)
    event = dp_accounting.PoissonSampledDpEvent(sampling_rate, noise)
    interval = max(loss_spread(noise_multiplier, sampling_rate) / CELLS_PER_SPREAD, FINEST)
    accountants = (PLDAccountant(value_discretization_interval=interval), RdpAccountant(ORDERS))
    pld, rdp = (
        float(accountant.compose(event, steps).get_epsilon(delta)) for accountant in accountants
    )
    return SecondOpinion(pld, rdp)
