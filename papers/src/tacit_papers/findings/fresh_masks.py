"""Finding: what LPPA's masks cost and hide when they are drawn anew in every iteration instead of once.

Fresh masks sum to zero over the clients as those of the start do, so that the sum of all trackers is untouched. But
each model moves by λ times its own tracker, masks and all: with fresh ones the models never come together, and
gradients are taken where they are apart.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.config.sections import Config, with_keys
from tacit.report.style import MUTED, PALETTE, MARKERS, plot_style
from tacit_papers.findings.start_masks import SCALES, masks
from tacit_papers.framework.artifact import Artifact, Cell, Key, Scale
from tacit_papers.framework.claims import Claim, ClaimVerdict, all_or_some, graded
from tacit_papers.framework.drawing import HEIGHT
from tacit_papers.framework.outcome import ArtifactResult, Missing
from tacit_papers.lppa.tables import PROTOCOL
from tacit_papers.lppa.tables import config as published
from tacit_papers.measures.neighbours_knowledge import AHEAD, NeighboursKnowledge
from tacit_papers.measures.together import Together
from tacit_papers.measures.training import Training

NONE, START, FRESH = "no masks", "masks at the start", "fresh masks"
PLAIN: Key = ("0", NONE)
BETAS = tuple(f"{beta:g}" for beta in SCALES)
NOTHING, QUICK_NOTHING = 0.1, 1.0  # points; few rounds are too few for masks of the start to fade
AUDITED = 5  # first iterations of which it is asked what neighbours know
QUESTIONS = {
    "gradient": "its gradient",
    "difference": "gradient\ndifferences",
    "sum": "the honest\nsum",
}


def config(beta: str, rule: str, scale: Scale) -> Config:
    """The LPPA paper's experiment on MNIST."""
    algorithm = {} if rule == NONE else masks(float(beta), fresh=rule == FRESH)
    whole = published("MNIST", "DSGT", scale, algorithm=algorithm)
    if not scale.quick:
        return whole
    small = with_keys(whole, "data", name="mnist-mini", limit_train=4000, limit_test=500)
    return with_keys(small, "run", batch_size=8, rounds=5)


def _cells(scale: Scale) -> list[Cell]:
    def of(key: Key) -> Cell:
        setting = config(key[0], key[1], scale)
        return Cell(key, Together((Training(setting), NeighboursKnowledge(setting, AUDITED))))

    return [of(PLAIN), *(of((beta, rule)) for beta in BETAS for rule in (START, FRESH))]


def _costs(beta: str, rule: str) -> Claim:
    """A claim that clients' models lose next to nothing against those without masks."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        if PLAIN not in outcome or (beta, rule) not in outcome:
            raise Missing
        lost = statistics.fmean(outcome.differences(PLAIN, (beta, rule)))
        most = outcome.scale.pick(NOTHING, QUICK_NOTHING)
        return ClaimVerdict(graded(lost, most), f"{lost:+.2f}", f"tolerance {most:g}")

    text = f"{rule}, β = {beta}: models lose nothing against DSGT (points)"
    return Claim(text, "lossless" if rule == START else "not considered", check)


def _apart() -> Claim:
    def check(outcome: ArtifactResult) -> ClaimVerdict:
        plain = outcome.mean(PLAIN, "consensus_distance")
        found = [
            outcome.mean((beta, FRESH), "consensus_distance")
            for beta in BETAS
            if (beta, FRESH) in outcome
        ]
        if not found:
            raise Missing
        words = " < ".join(f"{one:.3g}" for one in found)
        return ClaimVerdict(
            all_or_some([one > 2 * plain for one in found]), words, f"without masks {plain:.3g}"
        )

    return Claim(
        "fresh masks keep models apart: root mean square of ‖θᵢ − θ̄‖, by β", "our claim", check
    )


def _known(question: str, rule: str, text: str, *, as_without: bool) -> Claim:
    """A claim about the share of neighbours with exact knowledge: as large as without masks, or none."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        metric = f"{question}_exact"
        found = [outcome.mean((beta, rule), metric) for beta in BETAS if (beta, rule) in outcome]
        if not found:
            raise Missing
        plain = outcome.mean(PLAIN, metric)
        wanted = plain if as_without else 0.0
        right = [math.isclose(one, wanted, abs_tol=1e-9) for one in found]
        return ClaimVerdict(
            all_or_some(right), f"{max(found):.0%} of pairs", f"without masks {plain:.0%}"
        )

    return Claim(text, "our claim", check)


def _grows(rule: str, times: float, text: str) -> Claim:
    """A claim about how the noise in the estimate of a gradient changes from the first to the last audited."""

    def check(outcome: ArtifactResult) -> ClaimVerdict:
        keys = [(beta, rule) for beta in BETAS if (beta, rule) in outcome]
        if not keys:
            raise Missing
        found = [
            outcome.mean(k, "gradient_noise_later") / outcome.mean(k, "gradient_noise")
            for k in keys
        ]
        right = [abs(one - times) <= 0.02 * times for one in found]
        return ClaimVerdict(all_or_some(right), f"× {min(found):.3g} to {max(found):.3g}")

    return Claim(text, f"× {times:.3g}", check)


