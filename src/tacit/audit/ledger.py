"""The ledger: what differential privacy guarantees a client against an adversary, or that it guarantees nothing.

Two neighbouring runs differ in all data of one client; each of its clipped gradients may differ by Δ = 2C. The bound is
for everything the adversary sees in the whole run, and to be sound it is taken against a stronger one, who also reads
every message that is not private and knows the data and the first models of all other clients. What such a view says of
the victim, in an orthonormal basis, is

    y = S G + N ξ,    G its gradients [T, P],  ξ noise of unit deviation

If some combination has no noise but a gradient in it, there is no guarantee, and the ledger names it. Otherwise

    Laplace(β)   ε = Σₜ ‖Lₜ‖₁ Δ/β' for any L with N L = S: noise shifted by L·dG hides the change (β' = 1/√2, the scale
                 of unit deviation)
    Gaussian     ε(δ) of a Gaussian mechanism with μ² = Δ² min(T λ_max(F), Σₜₛ |Fₜₛ|),  F = Sᵀ(N Nᵀ)⁺S

which holds for gradients that depend on what was said before (for Gaussian noise: Denisov et al. 2022), provided that
the places where gradients are taken are known from what was said; this is checked. Non-linear steps count with the
budget they declare (randomized response) or, where they declare none, give no guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg, optimize

from tacit.audit.adversary import Adversary
from tacit.audit.echelon import Matrix
from tacit.audit.findings import Findings
from tacit.audit.knowledge import Combination, Knowledge
from tacit.audit.symbols import SymbolicRun
from tacit.errors import Misuse
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.accounting.laplace import ASSUMPTIONS as LAPLACE_ASSUMPTIONS
from tacit.privacy.accounting.laplace import sum_pure_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.privacy.accounting.randomized_response import response_epsilon, response_pure_epsilon
from tacit.privacy.clipping import Clip
from tacit.privacy.noise import Gaussian, Laplace, Noise
from tacit.record.unknowns import Unknown

NO_GUARANTEE = "no differential-privacy guarantee"
SILENT = 1e-7  # singular values of N below this share of the largest are combinations without noise
SPOKEN = 1e-6  # coefficients of gradients above this are in a combination
HEARD = 1e-12  # … and above this in what is seen: beside much noise they are small, and yet not nothing
LARGEST_PROGRAM = (
    2_000_000  # entries of N up to which the least shift is sought; beyond, a short one is taken
)


@dataclass(frozen=True)
class Entry:
    """One line: what is guaranteed, for which scope, and why."""

    scope: str
    epsilon: float  # infinite: none
    delta: float  # 0 for a pure guarantee
    why: str
    assumptions: tuple[str, ...] = ()
    combination: Combination | None = None  # the one without noise, where that is the reason

    @property
    def words(self) -> str:
        """The guarantee in one phrase."""
        if math.isinf(self.epsilon):
            return NO_GUARANTEE
        return f"ε = {self.epsilon:.4g}" + (f" at δ = {self.delta:g}" if self.delta else "")

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "scope": self.scope,
            "guarantee": self.words,
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "delta": self.delta,
            "why": self.why,
            "assumptions": list(self.assumptions),
        }


@dataclass(frozen=True)
class Ledger:
    """All lines for one victim and one adversary; the first is the one that counts."""

    victim: int
    adversary: str
    entries: tuple[Entry, ...]

    @property
    def upper(self) -> Entry:
        """The guarantee for everything the adversary sees."""
        return self.entries[0]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "victim": self.victim,
            "adversary": self.adversary,
            "entries": [entry.as_dict() for entry in self.entries],
        }


def ledger(
    run: SymbolicRun,
    adversary: Adversary,
    victim: int,
    *,
    clip: Clip | None,
    parameters: int,
    delta: float = 1e-5,
) -> Ledger:
    """What is guaranteed to a victim after a run, by the noise and the budgets that the algorithm declared."""
    if not 0 < delta < 1:
        raise Misuse(f"delta is {delta!r}.", "Give a number between 0 and 1, e.g. 1e-5.")
    stronger = replace(adversary | Adversary.eavesdropper(), knows_theta0=True)
    know = Knowledge(run, stronger)
    entries = [_whole_view(know, victim, clip, parameters, delta)]
    alone = _one_message(run, adversary, victim, clip, delta)
    return Ledger(victim, str(adversary), (*entries, *alone))


def _whole_view(know: Knowledge, victim: int, clip: Clip | None, parameters: int, delta: float) -> Entry:
    scope = f"everything that {know.adversary} sees in {know.run.steps} iterations"
    names = know.hidden
    heard = np.abs(know.basis).max(axis=0, initial=0.0) > HEARD

    def columns(kind: str) -> list[int]:
        return [k for k, u in enumerate(names) if heard[k] and u.kind == kind and victim == u.client]

    gradients, steps = columns("gradient"), columns("nonlinear")
    noise = [k for k, u in enumerate(names) if heard[k] and u.kind == "noise"]
    budgets, open_step = _budgets(know.run, [names[k] for k in steps])
    if open_step is not None:
        why = f"the non-linear step {open_step} of its gradients is seen, and declares no budget"
        return Entry(scope, math.inf, 0.0, why)
    spent = [] if not budgets else [_responses(scope, budgets, parameters, delta)]
    if gradients:
        basis = know.basis
        linear = _linear(
            know, victim, clip, basis[:, gradients], basis[:, noise], [names[k] for k in noise], delta
        )
        spent.append(replace(linear, scope=scope))
    if not spent:
        return Entry(scope, 0.0, 0.0, "no message depends on its data")
    if len(spent) == 1:
        return spent[0]
    first, second = spent
    if math.isinf(second.epsilon):
        return second
    both = first.epsilon + second.epsilon
    return Entry(
        scope,
        both,
        first.delta + second.delta,
        f"{first.why}; {second.why}",
        first.assumptions + second.assumptions,
    )


def _budgets(run: SymbolicRun, steps: list[Unknown]) -> tuple[dict[Unknown, float], Unknown | None]:
    """The budgeted steps behind those seen, and one that works on gradients with none, if there is one."""
    found: dict[Unknown, float] = {}
    pending, done = list(steps), set(steps)
    while pending:
        name = pending.pop()
        step = run.nonlinear_steps[name]
        if step.epsilon is not None:
            found[name] = step.epsilon
            continue
        inputs = [run.unknowns[k] for k in np.flatnonzero(step.rows.numpy())]
        if any(u.kind == "gradient" and u.client == name.client for u in inputs):
            return found, name
        own = [u for u in inputs if u.kind == "nonlinear" and u.client == name.client and u not in done]
        pending += own
        done.update(own)
    return found, None


def _responses(scope: str, budgets: dict[Unknown, float], parameters: int, delta: float) -> Entry:
    largest, uses = max(budgets.values()), len(budgets) * parameters
    pure = response_pure_epsilon(largest, parameters, len(budgets))
    epsilon = response_epsilon(delta, largest, uses)
    why = (
        f"randomized response of {largest:g} per coordinate, {parameters:,} coordinates, {len(budgets)} times: "
        f"pure ε = {pure:.4g}"
    )
    if epsilon >= pure:
        return Entry(scope, pure, 0.0, why)
    return Entry(scope, epsilon, delta, f"{why}; less with δ, by the exact binomial law or Rényi's bound")


def _linear(
    know: Knowledge,
    victim: int,
    clip: Clip | None,
    signal: Matrix,
    noise: Matrix,
    names: list[Unknown],
    delta: float,
) -> Entry:
    """The guarantee of additive noise: y = S G + N ξ."""
    silent = linalg.null_space(noise.T, rcond=SILENT) if noise.size else np.eye(len(signal))
    bare = silent.T @ signal
    if bare.size and np.abs(bare).max() > SPOKEN:
        return _cancelled(know, victim, bool(noise.size))
    if clip is None:
        return Entry(
            "", math.inf, 0.0, "gradients are not clipped: there is no bound on what one client can change"
        )
    if (missing := _unseen_point(know, victim)) is not None:
        why = f"{missing} depends on noise that is not seen, in a way that is not linear: no bound is proved"
        return Entry("", math.inf, 0.0, why)
    laws = [know.run.laws[name] for name in names]
    noise = noise * know.run.unit  # from here on of unit deviation
    bounds = [_laplace_bound(clip, signal, noise, laws), _gaussian_bound(clip, signal, noise, laws, delta)]
    return min(bounds, key=lambda entry: entry.epsilon)


def _cancelled(know: Knowledge, victim: int, masked: bool) -> Entry:
    """No guarantee, with a combination that shows it: the simplest question that is answered exactly."""
    if not masked:
        why = "its gradients are sent without noise"
    else:
        why = "noise cancels in a combination of messages that contains its gradients"
    found = Findings(know, victim)
    for question in ("gradient", "difference", "sum"):
        series = found.of(question)
        if exact := series.places("exact"):
            terms, coefficients = found.terms(question, exact[0])
            shown = " ".join(f"{c:+g}·{u}" for u, c in zip(terms[:6], coefficients, strict=False))
            more = " + …" if len(terms) > 6 else ""
            return Entry("", math.inf, 0.0, f"{why}: {shown}{more}", (), series.ask(exact[0]).combination)
    return Entry("", math.inf, 0.0, f"{why} and those of others")


def _unseen_point(know: Knowledge, victim: int) -> Unknown | None:
    """A gradient or a non-linear step whose input is no function of what is seen and of the others' data."""
    run, names = know.run, know.hidden
    given = np.array([u.kind != "noise" and u.client != victim for u in names], dtype=bool)
    heard = {names[k] for k in np.flatnonzero(np.abs(know.basis).max(axis=0, initial=0.0) > HEARD)}
    numbers = sorted({u.when for u in heard if u.kind == "gradient"})
    inputs = {
        Unknown("gradient", number, client): run.points[number][client]
        for number in numbers
        for client in range(run.clients)
    }
    inputs |= {u: run.nonlinear_steps[u].rows for u in heard if u.kind == "nonlinear" and u.client != victim}
    if not inputs:
        return None
    wanted = know.hidden_part(np.stack([know.widened(row) for row in inputs.values()]))[:, ~given]
    _, sizes, span = np.linalg.svd(know.basis[:, ~given], full_matrices=False)
    span = span[sizes > SILENT]
    missing = np.linalg.norm(wanted - wanted @ span.T @ span, axis=1)
    for place in np.flatnonzero(missing > SPOKEN * np.linalg.norm(wanted, axis=1)):
        return list(inputs)[place]
    return None


