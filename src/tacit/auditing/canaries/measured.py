"""All canaries of one audit: where the ledger has a bound; in one run of training on request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.reconstruction_attacks import AttackOptions, Progress
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.canaries.client import ClientCanaries, client_canaries
from tacit.auditing.canaries.gradient import GradientCanaries, gradient_canaries
from tacit.auditing.canaries.sample import SampleCanaries, sample_canaries
from tacit.auditing.canaries.trials import FEWEST
from tacit.auditing.symbolic.symbols import SymbolicRun, run_on_symbols
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting

# Clients times iterations up to which gradient canaries are of the whole run, and how many of them
# all trials together have at most: they take most of the time.
WHOLE_RUN, ALL_TRIALS = 4_000, 2e7
T = TypeVar("T")


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
        # Sums over samples have gradient canaries.
        for ledger in () if self.run.samplings else self._bounded(ledgers):
            one = client_canaries(
                self.setting,
                adversary,
                analysed=(self.run, ledger),
                earlier=earlier,
                trials=self.options.canary_trials,
                **self._effort,
            )
            self._keep(found, one, f"canaries of client {adversary.name_of(ledger.victim)}")
        return found

    def of_sums(
        self, adversary: Adversary, ledgers: Sequence[Ledger], earlier: Sequence[GradientCanaries]
    ) -> list[GradientCanaries]:
        """Lower bounds on ε for one sample, of victims that send sums over samples.

        They are for the whole run if that has a bound and is not too long, else for the audited
        iterations. The arguments are those of `of_clients`.
        """
        found: list[GradientCanaries] = []
        for ledger in self._bounded(ledgers) if self.run.samplings else ():
            run, upper = self.run, ledger.upper
            if ledger.whole_run is not None and self.whole_run is not None:
                run, upper = self.whole_run, ledger.whole_run
            most = ALL_TRIALS / (self.setting.graph.clients * max(1, run.steps))
            one = gradient_canaries(
                self.setting,
                run,
                adversary,
                ledger.victim,
                upper,
                earlier=[*earlier, *found],
                trials=min(self.options.canary_trials, max(FEWEST, int(most))),
                **self._effort,
            )
            self._keep(found, one, f"canaries of client {adversary.name_of(ledger.victim)}")
        return found

    @cached_property
    def whole_run(self) -> SymbolicRun | None:
        """All iterations on symbols; None if they are too many."""
        setting, steps = self.setting, self.steps
        if steps is None or setting.graph.clients * steps > WHOLE_RUN:
            return None
        return run_on_symbols(
            setting.algorithm, setting.graph, steps, common_start=setting.start_alike
        )

    def of_samples(self, adversary: Adversary, ledgers: Sequence[Ledger]) -> list[SampleCanaries]:
        """Lower bounds on ε for one sample of each victim, from one training run each."""
        found: list[SampleCanaries] = []
        one: SampleCanaries | str
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
                one = problem.problem.rstrip(".")
            self._keep(found, one, f"sample canaries of client {adversary.name_of(ledger.victim)}")
        return found

    @property
    def _effort(self) -> dict[str, Any]:
        options = self.options
        shared = {"seconds": options.seconds, "seed": options.seed, "device": options.device}
        return {**shared, "progress": self.progress}

    def _bounded(self, ledgers: Sequence[Ledger]) -> list[Ledger]:
        """Those with a bound that trials can be compared with, if there are to be trials."""
        if not self.options.canary_trials:
            return []
        return [ledger for ledger in ledgers if 0 < ledger.upper.epsilon < math.inf]

    def _keep(self, found: list[T], one: T | str, what: str) -> None:
        """Add a result to those found, or the reason why there is none to the notes."""
        if not isinstance(one, str):
            found.append(one)
        elif (note := f"{what}: {one}") not in self.notes:
            self.notes.append(note)
