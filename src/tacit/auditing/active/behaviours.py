"""What malicious clients send in place of their own rows, as coefficients of rows that they see.

For a message in which client v computes Σⱼ wᵥⱼ xⱼ, with a malicious neighbour m and a model θ̃ of
the adversary's choice:

    echo        x̃ₘ = xᵥ                                     v gets its own row back
    isolate     x̃ₘ = (xᵥ − Σ_{j≠m} wᵥⱼ xⱼ) / wᵥₘ            so that Σⱼ wᵥⱼ xⱼ = xᵥ
    override    x̃ₘ = (l θ̃ − Σ_{j≠m} wᵥⱼ xⱼ) / wᵥₘ           so that Σⱼ wᵥⱼ xⱼ = l θ̃

l is 1 for messages that are models and 0 for those that are made of gradients (`message_kinds`).
These are the echo attack, and functional marginalization and state override, of Pasquini, Raynal
and Troncoso (2023). Malicious clients wait for the messages of an iteration before they send
theirs. In place of a row xⱼ that the adversary does not see they use their own row.

    imprint     the first weights of all clients are chosen (see `imprint`); messages are honest
    imprint-override    both, with the first weights as θ̃
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

ECHO, ISOLATE, OVERRIDE = "echo", "isolate", "override"
IMPRINT, IMPRINT_OVERRIDE = "imprint", "imprint-override"
BEHAVIOURS = (ECHO, ISOLATE, OVERRIDE, IMPRINT, IMPRINT_OVERRIDE)
IMPRINTS = (IMPRINT, IMPRINT_OVERRIDE)  # the first weights are chosen
OVERRIDES = (OVERRIDE, IMPRINT_OVERRIDE)  # the victim's aggregate is chosen
DEVIATES = (ECHO, ISOLATE, *OVERRIDES)  # messages are not those of the protocol


@dataclass(frozen=True, eq=False)
class Substitute:
    """The row that a client sends: Σⱼ rows[j] · xⱼ + chosen · l · θ̃."""

    rows: Tensor  # float64 [N]
    chosen: float = 0.0


def substitutes(
    behaviour: str,
    weights: Tensor,
    victim: int,
    malicious: Collection[int],
    seen: Collection[int],
) -> dict[int, Substitute]:
    """What each malicious client sends; empty if the behaviour is honest in what is sent.

    Args:
        behaviour: One of `BEHAVIOURS`.
        weights: The victim's mixing weights wᵥⱼ, float64 [N].
        victim: The client to attack, v.
        malicious: The clients that deviate.
        seen: The clients whose rows the adversary sees, its own included.
    """
    near = [client for client in sorted(malicious) if float(weights[client]) != 0.0]
    if behaviour not in DEVIATES or not near:
        return {}
    unit = torch.eye(len(weights), dtype=torch.float64)
    if behaviour == ECHO:
        return {client: Substitute(unit[victim]) for client in near}
    # One neighbour is enough to determine the sum; the one with the largest weight sends least.
    client = max(near, key=lambda client: float(weights[client]))
    others = weights.clone().double()
    others[client] = 0.0
    unseen = [j for j in range(len(weights)) if j not in seen]
    others[client] += others[unseen].sum()
    others[unseen] = 0.0
    weight = float(weights[client])
    if behaviour == ISOLATE:
        return {client: Substitute((unit[victim] - others) / weight)}
    return {client: Substitute(-others / weight, 1.0 / weight)}