def _laplace_bound(clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise]) -> Entry:
    """ε = Σₜ ‖Lₜ‖₁ Δ √2 with N L = S over the Laplace noise; other noise is given away."""
    use = [k for k, law in enumerate(laws) if isinstance(law, Laplace)]
    if not use:
        return Entry("", math.inf, 0.0, "there is no Laplace noise")
    if clip.norm != "l1":
        return Entry("", math.inf, 0.0, "Laplace noise needs gradients clipped in the L1 norm")
    shifts = _shifts(noise[:, use], signal)
    if shifts is None:
        return Entry("", math.inf, 0.0, "the Laplace noise alone does not cover its gradients")
    epsilon = float(np.abs(shifts).sum()) * math.sqrt(2) * clip.sensitivity
    why = f"Laplace noise, L1 sensitivity {clip.sensitivity:g} of each of {signal.shape[1]} gradients"
    return Entry("", epsilon, 0.0, why, (LAPLACE_ASSUMPTIONS,))


def _gaussian_bound(clip: Clip, signal: Matrix, noise: Matrix, laws: list[Noise], delta: float) -> Entry:
    """ε(δ) with μ² = Δ² min(T λ_max(F), Σ|F|) over the Gaussian noise; other noise is given away."""
    use = [k for k, law in enumerate(laws) if isinstance(law, Gaussian)]
    if not use:
        return Entry("", math.inf, 0.0, "there is no Gaussian noise")
    gaussian = noise[:, use]
    left, sizes, _ = np.linalg.svd(gaussian, full_matrices=False)
    seen = sizes > SILENT * sizes.max()
    along = left[:, seen].T @ signal
    if np.linalg.norm(signal - left[:, seen] @ along) > SPOKEN * np.linalg.norm(signal):
        return Entry("", math.inf, 0.0, "the Gaussian noise alone does not cover its gradients")
    white = along / sizes[seen, None]
    fisher = white.T @ white
    terms = len(fisher)
    squared = min(terms * float(np.linalg.eigvalsh(fisher).max()), float(np.abs(fisher).sum()))
    mu = clip.sensitivity * math.sqrt(squared)  # an L1 bound is an L2 bound too
    why = f"Gaussian noise, sensitivity {clip.sensitivity:g} of each of {terms} gradients: μ = {mu:.4g}"
    return Entry("", gaussian_epsilon(delta, mu), delta, why, ("gradients may depend on earlier messages",))


