"""What a guarantee is about: whose data, against which adversary, and in which units."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.secret_rows import SecretRows
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.engines.setting import Setting
from tacit.privacy.clipping import Clip


@dataclass(frozen=True)
class Threat:
    """An adversary of one client, as a bound on ε sees it.

    Attributes:
        adversary: What the guarantee is against.
        victim: The client whose data are at stake.
        clip: How gradients are clipped; None if they are not.
        parameters: P, the number of coordinates of a gradient.
        delta: δ of the guarantee, where it is not pure.
    """

    adversary: Adversary
    victim: int
    clip: Clip | None = None
    parameters: int = 1
    delta: float = 1e-5

    @classmethod
    def of(cls, setting: Setting, adversary: Adversary, victim: int, delta: float) -> Threat:
        """The threat to a client of a run with this setting."""
        return cls(adversary, victim, setting.task.clip, setting.task.parameters, delta)

    @property
    def stronger(self) -> Adversary:
        """The adversary of the proof, which also reads all messages that are not private.

        It knows first models and, beyond what `Adversary` says, the data of all other clients.
        """
        return replace(self.adversary | Adversary.eavesdropper(), knows_theta0=True)

    @property
    def sensitivity(self) -> float:
        """By how much one gradient of the victim may differ: the unit of gradients."""
        return 1.0 if self.clip is None else self.clip.sensitivity

    def view(self, run: SymbolicRun) -> SecretRows:
        """What the stronger adversary sees."""
        return SecretRows.of(run, self.stronger, self.victim)
