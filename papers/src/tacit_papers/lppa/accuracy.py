"""Miao et al. 2025, LPPA: the accuracies of Tables 1, 3 and 4 and of Figures 3, 5 and 6."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Key, Published, Scale
from tacit_papers.framework.claims import (
    Claim,
    full_scale_only,
    grade,
    grade_least,
    mean_loss,
    number_claims,
    ordered,
)
from tacit_papers.framework.drawing import beside_paper, curves
from tacit_papers.lppa import contradictions
from tacit_papers.lppa.setting import PROTOCOL, QUICKLY, RULES, config
from tacit_papers.measures.training import Training

SUBSETS = "; Rcv1 is a subset of other documents of the same corpus (see the data)"
# The rows of Tables 1, 3 and 4: DSGT, DP, LPPA.
Row = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
TABLE1: dict[Key, Row] = {
    ("MNIST",): ((96.01, 0.058), (90.15, 0.683), (96.01, 0.058)),
    ("FMNIST",): ((80.31, 0.015), (70.67, 2.079), (80.31, 0.024)),
    ("CIFAR10",): ((40.14, 0.261), (20.00, 1.742), (40.22, 0.395)),
    ("Adult",): ((82.81, 0.124), (76.38, 0.000), (82.80, 0.142)),
    ("Rcv1",): ((92.04, 0.124), (87.34, 1.622), (92.04, 0.120)),
    ("Covtype",): ((77.62, 0.128), (52.40, 0.821), (77.55, 0.111)),
}
TABLE3: dict[Key, Row] = {
    ("MNIST",): ((95.17, 0.026), (89.50, 2.801), (95.18, 0.001)),
    ("FMNIST",): ((78.48, 0.027), (69.71, 2.745), (78.53, 0.029)),
    ("CIFAR10",): ((38.64, 0.088), (19.95, 0.050), (38.41, 0.247)),
    ("Adult",): ((82.71, 0.095), (72.43, 11.151), (82.67, 0.063)),
    ("Rcv1",): ((91.83, 0.084), (87.73, 1.037), (91.83, 0.078)),
    ("Covtype",): ((75.60, 0.466), (54.71, 2.113), (75.52, 0.488)),
}
TABLE4: dict[Key, Row] = {
    ("MNIST", "Dir(0.1)"): ((95.37, 0.017), (78.42, 0.015), (95.35, 0.017)),
    ("MNIST", "#C = 2"): ((95.42, 0.010), (85.18, 0.299), (95.42, 0.004)),
    ("MNIST", "#C = 3"): ((95.61, 0.000), (82.74, 2.553), (95.61, 0.004)),
    ("FMNIST", "Dir(0.1)"): ((77.15, 0.017), (68.92, 0.146), (77.76, 0.054)),
    ("FMNIST", "#C = 2"): ((77.98, 0.337), (65.53, 0.055), (77.72, 0.014)),
    ("FMNIST", "#C = 3"): ((79.11, 0.023), (60.32, 0.094), (78.97, 0.068)),
    ("CIFAR10", "Dir(0.1)"): ((27.11, 8.239), (10.99, 0.000), (27.80, 6.716)),
    ("CIFAR10", "#C = 2"): ((35.31, 1.078), (13.67, 0.251), (35.98, 0.654)),
    ("CIFAR10", "#C = 3"): ((34.38, 3.519), (15.47, 5.178), (36.02, 2.613)),
    ("Adult", "Dir(0.1)"): ((82.14, 0.203), (76.38, 0.000), (82.12, 0.219)),
    ("Adult", "#C = 1"): ((80.75, 0.534), (76.35, 0.024), (80.83, 0.676)),
    ("Rcv1", "Dir(0.1)"): ((89.21, 0.274), (74.58, 11.136), (89.25, 0.269)),
    ("Rcv1", "#C = 1"): ((90.96, 0.284), (81.83, 5.816), (90.97, 0.297)),
    ("Covtype", "Dir(0.1)"): ((77.12, 0.163), (51.90, 1.021), (76.89, 0.328)),
    ("Covtype", "#C = 1"): ((77.10, 0.325), (54.67, 1.704), (77.00, 0.452)),
}
BETAS = (0.025, 0.05, 0.1, 0.25, 0.5)
EVERY = "DP, noise in every iteration"


def _table(table: Mapping[Key, Row], partition: str = "") -> Callable[[Scale], list[Cell]]:
    """A cell per row and rule; keys are datasets, and partitions if the table has several."""

    def cells(scale: Scale) -> list[Cell]:
        return [
            Cell(
                (*key, rule),
                Training(config(key[0], rule, scale, partition or key[1])),
                None if scale.quick else Published(*number),
            )
            for key, row in table.items()
            for rule, number in zip(RULES, row, strict=True)
        ]

    return cells


def _tolerance(key: Key) -> float:
    """Percentage points within which a number counts as reproduced."""
    if key[-1] == "DP":
        return 3.0
    return 0.6 if key[0] in ("MNIST", "FMNIST") else 2.0


def _losses(paper_dp: str, paper_lppa: str) -> list[Claim]:
    """The mean losses against DSGT over all rows, as in the last line of each table."""
    lppa = mean_loss(
        "LPPA loses nothing against DSGT on average (points)",
        paper_lppa,
        "DSGT",
        "LPPA",
        lambda lost: grade(lost, 0.1),
    )
    dp = mean_loss(
        "DP loses much against DSGT on average (points)",
        paper_dp,
        "DSGT",
        "DP",
        lambda lost: grade_least(lost, 5, 1),
    )
    return [lppa, full_scale_only(dp, "so early in training the noise has not yet done harm")]


def _fig3(scale: Scale) -> list[Cell]:
    """The paper's DP "plummets midway": with noise in every iteration, not with noise in γ⁰."""
    cells = [Cell((rule,), Training(config("MNIST", rule, scale))) for rule in RULES]
    every = config("MNIST", "DP", scale, algorithm={"inject": "every"})
    return [*cells, Cell((EVERY,), Training(every))]