def _shifts(noise: Matrix, signal: Matrix) -> Matrix | None:
    """L [n, T] with N L = S and short columns in the L1 norm; None if there is none."""
    least, *_ = np.linalg.lstsq(noise, signal, rcond=SILENT)
    if np.linalg.norm(noise @ least - signal) > SPOKEN * np.linalg.norm(signal):
        return None
    if noise.size > LARGEST_PROGRAM:
        return np.asarray(least)
    left, sizes, right = np.linalg.svd(noise, full_matrices=False)
    seen = sizes > SILENT * sizes.max()
    equations = np.concatenate((right[seen], -right[seen]), axis=1)
    shifts = np.array(least)
    for column in range(signal.shape[1]):
        wanted = (left[:, seen].T @ signal[:, column]) / sizes[seen]
        solved = optimize.linprog(np.ones(equations.shape[1]), A_eq=equations, b_eq=wanted, method="highs")
        if solved.x is None:
            continue
        plus, minus = np.split(solved.x, 2)
        if np.linalg.norm(noise @ (plus - minus) - signal[:, column]) <= SPOKEN * np.linalg.norm(signal):
            shifts[:, column] = plus - minus
    return shifts


def _one_message(
    run: SymbolicRun, adversary: Adversary, victim: int, clip: Clip | None, delta: float
) -> list[Entry]:
    """The first message with a gradient of the victim, seen alone: how many noise terms the adversary lacks."""
    if clip is None:
        return []
    for message in run.transcript.messages:
        rows = [k for k, source in enumerate(message.source.tolist()) if source == victim]
        for row in rows:
            said = [
                (run.unknowns[k], float(message.rows[row, k]))
                for k in np.flatnonzero(message.rows[row].numpy())
            ]
            own = [abs(x) for u, x in said if u.kind == "gradient" and u.client == victim]
            if own and bool(adversary.sees(message, run.transcript.edges)[row]):
                if not _additive(run, [u for u, _ in said]):
                    return []
                terms = [(u, abs(x)) for u, x in said if u.kind == "noise" and not adversary.knows(u)]
                return _sum_of_terms(message.tag, message.tick, own, terms, run, clip, delta)
    return []


