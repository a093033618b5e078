"""Target localization: finding a place from noisy distances and directions that no client can use alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.checks import check_number
from tacit.core.errors import Misuse
from tacit.tasks.regression import as_array, streaming_regression
from tacit.tasks.task import Task

CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))


def localization(
    anchors: Tensor | Sequence[Sequence[float]] = CORNERS,
    target: Tensor | Sequence[float] = (0.3, -0.4),
    *,
    across: float = 0.1,
    along: float = 0.01,
    noise: float = 0.1,
    exact: bool = False,
    batch_size: int = 1,
    dtype: torch.dtype = torch.float64,
) -> Task:
    """Clients at the places `anchors` [N, 2] find the `target` w* [2] together (dual-protection paper, section 5.3).

    At time n client k measures a distance rₖ(n) and a direction zₖ(n); with dₖ(n) = rₖ(n) + zₖ(n)ᵀpₖ the model is
    dₖ(n) = zₖ(n)ᵀw* + vₖ(n), v Gaussian with standard deviation `noise`, and the loss ½ (d − zᵀw)².

    The paper does not say how directions are perturbed. As in Sayed's chapter on diffusion adaptation (2014),
    zₖ(n) = uₖ + α uₖ⊥ + β uₖ, where uₖ is the unit vector from pₖ to w* and α, β are independent zero-mean Gaussian
    with the small standard deviations `across` and `along`; the model stays exact in w*. The expected Hessian
    (1 + along²) uuᵀ + across² u⊥u⊥ᵀ of a client is nearly of rank one: across its own line of sight a client alone
    learns next to nothing.

        task = tacit.localization(target=(0.5, 0.2))
    """
    places, goal = as_array("anchors", anchors, dtype), as_array("target", target, dtype)
    if places.ndim != 2 or not len(places) or places.shape[1] != 2 or goal.shape != (2,):
        raise Misuse(
            f"anchors have shape {tuple(places.shape)}, target {tuple(goal.shape)}.",
            "Give places in the plane: anchors [[x, y], …] and target [x, y].",
        )
    for name, deviation in (("across", across), ("along", along), ("noise", noise)):
        check_number(name, deviation, at_least=0, hint="a standard deviation")
    away = goal - places
    distances = away.norm(dim=1, keepdim=True)
    if not bool((distances > 0).all()):
        raise Misuse(
            f"Anchor {int(distances.argmin())} is at the target.",
            "Its direction is none: move one of them.",
        )
    sight = away / distances
    athwart = torch.stack((-sight[:, 1], sight[:, 0]), dim=1)
    roots = torch.stack((along * sight, across * athwart), dim=1)
    hessian = sight.mT @ sight + (roots.mT @ roots).sum(0)
    if int(torch.linalg.matrix_rank(hessian, hermitian=True)) < 2:
        raise Misuse(
            "All anchors see the target along one line, and directions have no error across it.",
            "Move an anchor, or give across > 0.",
        )
    return streaming_regression(
        regressors=lambda normals, sight, root: sight[:, None] + normals @ root,
        power=lambda e, sight, root: (sight @ e).square() + (root @ e).square().sum(),
        shape=(sight, roots),
        targets=goal.repeat(len(places), 1),
        noise_variances=torch.full((len(places),), noise**2, dtype=dtype),
        optimum=goal,
        batch_size=batch_size,
        exact=exact,
    )
