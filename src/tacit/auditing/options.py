"""What an audit covers, and how it is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.record.transcript import Transcript

Progress = Callable[[str, int, int], None]  # (activity, steps done, steps in all)


@dataclass(frozen=True, eq=False)
class AttackOptions:
    """How hard attacks try."""

    restarts: int = 8
    seconds: float = 60.0  # for each kind of evidence
    seed: int = 0
    device: torch.device | str = "cpu"
    canary_trials: int = 100_000  # for each adversary and victim with a bound; 0: none
    sample_canaries: int = 0  # wrongly labelled samples among the victim's data; 0: none


@dataclass(frozen=True, eq=False)
class AuditOptions:
    """Options of an audit, with malicious clients or without.

    Attributes:
        victims: Clients whose data are at stake.
        iterations: How many iterations the adversaries see.
        steps: How many iterations the run has in all, for a bound on the whole of it.
        delta: δ of the differential-privacy guarantee.
        attacks: Whether to attack, and how hard; False only proves and bounds.
        canaries: How hard canaries try that are measured without attacks; None: not at all.
        heat_map: Whether to compute the exposure of all pairs; by default up to 30 clients.
        transcript: Recorded messages. Without one the iterations run again, with equal messages.
        final: Trained models [N, P] for membership inference; by default models of the audited
            iterations are attacked.
        progress: Called with a description, the steps done and the steps in all.
    """

    victims: Sequence[int] = (0,)
    iterations: int = 10
    steps: int | None = None
    delta: float = 1e-5
    attacks: bool | AttackOptions = True
    canaries: AttackOptions | None = None
    heat_map: bool | None = None
    transcript: Transcript | None = None
    final: Tensor | None = None
    progress: Progress | None = None

    @property
    def report(self) -> Progress:
        """`progress`, or a function that does nothing."""
        return self.progress or (lambda what, done, of: None)
