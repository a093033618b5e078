"""Finding: masks that are drawn once, at the start, reveal every difference of gradients.

γ⁺ = Wγ + g⁺ − g: the masks of LPPA are in γ⁰, and later terms are added in clear. A curious
neighbour that follows γ computes g⁺ − g of its victim, in any iteration and for masks of any size,
and inverts it. Fresh masks leave gradients and differences under noise, and the sum over the honest
clients, which no such mask can hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tacit.auditing.symbolic.leakage import Question
from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit_papers.findings.leak_claims import beyond_class, computed_exactly
from tacit_papers.findings.start_masks_figure import leak_figure
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Key, Scale
from tacit_papers.framework.claims import Claim, falls
from tacit_papers.framework.contradictions import Cause, Contradiction
from tacit_papers.lppa.deep_leakage import ATTACKED
from tacit_papers.lppa.setting import PARTITIONS
from tacit_papers.measures.evidence_inversion import NeighbourInversion
from tacit_papers.measures.inversion_search import InversionSearch

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
NOISY = (FRESH, *MASKED.values())
SMOOTH = 1e-2  # weight of total variation for noisy evidence: without it the search fits the noise


def config(
    rule: dict[str, Any], scale: Scale, batch: int, partition: str = "iid", samples: int = 200
) -> Config:
    """Five clients on a ring with the network that is attacked in Table 2 of the LPPA paper.

    Args:
        rule: The section of the algorithm.
        scale: Full or quick.
        batch: Batch size.
        partition: A key of the LPPA paper's `PARTITIONS`.
        samples: Training samples per client.
    """
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


def _cell(key: Key, scale: Scale, batch: int, iteration: int = 0, **data: Any) -> Cell:
    rule, question = EVIDENCE[key[-1]]
    effort = scale.pick((300, 4), (120, 1))
    smooth = SMOOTH if key[-1] in NOISY else 0.0
    search = InversionSearch("ours", *effort, total_variation=smooth)
    setting = config(rule, scale, batch, **data)
    return Cell(key, NeighbourInversion(setting, question, search, iteration, scale.pick(4, 2)))


def _cells(scale: Scale) -> list[Cell]:
    first = (CLEAR, START, SAME, SUM, *MASKED.values())
    return [
        *(
            _cell(
                (IID, batch, series),
                scale,
                int(batch),
                samples=int(batch) if series == SAME else 200,
            )
            for batch in scale.pick(BATCHES, QUICK_BATCHES)
            for series in first
        ),
        *(
            _cell((SKEWED, batch, series), scale, int(batch), partition="#C = 2")
            for batch in scale.pick(BATCHES, QUICK_BATCHES[:1])
            for series in first
            # A single sample has one class, not two.
            if series != SAME
        ),
        *(
            _cell((LATER, when, series), scale, 1, int(when) * PER_ROUND, samples=PER_ROUND)
            for when in scale.pick(ROUNDS, QUICK_ROUNDS)
            for series in (START, FRESH)
        ),
    ]


def _everywhere(*series: str) -> list[Key]:
    columns = [(panel, batch) for panel in (IID, SKEWED) for batch in BATCHES]
    columns += [(LATER, when) for when in ROUNDS]
    return [(*column, one) for column in columns for one in series]


def _over_batches(series: str, *batches: str) -> list[Key]:
    return [(panel, batch, series) for panel in (IID, SKEWED) for batch in batches]


def _over_rounds(series: str, rounds: Sequence[str]) -> list[Key]:
    return [(LATER, when, series) for when in rounds]


hidden = partial(beyond_class, more=False)
WEAK, MIDDLE, STRONG = MASKED.values()
TABLE2, NEW, OURS = "masks hinder DLG (Table 2)", "not considered", "our claim"
CLAIMS: list[Claim] = [
    computed_exactly(
        "masks at the start: one neighbour computes differences exactly, at any time",
        OURS,
        _everywhere(START, SAME),
    ),
    computed_exactly(
        "and, with fresh masks too, the sum over the honest clients", OURS, _everywhere(SUM)
    ),
    computed_exactly(
        "fresh masks: neither a gradient nor a difference is exact",
        OURS,
        _everywhere(*NOISY),
        False,
    ),
    *(
        beyond_class(
            f"{panel}: differences of batches of 1 reveal the samples (class mean + 0.3)",
            TABLE2,
            [(panel, "1", START)],
            margin=0.3,
        )
        for panel in (IID, SKEWED)
    ),
    beyond_class(
        "they do so in every round (class mean + 0.3)",
        NEW,
        _over_rounds(START, ROUNDS),
        margin=0.3,
    ),
    beyond_class(
        "differences of batches of 4 still reveal more than the class",
        NEW,
        [(IID, "4", START), (IID, "4", SAME), (SKEWED, "4", START)],
    ),
    *(
        falls(
            f"{panel}: larger batches, less from differences",
            "–",
            [(panel, batch, START) for batch in BATCHES],
        )
        for panel in (IID, SKEWED)
    ),
    hidden(
        "differences of batches of 16 reveal no more than the class to this attack",
        "–",
        _over_batches(START, "16"),
    ),
    beyond_class(
        "batches of 1: the sum of 4 clients reveals more than the class too",
        NEW,
        _over_batches(SUM, "1"),
    ),
    hidden(
        "masks of the paper's size hide the first gradient of a batch of 1",
        TABLE2,
        _over_batches(WEAK, "1"),
    ),
    hidden(
        "fresh masks of that size hide later differences (at most class mean + 0.05)",
        OURS,
        _over_rounds(FRESH, ROUNDS[1:]),
    ),
    hidden("masks of β = 0.1 hide it", OURS, _over_batches(MIDDLE, "1")),
    hidden("masks of β = 0.5 hide it", OURS, _over_batches(STRONG, "1")),
]
ARTIFACTS = (
    Artifact(
        name="findings/start-masks",
        title="LPPA: what a curious neighbour inverts, with masks at the start and with fresh ones",
        axes=("data", "batch size or round", "evidence"),
        cells=_cells,
        metric="ssim",
        claims=CLAIMS,
        contradictions=(
            Contradiction(
                "masks of the paper's size hide the first gradient of a batch of 1",
                Cause.FALSE,
                "Section 6.2 says that LPPA “effectively prevents the adversary from "
                "reconstructing raw data”. Masks stop DLG, the only attack of the paper. The same "
                "search with a smoothness prior and a distance relative to the evidence reads the "
                "sample through them. With larger batches the same masks hide samples: SSIM {{ "
                "mean('findings/start-masks', 'IID · 4 · masked gradient, β = 0.025', 'ssim', "
                "'.2f') }} with 4 samples and {{ mean('findings/start-masks', 'IID · 16 · masked "
                "gradient, β = 0.025', 'ssim', '.2f') }} with 16, class mean {{ "
                "mean('findings/start-masks', 'IID · 4 · masked gradient, β = 0.025', "
                "'ssim_of_class_mean', '.2f') }} and {{ mean('findings/start-masks', 'IID · 16 · "
                "masked gradient, β = 0.025', 'ssim_of_class_mean', '.2f') }} (IID).",
            ),
        ),
        draw=leak_figure({IID: "batch size", SKEWED: "batch size", LATER: "round"}, LATER),
        protocol=(
            "MNIST, 5 clients on a ring, Metropolis weights, 200 samples each, "
            "λ = 0.02 · 0.95^round, Laplace(0.025) masks unless stated otherwise; the sigmoid CNN "
            "of lppa/table2, different first weights. One neighbour of each of 4 victims follows "
            "the protocol, reads the messages it receives in 6 iterations, and computes what is "
            "inverted by the audit's linear combination of float32 messages: a difference is of "
            "two batches, both searched, since each iteration takes another one ('same batch': "
            "each client's batch is all it has). First iteration; or later, with 20 samples each. "
            "A masked gradient is the best linear estimate of the first, the same with masks at "
            "the start; later ones are worse with fresh masks, as their noise adds up, so "
            "differences are inverted there. Relative L2 distance, L-BFGS, 300 iterations, 4 "
            "restarts, labels and batch size known; total variation 0.01 where evidence is noisy "
            "(the best of 0, 0.01 and 0.1 for two victims). A failed attack proves nothing"
        ),
        quickly=(
            "mnist-mini, 2 victims, 120 iterations, 1 restart, one seed; batches of 1 and 4, "
            "skewed of 1 only; rounds 0, 1 and 5"
        ),
        form=".3f",
        unit="SSIM",
    ),
)
