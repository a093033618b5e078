"""All attacks on the victims of one adversary, from its knowledge to scores."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tacit.auditing.attacks.approximate import approximate_gradients
from tacit.auditing.attacks.evidence import evidence
from tacit.auditing.attacks.membership_attacks import MembershipAttacks, MembershipResult
from tacit.auditing.attacks.reconstruction_attacks import (
    AttackOptions,
    Progress,
    ReconstructionAttacks,
    ReconstructionResult,
    best_evidence,
)
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import Leakage
from tacit.record.transcript import Transcript
from tacit.simulation import Setting

MAX_GRADIENTS = 5  # gradients that a membership attack compares samples with


class AttackSuite:
    """The attacks on the victims of one run, for all adversaries.

    Args:
        setting: The run, with a task that can be attacked (see `why_not_invertible`).
        victims: Clients to attack.
        delta: The δ at which membership attacks bound ε.
        options: How hard attacks try.
        final: Trained models [N, P] if they are known.
        progress: Called with the activity, the steps done and the steps in all.
        notes: Gets a note for each attack that cannot be made.
    """

    def __init__(
        self,
        setting: Setting,
        victims: Sequence[int],
        delta: float,
        options: AttackOptions,
        final: Tensor | None,
        progress: Progress,
        notes: list[str],
    ) -> None:
        truth = Truth(setting.task, setting.seed)
        self.final, self.notes = final, notes
        self.reconstruction = ReconstructionAttacks(truth, options, progress)
        self.membership = {
            victim: MembershipAttacks(truth, victim, delta, options, progress) for victim in victims
        }
        for victim, attacks in self.membership.items():
            if attacks.candidates is None:
                self._note(
                    f"client {victim} has too few samples of its own for membership inference"
                )

    def run(
        self, leakages: list[Leakage], transcript: Transcript
    ) -> tuple[list[ReconstructionResult], list[MembershipResult]]:
        """All attacks of one adversary on all its victims."""
        found = [one for leakage in leakages for one in best_evidence(leakage, transcript)]
        found += approximate_gradients(leakages, transcript)
        for one in found:
            if (reason := self.reconstruction.skip_reason(one)) is not None:
                adversary = leakages[0].knowledge.adversary
                self._note(f"the {one.kind} that {adversary} has of client {one.victim}: {reason}")
        reconstructions = self.reconstruction.run(found)
        members = [
            result for leakage in leakages for result in self._membership(leakage, transcript)
        ]
        return reconstructions, members

    def _membership(self, leakage: Leakage, transcript: Transcript) -> list[MembershipResult]:
        attacks, adversary = self.membership[leakage.victim], leakage.knowledge.adversary
        results: list[MembershipResult] = []
        known = self._model(leakage, transcript)
        if known is None:
            self._note(f"{adversary} knows no model: no membership inference by models")
        else:
            theta, description, audited = known
            results += attacks.on_model(theta, description, comparable=audited)
        series = leakage.of("gradient")
        indices = (series.indices("exact") or series.indices("noisy"))[:MAX_GRADIENTS]
        gradients = [evidence(leakage, "gradient", index, transcript) for index in indices]
        by_gradients = attacks.on_gradients([one for one in gradients if one is not None])
        if gradients and not by_gradients:
            self._note(
                f"membership by gradients that {adversary} knows: too few samples in their batches"
            )
        return results + by_gradients

    def _model(self, leakage: Leakage, transcript: Transcript) -> tuple[Tensor, str, bool] | None:
        """The latest model that the adversary has, its description, and whether it was audited."""
        own = sorted(leakage.knowledge.adversary.corrupt)
        exact = leakage.of("model").indices("exact")
        # The last model may be sent in the next iteration.
        known_to_end = bool(exact) and exact[-1] >= leakage.knowledge.run.steps - 1
        if self.final is not None and known_to_end:
            description = (
                "the victim's trained model, assumed known as its models were in the iterations "
                "audited"
            )
            return self.final[leakage.victim], description, False
        if self.final is not None and own:
            description = f"the trained model of corrupt client {own[0]}, in place of the victim's"
            return self.final[own[0]], description, False
        if not exact or (last := evidence(leakage, "model", exact[-1], transcript)) is None:
            return None
        description = f"the victim's model after {exact[-1]} iterations: early in training"
        return last.values, description, True

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
