"""Parameters that stay local: each client trains its own, and only the others travel.

A model of W numbers is divided into P shared ones, which an algorithm exchanges, and Q local ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from tacit.core.checks import check_positive
from tacit.core.errors import Misuse, unknown_name
from tacit.tasks.flat import FlatModule


@dataclass(frozen=True, eq=False)
class LocalParameters:
    """Which numbers of a model stay local.

    Attributes:
        initial: The initial whole models [n, W], of a seed and clients.
        names: The local parameters.
        shared: Positions of the P shared numbers in the whole model.
        local: Positions of the Q local numbers in the whole model.
        lr: Step size of the local parameters; None: that of the algorithm.
    """

    initial: Callable[[int, Sequence[int]], Tensor]
    names: tuple[str, ...]
    shared: Tensor
    local: Tensor
    lr: float | None = None

    @classmethod
    def of(
        cls,
        flat: FlatModule,
        initial: Callable[[int, Sequence[int]], Tensor],
        patterns: Sequence[str],
        lr: float | None,
    ) -> LocalParameters:
        """Divide a model.

        Args:
            flat: The model.
            initial: Its initial parameters [n, W], of a seed and clients.
            patterns: Names of parameters or of modules, or patterns such as "*.bias".
            lr: Step size of the local parameters.

        Raises:
            Misuse: If a pattern fits no parameter, all are local, or tied ones are divided.
        """
        if lr is not None:
            check_positive("local_lr", lr, example=0.1)
        names = _matching(flat, patterns)
        positions = torch.split(torch.arange(flat.width), flat.sizes)
        local = [piece for name, piece in zip(flat.names, positions, strict=True) if name in names]
        shared = [p for name, p in zip(flat.names, positions, strict=True) if name not in names]
        if not shared:
            raise Misuse(
                "All parameters of the model are local, so nothing would travel.",
                "Name fewer in `local`, such as those of the last layer.",
            )
        return cls(initial, tuple(names), torch.cat(shared), torch.cat(local), lr)

    @property
    def count(self) -> int:
        """Number of local numbers Q."""
        return len(self.local)

    @property
    def width(self) -> int:
        """Number of all numbers W."""
        return len(self.shared) + len(self.local)

    def join(self, shared: Tensor, local: Tensor) -> Tensor:
        """Whole models [..., W] from shared [..., P] and local [..., Q] numbers."""
        rows = shared.new_empty(*shared.shape[:-1], self.width)
        rows[..., self.shared.to(rows.device)] = shared
        rows[..., self.local.to(rows.device)] = local.to(rows)
        return rows

    def shared_of(self, rows: Tensor) -> Tensor:
        """The shared numbers [..., P] of whole models."""
        return rows[..., self.shared.to(rows.device)]

    def local_of(self, rows: Tensor) -> Tensor:
        """The local numbers [..., Q] of whole models."""
        return rows[..., self.local.to(rows.device)]

    def to(self, device: torch.device | str) -> LocalParameters:
        """The same with its positions on a device."""
        return replace(self, shared=self.shared.to(device), local=self.local.to(device))

    def describe(self) -> str:
        """What stays local, in words."""
        return (
            f"local parameters: {self.count:,} of {self.width:,} numbers "
            f"({', '.join(self.names)}) are each client's own and never sent; the average model "
            "has their average"
        )


def _matching(flat: FlatModule, patterns: Sequence[str]) -> list[str]:
    """The trainable parameters that patterns name."""
    if isinstance(patterns, str) or not all(isinstance(name, str) and name for name in patterns):
        raise Misuse(f"local is {patterns!r}.", 'Give a list of names, such as ["head"].')
    aliases = _aliases(flat.module)
    for pattern in patterns:
        if not any(_fits(name, pattern) for names in aliases.values() for name in names):
            layers = dict.fromkeys(name.rpartition(".")[0] or name for name in flat.names)
            raise unknown_name(f"local has {pattern!r}, which is no parameter.", pattern, layers)
    chosen = []
    for name in flat.names:
        fitting = [a for a in aliases[name] if any(_fits(a, pattern) for pattern in patterns)]
        if fitting and len(fitting) < len(aliases[name]):
            [other, *_] = [alias for alias in aliases[name] if alias not in fitting]
            raise Misuse(
                f"local has {fitting[0]!r}, which is tied to {other!r}.",
                "Make both local, or neither.",
            )
        if fitting:
            chosen.append(name)
    return chosen


def _aliases(module: nn.Module) -> dict[str, list[str]]:
    """All names of each trainable parameter, by the first of them."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            names.setdefault(id(parameter), []).append(name)
    return {aliases[0]: aliases for aliases in names.values()}


def _fits(name: str, pattern: str) -> bool:
    """Whether a pattern names a parameter, a module that it is part of, or fits its name."""
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)
