"""All attacks on the victims of one adversary, from its knowledge to scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.data_spec import reuses_batches
from tacit.auditing.attacks.evidence import evidence
from tacit.auditing.attacks.known_evidence import (
    ABOUT_SEVERAL,
    ABOUT_VICTIM,
    approximate_gradients,
    best_evidence,
    exact_evidence,
    joint_evidence,
    noisy_gradients,
)
from tacit.auditing.attacks.membership_attacks import (
    KnownModels,
    MembershipAttacks,
    MembershipResult,
)
from tacit.auditing.attacks.reconstruction_attacks import (
    ReconstructionAttacks,
    ReconstructionResult,
    why_not_classifying,
)
from tacit.auditing.attacks.shadow_models import ModelId
from tacit.auditing.client_names import client_name
from tacit.auditing.options import AttackOptions, AuditOptions
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import Leakage
from tacit.engines.setting import Setting
from tacit.record.transcript import Transcript

MAX_GRADIENTS = 8  # gradients in all values that a membership attack uses together
LAST_MODELS = 3  # models of the victim that a membership attack uses together
SAMPLED = (
    "attacks on gradients: theirs are sums over samples drawn at random, and neither which nor how "
    "many is known; canaries measure what such sums reveal"
)


class AttackSuite:
    """The attacks on the victims of one run, for all adversaries.

    Args:
        setting: The run, with a task that can be attacked (see `why_not_attackable`).
        adversaries: All that will attack.
        options: What the audit covers.
        effort: How hard attacks try.
        notes: Gets a note for each attack that cannot be made.
    """

    def __init__(
        self,
        setting: Setting,
        adversaries: Sequence[Adversary],
        options: AuditOptions,
        effort: AttackOptions,
        notes: list[str],
    ) -> None:
        truth, steps = Truth(setting.task, setting.seed), options.steps
        self.final, self.notes, self.steps = options.final, notes, steps or 0
        self.reuses_batches = reuses_batches(setting.task)
        holders = {min(adversary.corrupt) for adversary in adversaries if adversary.corrupt}

        def record(victim: int) -> list[ModelId]:
            """The models that an attack on the victim may use."""
            if options.final is None:
                return [(victim, iteration) for iteration in range(options.iterations + 1)]
            return [(client, steps) for client in sorted({victim} | holders)] if steps else []

        self.reconstruction = ReconstructionAttacks(truth, effort, options.report)
        self.has_dropout = setting.task.draws.keys
        self.membership: dict[int, MembershipAttacks] = {}
        if (reason := why_not_classifying(setting.task)) is not None:
            self._note(f"membership inference: {reason}")
            return
        for victim in options.victims:
            self.membership[victim] = MembershipAttacks(
                setting, truth, victim, record(victim), options.delta, effort, options.report
            )
        for victim, attacks in self.membership.items():
            if attacks.candidates is None:
                name = client_name(victim, setting.task.names)
                self._note(f"client {name} has too few samples of its own for membership inference")

    def run(
        self, leakages: list[Leakage], transcript: Transcript
    ) -> tuple[list[ReconstructionResult], list[MembershipResult]]:
        """All attacks of one adversary on all its victims."""
        reconstructions = self._reconstructions(leakages, transcript)
        members = [
            result
            for leakage in leakages
            if leakage.victim in self.membership
            for result in self._membership(leakage, transcript)
        ]
        return reconstructions, members

    def _reconstructions(
        self, leakages: list[Leakage], transcript: Transcript
    ) -> list[ReconstructionResult]:
        if any(leakage.knowledge.run.samplings for leakage in leakages):
            self._note(SAMPLED)
            return []
        known = [piece for leakage in leakages for piece in best_evidence(leakage, transcript)]
        known += approximate_gradients(leakages, transcript)
        for piece in known:
            if (reason := self.reconstruction.skip_reason(piece)) is not None:
                adversary = leakages[0].knowledge.adversary
                whose = f"client {adversary.name_of(piece.victim)}"
                self._note(f"the {piece.kind} that {adversary} has of {whose}: {reason}")
        reconstructions = self.reconstruction.run(known)
        if self.reuses_batches:
            joint = (joint_evidence(leakage, transcript) for leakage in leakages)
            together = [everything for everything in joint if everything is not None]
            reconstructions += self.reconstruction.run_joint(together, reconstructions)
        return reconstructions

    def _membership(self, leakage: Leakage, transcript: Transcript) -> list[MembershipResult]:
        attacks, adversary = self.membership[leakage.victim], leakage.knowledge.adversary
        results: list[MembershipResult] = []
        known = self._models(leakage, transcript)
        if known is None:
            self._note(f"{adversary} knows no model: no membership inference by models")
        else:
            results += attacks.on_models(known)
        if self.has_dropout:
            self._note(
                "membership by gradients is not tried with dropout; that proves nothing, because "
                "its masks follow from the seed"
            )
            return results
        if leakage.knowledge.run.samplings:
            self._note(SAMPLED)
            return results
        by_evidence = self._by_evidence(leakage, transcript)
        if by_evidence == []:
            self._note(
                f"membership by gradients that {adversary} knows: too few samples in their batches"
            )
        return results + (by_evidence or [])

    def _by_evidence(
        self, leakage: Leakage, transcript: Transcript
    ) -> list[MembershipResult] | None:
        """Attacks by gradients and combinations of them; None if none is known."""
        attacks = self.membership[leakage.victim]
        exact = partial(exact_evidence, leakage, transcript, most=MAX_GRADIENTS)
        noisy = partial(noisy_gradients, leakage, transcript, most=MAX_GRADIENTS)
        known = [("exact combinations of the victim's gradients", exact(ABOUT_VICTIM))]
        if not known[0][1][0]:
            several = "exact combinations of gradients of the victim and others"
            known = [
                (several, exact(ABOUT_SEVERAL)),
                ("noisy gradients, the least noisy first", noisy()),
            ]
        results = [
            attacks.on_evidence(pieces, count, name) for name, (pieces, count) in known if pieces
        ]
        return [result for each in results for result in each] if results else None

    def _models(self, leakage: Leakage, transcript: Transcript) -> KnownModels | None:
        """The latest models that the adversary has."""
        adversary, victim = leakage.knowledge.adversary, leakage.victim
        exact = leakage.of("model").indices("exact")
        # The last model may be sent in the next iteration.
        known_to_end = bool(exact) and exact[-1] >= leakage.knowledge.run.steps - 1
        if self.final is not None and (known_to_end or adversary.corrupt):
            client = victim if known_to_end else min(adversary.corrupt)
            description = (
                "the victim's trained model, assumed known as its models were in the iterations "
                "audited"
            )
            if not known_to_end:
                name = adversary.name_of(client)
                description = (
                    f"the trained model of corrupt client {name}, in place of the victim's"
                )
            return KnownModels(self.final[[client]], ((client, self.steps),), description, False)
        # The common start says nothing about data.
        last = [index for index in exact if index > 0][-LAST_MODELS:] or exact[-1:]
        models = [(t, evidence(leakage, "model", t, transcript)) for t in last]
        known = [(t, model.values) for t, model in models if model is not None]
        if not known:
            return None
        which = ", ".join(str(t) for t, _ in known)
        description = f"the victim's models after {which} iterations, early in training"
        if len(known) > 1:
            description += "; scores are means over them"
        ids = tuple((victim, t) for t, _ in known)
        return KnownModels(torch.stack([values for _, values in known]), ids, description, True)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