def _fig5(scale: Scale) -> list[Cell]:
    def cell(rule: str, beta: float) -> Cell:
        noise = {} if rule == "DSGT" else {"noise": {"law": "laplace", "scale": beta}}
        return Cell((f"{beta:g}", rule), Training(config("MNIST", rule, scale, algorithm=noise)))

    return [cell(rule, beta) for beta in BETAS for rule in RULES]


def _fig6(scale: Scale) -> list[Cell]:
    """Local epochs are updates that do not mix; all have the exchanges of 50 rounds."""
    epochs = [
        Cell(
            ("local epochs", f"{k}", rule),
            Training(config("MNIST", rule, scale, algorithm={"local_steps": k})),
        )
        for k in scale.pick((1, 5, 10, 20, 40, 80), (1, 5, 20))
        for rule in RULES
    ]
    counts = [
        Cell(("clients", f"{n}", rule), Training(config("MNIST", rule, scale, clients=n)))
        for n in scale.pick((5, 10, 20, 40), (5, 10))
        for rule in RULES
    ]
    return [*epochs, *counts]


accuracies = partial(Artifact, metric="accuracy", quickly=QUICKLY, quick_repeats=2)
LABEL = "accuracy (%)"
_table1, _table3, _table4 = _table(TABLE1, "iid"), _table(TABLE3, "quantity"), _table(TABLE4)
FULL = Scale()
ARTIFACTS = (
    accuracies(
        name="lppa/table1",
        title="Table 1: accuracy under homogeneous data partitioning",
        axes=("dataset", "rule"),
        cells=_table1,
        claims=[
            *_losses("+13.82 stated, +12.00 by its rows", "−0.10 stated, 0.00 by its rows"),
            *number_claims(_table1(FULL), _tolerance),
        ],
        contradictions=contradictions.TABLE1,
        draw=beside_paper(LABEL),
        protocol=PROTOCOL + SUBSETS,
        repeats=5,
    ),
    accuracies(
        name="lppa/table3",
        title="Table 3: accuracy under quantity distribution skew",
        axes=("dataset", "rule"),
        cells=_table3,
        claims=[*_losses("+11.40", "+0.04"), *number_claims(_table3(FULL), _tolerance)],
        contradictions=contradictions.TABLE3,
        draw=beside_paper(LABEL),
        protocol=(
            f"{PROTOCOL}; sizes from a Dirichlet law of 0.5, not stated in the paper{SUBSETS}"
        ),
        repeats=5,
    ),
    accuracies(
        name="lppa/table4",
        title="Table 4: accuracy under label distribution skew",
        axes=("dataset", "partitioning", "rule"),
        cells=_table4,
        claims=[*_losses("+14.56", "−0.15"), *number_claims(_table4(FULL), _tolerance)],
        contradictions=contradictions.TABLE4,
        draw=beside_paper(LABEL),
        protocol=PROTOCOL + SUBSETS,
        repeats=5,
    ),
    accuracies(
        name="lppa/fig3",
        title="Figure 3a: training curves on MNIST",
        axes=("rule",),
        cells=_fig3,
        claims=[
            ordered(
                "DP ends below DSGT, and collapses with noise in every iteration",
                "curve",
                [(EVERY,), ("DP",), ("DSGT",)],
            ),
        ],
        draw=curves("accuracy", LABEL),
        protocol=PROTOCOL,
    ),
    accuracies(
        name="lppa/fig5",
        title="Figure 5 (accuracy): noise scales β from 0.025 to 0.5 on MNIST",
        axes=("β", "rule"),
        cells=_fig5,
        claims=[
            ordered(
                "DP gets worse with β", "falling curve", [("0.5", "DP"), ("0.025", "DP")], margin=1
            ),
            *_losses("falling curve", "equal curves"),
        ],
        draw=beside_paper(LABEL),
        protocol=PROTOCOL,
    ),
    accuracies(
        name="lppa/fig6",
        title="Figure 6: local epochs, and the number of clients, on MNIST",
        axes=("varied", "value", "rule"),
        cells=_fig6,
        claims=_losses("DP below", "equal curves"),
        draw=beside_paper(LABEL),
        protocol=f"{PROTOCOL}; local epochs are updates that do not mix",
    ),
)
