"""Target localization from noisy distances and directions; no client can solve it alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.checks import check_number
from tacit.core.errors import Misuse
from tacit.tasks.filtering import as_array, streaming_regression
from tacit.tasks.objective import Objective

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
) -> Objective:
    """Clients at fixed anchors find a target in the plane together.

    The problem of the dual-protection paper, section 5.3. At time n client k at pₖ measures a
    distance rₖ(n) and a direction zₖ(n). With dₖ(n) = rₖ(n) + zₖ(n)ᵀpₖ the model is
    dₖ(n) = zₖ(n)ᵀw* + vₖ(n) with Gaussian v, and the loss is ½ (d − zᵀw)².

    The paper does not say how directions are perturbed. As in Sayed's chapter on diffusion
    adaptation (2014), zₖ(n) = uₖ + α uₖ⊥ + β uₖ, where uₖ is the unit vector from pₖ to w* and α, β
    are independent zero-mean Gaussians. The model stays exact in w*. A client's expected Hessian
    (1 + along²) uuᵀ + across² u⊥u⊥ᵀ is nearly of rank one: perpendicular to its own line of sight,
    a client alone learns next to nothing.

    Args:
        anchors: Positions pₖ of the clients, [N, 2].
        target: Position w* of the target, [2].
        across: Standard deviation of α, the error perpendicular to the line of sight.
        along: Standard deviation of β, the error along the line of sight.
        noise: Standard deviation of v.
        exact: Gradients are those of the expected loss.
        batch_size: Measurements per gradient.
        dtype: torch.float32 or torch.float64.

    Returns:
        A task whose `optimum` is the target.

    Raises:
        Misuse: If an anchor is at the target, or the anchors do not determine it.

    Example:
        >>> import tacit
        >>> tacit.localization(target=(0.5, 0.2))
        Objective(4 clients, 2 parameters, batches of 1)
    """
    positions, goal = as_array("anchors", anchors, dtype), as_array("target", target, dtype)
    if positions.ndim != 2 or not len(positions) or positions.shape[1] != 2 or goal.shape != (2,):
        raise Misuse(
            f"anchors have shape {tuple(positions.shape)}, target {tuple(goal.shape)}.",
            "Give positions in the plane: anchors [[x, y], …] and target [x, y].",
        )
    for name, deviation in (("across", across), ("along", along), ("noise", noise)):
        check_number(name, deviation, at_least=0, hint="a standard deviation")
    offsets = goal - positions
    distances = offsets.norm(dim=1, keepdim=True)
    if not bool((distances > 0).all()):
        raise Misuse(
            f"Anchor {int(distances.argmin())} is at the target, so it has no direction.",
            "Move one of them.",
        )
    sight = offsets / distances
    perpendicular = torch.stack((-sight[:, 1], sight[:, 0]), dim=1)
    roots = torch.stack((along * sight, across * perpendicular), dim=1)
    hessian = sight.mT @ sight + (roots.mT @ roots).sum(0)
    if int(torch.linalg.matrix_rank(hessian, hermitian=True)) < 2:
        raise Misuse(
            "All anchors see the target along one line, and directions have no error across it.",
            "Move an anchor, or give across > 0.",
        )
    clients = len(positions)
    return streaming_regression(
        regressors=lambda normals, sight, root: sight[:, None] + normals @ root,
        expected_square=lambda e, sight, root: (sight @ e).square() + (root @ e).square().sum(),
        constants=(sight, roots),
        targets=goal.repeat(clients, 1),
        noise_variances=torch.full((clients,), noise**2, dtype=dtype),
        optimum=goal,
        batch_size=batch_size,
        exact=exact,
    )
