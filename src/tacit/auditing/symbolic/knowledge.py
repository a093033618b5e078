"""What an adversary knows: combinations of messages, closed under deterministic steps.

A declared non-linear step f is an unknown of its own. If it is deterministic,

- f(x) is known where x is;
- x is known where f(x) is, if f has an inverse;
- both are known where x + r·f(x) is and |r| · Lip(f) < 1: x ↦ v − r·f(x) is a contraction.

What is derived may make more combinations known, so this repeats until nothing is new.
"""

from __future__ import annotations

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.linear_knowledge import (
    EXACT,
    Combination,
    Derivation,
    LinearKnowledge,
)
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.symbolic_run import NonlinearStep, SymbolicRun
from tacit.core.here import Nonlinear
from tacit.record.unknowns import Unknown

CONTRACTION = 0.99  # |r| · Lip(f) below which the fixed point is found


class Knowledge(LinearKnowledge):
    """One adversary's view of one run, with everything that follows from it."""

    def __init__(self, run: SymbolicRun, adversary: Adversary) -> None:
        super().__init__(run, adversary)
        steps = {
            unknown: step
            for unknown, step in run.nonlinear_steps.items()
            if step.declared.deterministic and not adversary.knows(unknown)
        }
        while steps and (derived := self._derivations(steps)):
            self.derive(np.stack([self.derived_vector(one) for one in derived]), derived)

    def _derivations(self, steps: dict[Unknown, NonlinearStep]) -> list[Derivation]:
        """What follows from what is known now; steps that can give nothing more are removed."""
        inputs = [[self.pad(one) for one in step.inputs] for step in steps.values()]
        flags = self.exact(np.stack([x for own in inputs for x in own]))
        knows_inputs = np.split(flags, np.cumsum([len(own) for own in inputs])[:-1])
        results = np.stack([self.vector((unknown, 1.0)) for unknown in steps])
        knows_results = self.exact(results)
        derived = []
        for k, (unknown, step) in enumerate(list(steps.items())):
            x, single = inputs[k], len(inputs[k]) == 1
            knows_x, knows_result = bool(knows_inputs[k].all()), bool(knows_results[k])
            if knows_x and not knows_result:
                sources = tuple(self._exactly(one) for one in x)
                derived.append(Derivation("function", unknown, sources))
            elif knows_result and not knows_x and single and step.declared.inverse is not None:
                derived.append(Derivation("inverse", unknown, (self._exactly(results[k]),)))
            elif not (knows_x or knows_result) and single:
                ratio = self._ratio(step.declared, x[0], results[k])
                if ratio is not None:
                    source = self._exactly(x[0] + ratio * results[k])
                    derived.append(Derivation("fixed point", unknown, (source,), ratio))
                    continue  # f(x) follows from x in the next pass.
            if knows_x or knows_result:
                del steps[unknown]
        return derived

    def _exactly(self, vector: Matrix) -> Combination:
        combination = self.estimate(vector).combination
        assert combination is not None
        return combination

    def _ratio(self, declared: Nonlinear, x: Matrix, result: Matrix) -> float | None:
        """R such that x + r·f(x) is known and the contraction finds x; None if there is none."""
        if declared.lipschitz is None:
            return None
        hidden = self.hidden_part(np.stack((x, result)))
        rest, along = hidden - (hidden @ self.basis.T) @ self.basis
        ratio = -float(rest @ along) / float(along @ along)
        missing = np.linalg.norm(rest + ratio * along)
        is_known = missing <= EXACT * np.linalg.norm(hidden[0] + ratio * hidden[1])
        return ratio if is_known and abs(ratio) * declared.lipschitz < CONTRACTION else None