def _draw(outcome: ArtifactResult) -> Figure:
    """Accuracy, what is known exactly, and the noise in the rest."""
    with plot_style():
        figure = Figure(figsize=(10.5, HEIGHT), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        _accuracy(left, outcome)
        _shares(middle, outcome)
        _noises(right, outcome)
    return figure


def _accuracy(axes: Axes, outcome: ArtifactResult) -> None:
    if PLAIN in outcome:
        axes.axhline(outcome.mean(PLAIN), color=MUTED, linestyle=":", linewidth=2, label=NONE)
    for number, rule in enumerate((START, FRESH)):
        here = [beta for beta in BETAS if (beta, rule) in outcome]
        keys = [(beta, rule) for beta in here]
        at = [BETAS.index(beta) for beta in here]
        axes.errorbar(
            at, [outcome.mean(key) for key in keys], yerr=[outcome.deviation(key) or 0.0 for key in keys],
            fmt=MARKERS[number] + "-", color=PALETTE[number], label=rule, capsize=2,
        )  # fmt: skip
    axes.set_xticks(range(len(BETAS)), BETAS)
    axes.set_xlabel("size β of the masks")
    axes.set_ylabel("accuracy (%)")
    axes.set_ylim(0, 100)
    axes.set_xlim(-0.2, len(BETAS) - 0.8)
    axes.set_title("accuracy of the clients' models", color=MUTED, fontsize=10)
    axes.legend(loc="lower left")


def _shares(axes: Axes, outcome: ArtifactResult) -> None:
    rules: Sequence[tuple[str, str]] = ((MUTED, NONE), (PALETTE[0], START), (PALETTE[1], FRESH))
    for number, (colour, rule) in enumerate(rules):
        key = next((cell.key for cell in outcome.measured if cell.key[1] == rule), None)
        if key is None:
            continue
        shares = [100 * outcome.mean(key, f"{question}_exact") for question in QUESTIONS]
        at = [place + 0.27 * (number - 1) for place in range(len(QUESTIONS))]
        bars = axes.bar(at, shares, width=0.25, color=colour, label=rule)
        axes.bar_label(bars, [f"{share:.0f}" for share in shares], fontsize=8)
    axes.set_xticks(range(len(QUESTIONS)), list(QUESTIONS.values()))
    axes.set_ylim(0, 108)
    axes.set_ylabel("pairs of neighbours (%)")
    axes.set_title("what one neighbour computes exactly", color=MUTED, fontsize=10)


def _noises(axes: Axes, outcome: ArtifactResult) -> None:
    shown = (
        (START, "gradient_noise_later", "-", "masks at the start, any iteration"),
        (FRESH, "gradient_noise", "--", "fresh masks, first iteration"),
        (FRESH, "gradient_noise_later", "-", f"fresh masks, {AUDITED}th"),
    )
    for rule, metric, line, label in shown:
        here = [beta for beta in BETAS if (beta, rule) in outcome]
        number = (START, FRESH).index(rule)
        axes.plot(
            [BETAS.index(beta) for beta in here], [outcome.mean((beta, rule), metric) for beta in here],
            MARKERS[number] + line, color=PALETTE[number], label=label,
        )  # fmt: skip
        if here:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xticks(range(len(BETAS)), BETAS)
    axes.set_xlabel("size β of the masks")
    axes.set_xlim(-0.2, len(BETAS) - 0.8)
    axes.set_ylabel("deviation per coordinate")
    axes.set_title("noise left in its gradient", color=MUTED, fontsize=10)
    axes.legend(loc="upper left", fontsize=8, handlelength=4)


ARTIFACTS = (
    Artifact(
        name="findings/fresh-masks",
        title="LPPA on MNIST: accuracy and leak with masks at the start and with fresh ones",
        axes=("β", "masks"),
        cells=_cells,
        metric="accuracy",
        claims=[
            *(_costs(beta, rule) for rule in (START, FRESH) for beta in BETAS),
            _apart(),
            _known(
                "difference",
                START,
                "masks at the start: as many neighbours compute differences exactly as without masks",
                as_without=True,
            ),
            _known("gradient", START, "masks at the start: none computes a gradient", as_without=False),
            _known("difference", FRESH, "fresh masks: none computes a difference", as_without=False),
            _known(
                "sum", FRESH, "fresh masks: as many compute the honest sum as without masks", as_without=True
            ),
            _grows(START, 1.0, "masks at the start: the noise in a gradient stays what it is"),
            _grows(
                FRESH,
                math.sqrt(AUDITED),
                "fresh masks: it grows by every iteration, as the root of their number",
            ),
        ],
        draw=_draw,
        protocol=(
            f"{PROTOCOL}; here β as said, and fresh masks in every iteration beside those of the start. Accuracy is "
            "the mean over the clients' own models. Every client that hears another is asked alone what it computes "
            f"of the other's first {AUDITED} gradients, differences and sums over the honest clients that the other is "
            f"connected with, from {AUDITED + AHEAD} iterations, by the audit: shares are of all pairs and iterations, "
            "noise is the median over pairs. The audit does not look at data; what it says of the first iterations it "
            "says of any"
        ),
        quickly="mnist-mini: 800 samples per client, batch 8, 5 rounds, one seed",
        repeats=3,
        quick_repeats=1,
    ),
)  # fmt: skip