def _additive(run: SymbolicRun, said: list[Unknown]) -> bool:
    """Whether noise is only added in a message: no non-linear step is in it, nor behind where gradients were taken."""
    inputs = [run.points[u.when][u.client] for u in said if u.kind == "gradient"]
    behind = [run.unknowns[k] for point in inputs for k in np.flatnonzero(point.numpy())]
    return not any(u.kind == "nonlinear" for u in said + behind) and not any(
        u.kind == "noise" for u in behind
    )


def _sum_of_terms(
    tag: str,
    tick: int,
    own: list[float],
    terms: list[tuple[Unknown, float]],
    run: SymbolicRun,
    clip: Clip,
    delta: float,
) -> list[Entry]:
    scope = f"the message {tag}({tick}) alone, {len(terms)} noise terms unknown"
    if not terms:
        return [Entry(scope, math.inf, 0.0, "the adversary knows every noise term in it")]
    laws = {run.laws[u] for u, _ in terms}
    size = terms[0][1]
    alike = all(math.isclose(x, size, rel_tol=1e-9) for _, x in terms)
    law = next(iter(laws))
    if len(laws) > 1 or not alike or not isinstance(law, Laplace) or clip.norm != "l1":
        return []
    # A coefficient of noise times the unit is the deviation √2 β of its term.
    ratio = sum(own) * clip.sensitivity / (size * run.unit / math.sqrt(2))
    pure = sum_pure_epsilon(ratio, len(terms))
    within = PrivacyLoss.laplace(ratio, len(terms)).epsilon(delta)
    why = f"{len(terms)} unknown Laplace terms, Δ/β = {ratio:.4g}"
    entries = [Entry(scope, pure, 0.0, why, (LAPLACE_ASSUMPTIONS,))]
    if within < pure:
        entries.append(Entry(scope, within, delta, why, (LAPLACE_ASSUMPTIONS,)))
    return entries
