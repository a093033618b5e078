"""Finding: masks that are drawn once, at the start, leave every difference of gradients to a curious neighbour.

γ⁺ = Wγ + g⁺ − g: the masks of LPPA are in γ⁰, and what comes later is added in clear. Who follows γ computes g⁺ − g of
its victim, of any iteration and whatever the size of the masks, and inverts it. Masks drawn anew leave gradients and
differences under noise, and the sum over the honest clients, which no such mask can hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from tacit.auditing.symbolic.findings import Question
from tacit.config.sections import Config, make_config
from tacit_papers.findings.leak_claims import beyond_class, exactly
from tacit_papers.findings.start_masks_figure import leak_figure
from tacit_papers.framework.artifact import Artifact, Cell, Key, Scale
from tacit_papers.framework.claims import Claim
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.framework.trends import falls
from tacit_papers.lppa.attack import ATTACKED
from tacit_papers.lppa.tables import PARTITIONS
from tacit_papers.measures.curious_neighbour import CuriousNeighbour
from tacit_papers.measures.search import Search

CLIENTS = 5
BATCHES, QUICK_BATCHES = ("1", "4", "16"), ("1", "4")
ROUNDS, QUICK_ROUNDS = ("0", "1", "5", "20"), ("0", "1", "5")
PER_ROUND = 20  # iterations, each with a batch of one: the samples of a client
SCALES = (0.025, 0.1, 0.5)  # β of the masks; the first is the paper's

IID, SKEWED, LATER = "IID", "two classes per client", "later, batches of 1"
CLEAR = "gradient, no masks"
START = "difference, masks at start"
SAME = "difference, same batch"
SUM = "sum of 4 clients"
FRESH = "difference, fresh masks"
MASKED = {scale: f"masked gradient, β = {scale:g}" for scale in SCALES}

SMOOTH = 1e-2  # of total variation, where the evidence is noisy: without it noise is matched


def config(
    rule: dict[str, Any], scale: Scale, batch: int, partition: str = "iid", samples: int = 200
) -> Config:
    """Training of five clients on a ring with the network that Table 2 of the LPPA paper is attacked on."""
    return make_config(
        {
            "data": {
                "name": scale.pick("mnist", "mnist-mini"),
                "limit_train": CLIENTS * samples,
                "limit_test": scale.pick(10_000, 500),
            },
            "partition": PARTITIONS[partition],
            "model": ATTACKED["MNIST"] | {"init": "independent"},
            "graph": {"kind": "ring", "clients": CLIENTS},
            "algorithm": {"lr": {"schedule": "exponential", "start": 0.02, "decay": 0.95}, **rule},
            "run": {"batch_size": batch, "rounds": 1},
        }
    )


def masks(beta: float = SCALES[0], *, fresh: bool = False) -> dict[str, Any]:
    """LPPA with masks of this size."""
    return {"name": "lppa", "fresh": fresh, "noise": {"law": "laplace", "scale": beta}}


EVIDENCE: dict[str, tuple[dict[str, Any], Question]] = {
    CLEAR: ({"name": "dsgt"}, "gradient"),
    START: (masks(), "difference"),
    SAME: (masks(), "difference"),
    SUM: (masks(fresh=True), "sum"),
    FRESH: (masks(fresh=True), "difference"),
    **{series: (masks(beta, fresh=True), "gradient") for beta, series in MASKED.items()},
}
NOISY = (FRESH, *MASKED.values())


def _cell(key: Key, scale: Scale, batch: int, iteration: int = 0, **data: Any) -> Cell:
    rule, question = EVIDENCE[key[-1]]
    effort = scale.pick((300, 4), (120, 1))
    search = Search("ours", *effort, total_variation=SMOOTH if key[-1] in NOISY else 0.0)
    setting = config(rule, scale, batch, **data)
    return Cell(key, CuriousNeighbour(setting, question, search, iteration, scale.pick(4, 2)))


def _cells(scale: Scale) -> list[Cell]:
    batches, rounds = scale.pick(BATCHES, QUICK_BATCHES), scale.pick(ROUNDS, QUICK_ROUNDS)
    once = (CLEAR, START, SAME, SUM, *MASKED.values())
    cells = []
    for batch in batches:
        size = int(batch)
        cells += [
            _cell((IID, batch, series), scale, size, samples=size if series == SAME else 200)
            for series in once
        ]
    for batch in scale.pick(BATCHES, QUICK_BATCHES[:1]):
        cells += [
            _cell((SKEWED, batch, series), scale, int(batch), partition="#C = 2")
            for series in once
            if series != SAME  # two classes of a single sample there are not
        ]
    for when in rounds:
        at = int(when) * PER_ROUND
        cells += [
            _cell((LATER, when, series), scale, 1, at, samples=PER_ROUND)
            for series in (START, FRESH)
        ]
    return cells


def _everywhere(series: Sequence[str]) -> list[Key]:
    by_batch = [
        (panel, batch, one) for panel in (IID, SKEWED) for batch in BATCHES for one in series
    ]
    return [*by_batch, *((LATER, when, one) for when in ROUNDS for one in series)]


def _claims() -> list[Claim]:
    ones = [(panel, "1") for panel in (IID, SKEWED)]
    weak, middle, strong = MASKED.values()
    table = "masks hinder DLG (Table 2)"
    return [
        exactly(
            _everywhere([START, SAME]),
            "masks at the start: one neighbour computes differences exactly, at any time",
            known=True,
        ),
        exactly(_everywhere([SUM]), "and, with fresh masks too, the sum over the honest clients", known=True),
        exactly(
            _everywhere(NOISY), "fresh masks: neither a gradient nor a difference is exact", known=False
        ),
        *(
            beyond_class(
                [(panel, "1", START)],
                f"{panel}: differences of batches of 1 give the samples away (class mean + 0.3)",
                table,
                more=True,
                margin=0.3,
            )
            for panel in (IID, SKEWED)
        ),
        beyond_class(
            [(LATER, when, START) for when in ROUNDS],
            "they do so in every round (class mean + 0.3)",
            "not considered",
            more=True,
            margin=0.3,
        ),
        beyond_class(
            [(IID, "4", START), (IID, "4", SAME), (SKEWED, "4", START)],
            "differences of batches of 4 still tell more than the class",
            "not considered",
            more=True,
        ),
        *(
            falls(
                [(panel, batch, START) for batch in BATCHES],
                f"{panel}: larger batches, less from differences",
                "–",
            )
            for panel in (IID, SKEWED)
        ),
        beyond_class(
            [(panel, "16", START) for panel in (IID, SKEWED)],
            "differences of batches of 16 tell no more than the class, to this attack",
            "–",
            more=False,
        ),
        beyond_class(
            [(*one, SUM) for one in ones],
            "batches of 1: the sum of 4 clients tells more than the class too",
            "not considered",
            more=True,
        ),
        beyond_class(
            [(*one, weak) for one in ones],
            "masks of the paper's size hide the first gradient of a batch of 1",
            table,
            more=False,
        ),
        beyond_class(
            [(LATER, when, FRESH) for when in ROUNDS[1:]],
            "fresh masks of that size hide later differences (at most class mean + 0.05)",
            "our claim",
            more=False,
        ),
        beyond_class(
            [(*one, middle) for one in ones], "masks of β = 0.1 hide it", "our claim", more=False
        ),
        beyond_class(
            [(*one, strong) for one in ones], "masks of β = 0.5 hide it", "our claim", more=False
        ),
    ]  # fmt: skip


def _draw(outcome: ArtifactResult) -> Figure:
    labels = {IID: "batch size", SKEWED: "batch size", LATER: "round"}
    return leak_figure(outcome, labels, LATER)


ARTIFACTS = (
    Artifact(
        name="findings/start-masks",
        title="LPPA: what a curious neighbour inverts, with masks at the start and with fresh ones",
        axes=("data", "batch size or round", "evidence"),
        cells=_cells,
        metric="ssim",
        claims=_claims(),
        draw=_draw,
        protocol=(
            "MNIST, 5 clients on a ring, Metropolis weights, 200 samples each, λ = 0.02 · 0.95^round, Laplace(0.025) "
            "masks unless said; the sigmoid CNN of lppa/table2, first weights of their own. One neighbour of each of 4 "
            "victims follows the protocol, reads what it is sent in 6 iterations, and computes by the audit's linear "
            "combination of float32 messages what is inverted: a difference is of two batches, both searched, since "
            "each iteration takes another one ('same batch': each client's batch is all it has). First iteration; or "
            "later, with 20 samples each. A masked gradient is the best linear estimate of the first, the same with "
            "masks at the start; that of later ones is worse with fresh masks, as their noise adds up, so that "
            "differences are inverted there. Relative L2 distance, L-BFGS, 300 iterations, 4 restarts, labels and "
            "batch size told; total variation 0.01 where evidence is noisy (of 0, 0.01 and 0.1 what came nearest for "
            "two victims). A failed attack proves nothing"
        ),
        quickly=(
            "mnist-mini, 2 victims, 120 iterations, 1 restart, one seed; batches of 1 and 4, skewed of 1 only; "
            "rounds 0, 1 and 5"
        ),
        repeats=3,
        quick_repeats=1,
        form=".3f",
        unit="SSIM",
    ),
)
