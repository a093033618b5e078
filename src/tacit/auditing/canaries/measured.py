"""All canaries of one audit: per client where the ledger has a bound, per sample on request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.reconstruction_attacks import AttackOptions, Progress
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.canaries.client import ClientCanaries, client_canaries
from tacit.auditing.canaries.sample import SampleCanaries, sample_canaries
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.errors import Misuse
from tacit.simulation import Setting


@dataclass(frozen=True, eq=False)
class CanaryMeasurements:
    """Measures the canaries of all adversaries and victims of one run.

    Attributes:
        setting: What determines the run.
        run: The same on symbols.
        steps: Iterations of the whole training, if sample canaries are to be trained on it.
        options: How many canaries there are.
        progress: Called with a description, what is done and of how much.
        notes: Gets the reason where canaries cannot be measured.
    """

    setting: Setting
    run: SymbolicRun
    steps: int | None
    options: AttackOptions
    progress: Progress
    notes: list[str]

    def of_clients(
        self, adversary: Adversary, ledgers: Sequence[Ledger], earlier: Sequence[ClientCanaries]
    ) -> list[ClientCanaries]:
        """Lower bounds on ε for victims that have an upper bound which depends on their data.

        Args:
            adversary: Who guesses.
            ledgers: The upper bounds, one per victim.
            earlier: Results of other adversaries, which are used again if they see the same.
        """
        found: list[ClientCanaries] = []
        options = self.options
        for ledger in ledgers if options.canary_trials else ():
            if not 0 < ledger.upper.epsilon < math.inf:
                continue
            one = client_canaries(
                self.setting,
                adversary,
                analysed=(self.run, ledger),
                earlier=earlier,
                trials=options.canary_trials,
                seconds=options.seconds,
                seed=options.seed,
                device=options.device,
                progress=self.progress,
            )
            if isinstance(one, ClientCanaries):
                found.append(one)
            else:
                self._note(f"canaries of client {ledger.victim}: {one}")
        return found

    def of_samples(self, adversary: Adversary, ledgers: Sequence[Ledger]) -> list[SampleCanaries]:
        """Lower bounds on ε for one sample of each victim, from one training run each."""
        found: list[SampleCanaries] = []
        for ledger in ledgers if self.options.sample_canaries else ():
            try:
                one = sample_canaries(
                    self.setting,
                    adversary,
                    ledger.victim,
                    count=self.options.sample_canaries,
                    iterations=self.run.steps,
                    steps=self.steps,
                    delta=ledger.delta,
                    seed=self.options.seed,
                    progress=self.progress,
                )
            except Misuse as problem:
                self._note(
                    f"sample canaries of client {ledger.victim}: {problem.problem.rstrip('.')}"
                )
            else:
                found.append(one)
        return found

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
