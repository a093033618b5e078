"""What the ε of DeFL-VP is an ε of: one coordinate in one iteration, and what that makes of a vector and of a run.

The paper's Theorem 1 says that d coordinates of ε₀ each are dε₀, and its Corollary 2 that T rounds are Tε; its
experiments state ε from 0.5 to 8. That cannot be the ε of a vector: with ε₀ = ε/d, as in Corollary 1, signs are coin
tosses and nothing is learnt. Here the accountant says what the ε of the experiments is for a vector and for a run,
pure and with δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from matplotlib.figure import Figure

from tacit.config.sections import Config
from tacit.report.style import INK, PALETTE, MARKERS, plot_style
from tacit_papers.defl_vp.setting import PROTOCOL, QUICKLY, config
from tacit_papers.defl_vp.tables import TABLE3
from tacit_papers.framework.artifact import Artifact, Cell, Published, Scale
from tacit_papers.framework.claims import Claim, ClaimVerdict, all_or_some
from tacit_papers.framework.columns import Column, column_claims
from tacit_papers.framework.drawing import beside_paper
from tacit_papers.framework.outcome import ArtifactResult, Missing
from tacit_papers.measures.response_budget import ResponseBudget
from tacit_papers.measures.training import Training

EPSILONS = tuple(key[0] for key in TABLE3[0].paper)  # 0.5 to 8
PARAMETERS = 18_378  # of the CNN
QUICK_PARAMETERS = 5_994  # of the smaller one that a quick version trains
SENT = round(0.4 * PARAMETERS)  # coordinates that C keeps
ITERATIONS = 200 * 46  # of one run: 200 rounds, each 60,000 samples / 10 clients / batch 128
DELTA = 1e-5
STATED = "one coordinate, one iteration"
# Coordinates, iterations and δ of each scope.
SCOPES: dict[str, tuple[int, int, float]] = {
    STATED: (1, 1, 0.0),
    "one vector": (PARAMETERS, 1, 0.0),
    "one vector, δ = 10⁻⁵": (PARAMETERS, 1, DELTA),
    "200 exchanges": (PARAMETERS, 200, 0.0),
    "200 exchanges, δ = 10⁻⁵": (PARAMETERS, 200, DELTA),
    "whole run": (PARAMETERS, ITERATIONS, 0.0),
    "whole run, δ = 10⁻⁵": (PARAMETERS, ITERATIONS, DELTA),
    "whole run, 40 % sent, δ = 10⁻⁵": (SENT, ITERATIONS, DELTA),
}
RUN = "whole run, 40 % sent, δ = 10⁻⁵"
VECTOR = "one vector, δ = 10⁻⁵"
MEANINGFUL = 10.0  # above it, e^ε > 22,000: a guarantee in name


STEPS = ("η = 0.01", "η = 0.01 (2p − 1)")
TRAINED = Column(
    "accuracy",
    "accuracy (%)",
    {(e, step): paper for (e,), paper in TABLE3[0].paper.items() for step in STEPS},
    1.0,
)


def _cells(scale: Scale) -> list[Cell]:
    return [
        Cell(
            (scope, epsilon),
            ResponseBudget(float(epsilon), coordinates, iterations, delta),
            Published(float(epsilon)),
        )
        for scope, (coordinates, iterations, delta) in SCOPES.items()
        for epsilon in EPSILONS
    ]


def at_most(scope: str, text: str) -> Claim:
    """A claim that every ε of a scope is one that means something."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        found = [outcome.mean((scope, epsilon)) for epsilon in EPSILONS]
        small = [one <= MEANINGFUL for one in found]
        words = f"{min(found):.4g} to {max(found):.4g}"
        return ClaimVerdict(
            all_or_some(small), words, f"at most {MEANINGFUL:g} would mean something"
        )

    return Claim(text, f"ε = {EPSILONS[0]} to {EPSILONS[-1]}", check)


