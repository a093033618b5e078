"""All canaries of one audit: where the ledger has a bound; in one run of training on request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.ledger import Ledger
from tacit.auditing.canaries.result import CanaryResult
from tacit.auditing.canaries.sample import sample_canaries
from tacit.auditing.canaries.trials import FEWEST, canary_trials
from tacit.auditing.options import AttackOptions, AuditOptions
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.engines.setting import Setting

# Clients times iterations up to which gradient canaries are of the whole run, and how many of them
# all trials together have at most: they take most of the time.
WHOLE_RUN, ALL_TRIALS = 4_000, 2e7


@dataclass(frozen=True, eq=False)
class CanaryMeasurements:
    """Measures the canaries of all adversaries and victims of one run.

    Attributes:
        setting: What determines the run.
        run: The same on symbols.
        options: What the audit covers.
        effort: How many canaries there are.
        notes: Gets the reason where canaries cannot be measured.
    """

    setting: Setting
    run: SymbolicRun
    options: AuditOptions
    effort: AttackOptions
    notes: list[str]

    def of(
        self, adversary: Adversary, ledgers: Sequence[Ledger], earlier: Sequence[CanaryResult]
    ) -> list[CanaryResult]:
        """Lower bounds on ε against one adversary.

        Args:
            adversary: Who guesses.
            ledgers: The upper bounds, one per victim.
            earlier: Results of other adversaries, which are used again if they see the same.
        """
        measured: list[CanaryResult] = []
        for ledger in ledgers:
            results: dict[str, CanaryResult | str] = {}
            # Trials are compared with a bound that depends on the victim's data.
            if self.effort.canary_trials and 0 < ledger.upper.epsilon < math.inf:
                results["canaries"] = self._in_trials(adversary, ledger, [*earlier, *measured])
            if self.effort.sample_canaries:
                results["sample canaries"] = self._in_one_run(adversary, ledger)
            for kind, result in results.items():
                if not isinstance(result, str):
                    measured.append(result)
                    continue
                note = f"{kind} of client {adversary.name_of(ledger.victim)}: {result}"
                if note not in self.notes:
                    self.notes.append(note)
        return measured

    def _in_trials(
        self, adversary: Adversary, ledger: Ledger, earlier: Sequence[CanaryResult]
    ) -> CanaryResult | str:
        """In independent trials.

        Of sums over samples they are for the whole run if that has a bound and is not too long,
        else for the audited iterations, as all others.
        """
        effort, run, upper = self.effort, self.run, ledger.upper
        trials = effort.canary_trials
        if run.samplings:
            if ledger.whole_run is not None and self.whole_run is not None:
                run, upper = self.whole_run, ledger.whole_run
            most = ALL_TRIALS / (self.setting.graph.clients * max(1, run.steps))
            trials = min(trials, max(FEWEST, int(most)))
        return canary_trials(
            self.setting,
            adversary,
            ledger.victim,
            analysed=(run, upper),
            earlier=earlier,
            trials=trials,
            seconds=effort.seconds,
            seed=effort.seed,
            device=effort.device,
            progress=self.options.report,
        )

    @cached_property
    def whole_run(self) -> SymbolicRun | None:
        """All iterations on symbols; None if they are too many."""
        setting, steps = self.setting, self.options.steps
        if steps is None or setting.graph.clients * steps > WHOLE_RUN:
            return None
        return run_on_symbols(
            setting.algorithm, setting.graph, steps, common_start=setting.start_alike
        )

    def _in_one_run(self, adversary: Adversary, ledger: Ledger) -> CanaryResult | str:
        """For one sample, from one training run."""
        try:
            return sample_canaries(
                self.setting,
                adversary,
                ledger.victim,
                count=self.effort.sample_canaries,
                iterations=self.run.steps,
                steps=self.options.steps,
                delta=ledger.delta,
                seed=self.effort.seed,
                progress=self.options.report,
            )
        except Misuse as problem:
            return problem.problem.rstrip(".")
