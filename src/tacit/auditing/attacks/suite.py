"""All attacks on the victims of one adversary, from what it knows to scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tacit.auditing.attacks.evidence import evidence
from tacit.auditing.attacks.memberships import Membership, MembershipAttacks
from tacit.auditing.attacks.reconstructions import (
    Attack,
    Effort,
    Inversions,
    Progress,
    best_evidence,
    not_invertible,
)
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.findings import Findings
from tacit.record.transcript import Transcript
from tacit.simulation import Setting
from tacit.tasks.flat import ModuleLoss

COSINES = 5  # gradients that a membership attack compares with


@dataclass(frozen=True, eq=False)
class Attackers:
    """What is needed to measure, for all adversaries."""

    inversions: Inversions
    memberships: dict[int, MembershipAttacks]  # by victim
    final: Tensor | None  # trained models [N, P]
    notes: list[str]

    @classmethod
    def of(
        cls,
        setting: Setting,
        victims: Sequence[int],
        delta: float,
        effort: Effort,
        final: Tensor | None,
        progress: Progress,
        notes: list[str],
    ) -> Attackers | None:
        """None, with a note, where gradients of this task are not attacked."""
        task = setting.task
        if (reason := not_invertible(task)) is not None:
            notes.append(reason)
            return None
        assert isinstance(task.loss, ModuleLoss)
        truth = Truth(task, setting.seed)
        members = {
            victim: MembershipAttacks(
                task.loss, truth, victim, delta=delta, effort=effort, progress=progress
            )
            for victim in victims
        }
        for victim, attacks in members.items():
            if attacks.candidates is None:
                notes.append(
                    f"client {victim} has too few samples of its own for membership inference"
                )
        return cls(Inversions(task, truth, effort, progress), members, final, notes)

    def attack(
        self, found: list[Findings], transcript: Transcript
    ) -> tuple[list[Attack], list[Membership]]:
        """Everything on all victims of one adversary."""
        held = [held for one in found for held in best_evidence(one, transcript)]
        for one in held:
            if (reason := self.inversions.passes_over(one)) is not None:
                self._note(
                    f"the {one.kind} that {found[0].knowledge.adversary} has of client {one.victim}: {reason}"
                )
        inverted = self.inversions.of(held)
        members = []
        for each in found:
            attacks = self.memberships[each.victim]
            known = self._model(each, transcript)
            if known is None:
                self._note(
                    f"{each.knowledge.adversary} knows no model: no membership inference by models"
                )
            else:
                theta, words, audited = known
                members += attacks.on_model(theta, words, comparable=audited)
            series = each.of("gradient")
            places = (series.places("exact") or series.places("noisy"))[:COSINES]
            gradients = [evidence(each, "gradient", place, transcript) for place in places]
            by_gradients = attacks.on_gradients([held for held in gradients if held is not None])
            if gradients and not by_gradients:
                self._note(
                    f"membership by gradients that {each.knowledge.adversary} knows: too few samples in their batches"
                )
            members += by_gradients
        return inverted, members

    def _model(self, found: Findings, transcript: Transcript) -> tuple[Tensor, str, bool] | None:
        """A model that the adversary has, the later the better; which it is; and whether it is one of those audited."""
        series, own = found.of("model"), sorted(found.knowledge.adversary.corrupt)
        exact = series.places("exact")
        to_the_end = (
            bool(exact) and exact[-1] >= found.knowledge.run.steps - 1
        )  # the last may be sent next time
        if self.final is not None and to_the_end:
            words = "the victim's trained model, taken to be known as its models were in the iterations audited"
            return self.final[found.victim], words, False
        if self.final is not None and own:
            words = f"the trained model of corrupt client {own[0]}, in place of the victim's"
            return self.final[own[0]], words, False
        if not exact or (last := evidence(found, "model", exact[-1], transcript)) is None:
            return None
        return (
            last.values,
            f"the victim's model after {exact[-1]} iterations: early in training",
            True,
        )

    def _note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)