def _draw(outcome: ArtifactResult) -> Figure:
    with plot_style():
        figure = Figure(figsize=(6.8, 4.6), layout="constrained")
        axes = figure.add_subplot()
        for number, scope in enumerate(outcome.places(0)):
            cells = [cell for cell in outcome.measured if cell.key[0] == scope]
            axes.plot(
                [float(cell.key[1]) for cell in cells],
                [outcome.mean(cell.key) for cell in cells],
                marker=MARKERS[number % len(MARKERS)],
                color=INK if scope == STATED else PALETTE[(number - 1) // 2 % len(PALETTE)],
                linestyle="--" if "δ" in scope else "-",
                label=f"{scope} (as stated)" if scope == STATED else scope,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks([float(e) for e in EPSILONS], EPSILONS)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(_power)
        axes.set_xlabel("ε that the paper states")
        axes.set_ylabel("ε that is guaranteed")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _power(value: float, place: float) -> str:
    """A tick of a logarithmic axis: texts of figures are not read as formulas."""
    return "10" + str(round(math.log10(value))).translate(
        str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    )


def _per_vector(scale: Scale) -> list[Cell]:
    return [
        Cell((e, step), Training(_of_vector(float(e), step, scale)), Published(paper))
        for (e, step), paper in TRAINED.paper.items()
        if paper is not None and e in scale.pick(EPSILONS, EPSILONS[-1:])
    ]


def _of_vector(epsilon: float, step: str, scale: Scale) -> Config:
    """ε₀ = ε/d; and a step of 0.01 per coordinate, where responses are as large as 1/(2p − 1), or what it comes to."""
    coordinate = epsilon / scale.pick(PARAMETERS, QUICK_PARAMETERS)
    shrunk = math.tanh(coordinate / 2)  # 2p − 1
    return config(scale, {"epsilon": coordinate, "lr": 0.01 if step == STEPS[0] else 0.01 * shrunk})


def nothing_learnt(keys: Callable[[ArtifactResult], list[tuple[str, ...]]]) -> Claim:
    """The claim that models know no more than a guess when ε is that of the vector."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        found = [max(outcome[key].numbers("accuracy")) for key in keys(outcome)]
        if not found:
            raise Missing
        guess = [one <= 20.0 for one in found]
        return ClaimVerdict(
            all_or_some(guess), f"at most {max(found):.1f} %", "one class of ten is 10 %"
        )

    return Claim(
        "with ε₀ = ε/d, as Corollary 1 has it, models learn nothing (our claim)",
        "78.4 to 90.0 %",
        check,
    )


ARTIFACTS = (
    Artifact(
        name="findings/epsilon",
        title="DeFL-VP: the ε of a coordinate, of a vector and of a run",
        axes=("scope", "stated ε"),
        cells=_cells,
        metric="epsilon",
        claims=[
            at_most(STATED, "the ε that is stated holds for one coordinate in one iteration"),
            at_most(VECTOR, "the ε that is stated holds for one message, with δ = 10⁻⁵"),
            at_most(
                RUN, "the ε that is stated holds for a run, with δ = 10⁻⁵, counting sent signs only"
            ),
        ],
        draw=_draw,
        protocol=(
            f"Computed, not measured: randomized response of ε₀ = the paper's ε on each of d = {PARAMETERS:,} "
            f"coordinates (the CNN of defl-vp/table3; the paper names no model), {ITERATIONS:,} iterations (200 rounds "
            "of 46 batches; 200 if a round is one exchange), in the worst case that all signs differ; pure, and at δ "
            "by the exact binomial. It holds only if nothing else of the gradient is sent: as published, the variates "
            "are, and there is no ε at all (findings/control-variates). With C, 40 % of the signs are sent"
        ),
        quickly="nothing is smaller",
        repeats=1,
        quick_repeats=1,
        form=".4g",
        unit="nats",
    ),
    Artifact(
        name="findings/epsilon-vector",
        title="DeFL-VP with the ε of Table 3 taken for the whole vector: ε₀ = ε/d",
        axes=("ε", "step"),
        cells=_per_vector,
        metric="accuracy",
        claims=[
            nothing_learnt(lambda outcome: [cell.key for cell in outcome.measured]),
            *column_claims([TRAINED]),
        ],
        draw=beside_paper("accuracy (%)"),
        protocol=f"{PROTOCOL}; but each coordinate has ε₀ = ε/d, so that one message has the ε "
        "stated (Corollary 1); with the paper's η, and with one that makes each coordinate's step 0.01 again",
        quickly=f"{QUICKLY}; d = {QUICK_PARAMETERS:,}; only the largest ε",
        repeats=3,
        quick_repeats=1,
    ),
)
