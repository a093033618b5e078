"""Miao et al. 2025, "Lossless privacy-preserving aggregation for decentralized federated learning" (LPPA).

The protocol of section 6, with what the paper leaves open settled so that its Table 1 comes out: an iteration is one
mini-batch gradient and one exchange, a round is one local epoch of iterations, λ = 0.02 · 0.95^round, clients begin
with weights of their own, W is made by Sinkhorn–Knopp from random positive weights on a random directed graph that
contains a ring, and the "DP method" adds its noise to γ⁰ alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from tacit.config.sections import Config, make_config
from tacit_papers.framework.artifact import Artifact, Cell, Key, Published, Scale
from tacit_papers.framework.claims import (
    Claim,
    ClaimVerdict,
    Word,
    mean_loss,
    mean_losses,
    number_claims,
    ordered,
    spread_of,
)
from tacit_papers.framework.drawing import beside_paper, curves
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.measures.training import Training

PROTOCOL = (
    "5 clients, batch 128, λ = 0.02 · 0.95^round, one exchange per mini-batch, a round is one local epoch, 50 rounds; "
    "independent first weights; Laplace(0.025) in γ⁰ (DP) or exchanged once at the start (LPPA)"
)
SUBSETS = "; Rcv1 is a subset of other documents of the same corpus (see the data)"

IMAGES = {"MNIST": "mnist", "FMNIST": "fashion-mnist", "CIFAR10": "cifar10"}
TABLES = {"Adult": "adult", "Rcv1": "rcv1", "Covtype": "covtype"}
DATA: dict[str, dict[str, Any]] = {
    **{
        label: {"data": {"name": name}, "model": {"name": "cnn2"}} for label, name in IMAGES.items()
    },
    "Adult": {
        "data": {"name": "adult", "scale": "minmax"},
        "model": {"name": "mlp", "hidden": [64]},
    },
    "Rcv1": {
        "data": {"name": "rcv1", "features": 5000, "scale": "maxabs"},
        "model": {"name": "mlp", "hidden": [64]},
    },
    "Covtype": {"data": {"name": "covtype"}, "model": {"name": "mlp", "hidden": [64]}},
}
RULES: dict[str, dict[str, Any]] = {
    "DSGT": {"name": "dsgt"},
    "DP": {"name": "dp-dsgt"},
    "LPPA": {"name": "lppa"},
}

# The rows of tables 1, 3 and 4: DSGT, DP, LPPA.
Row = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
TABLE1: dict[str, Row] = {
    "MNIST": ((96.01, 0.058), (90.15, 0.683), (96.01, 0.058)),
    "FMNIST": ((80.31, 0.015), (70.67, 2.079), (80.31, 0.024)),
    "CIFAR10": ((40.14, 0.261), (20.00, 1.742), (40.22, 0.395)),
    "Adult": ((82.81, 0.124), (76.38, 0.000), (82.80, 0.142)),
    "Rcv1": ((92.04, 0.124), (87.34, 1.622), (92.04, 0.120)),
    "Covtype": ((77.62, 0.128), (52.40, 0.821), (77.55, 0.111)),
}
TABLE3: dict[str, Row] = {
    "MNIST": ((95.17, 0.026), (89.50, 2.801), (95.18, 0.001)),
    "FMNIST": ((78.48, 0.027), (69.71, 2.745), (78.53, 0.029)),
    "CIFAR10": ((38.64, 0.088), (19.95, 0.050), (38.41, 0.247)),
    "Adult": ((82.71, 0.095), (72.43, 11.151), (82.67, 0.063)),
    "Rcv1": ((91.83, 0.084), (87.73, 1.037), (91.83, 0.078)),
    "Covtype": ((75.60, 0.466), (54.71, 2.113), (75.52, 0.488)),
}
TABLE4: dict[tuple[str, str], Row] = {
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
PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {"kind": "iid"},
    "quantity": {"kind": "quantity", "alpha": 0.5},
    "Dir(0.1)": {"kind": "dirichlet", "alpha": 0.1},
    **{f"#C = {k}": {"kind": "classes", "k": k} for k in (1, 2, 3)},
}


def config(
    dataset: str,
    rule: str,
    scale: Scale,
    partition: str = "iid",
    *,
    clients: int = 5,
    rounds: int = 50,
    algorithm: dict[str, Any] | None = None,
) -> Config:
    """The experiment of section 6; smaller if it shall be quick: see QUICKLY."""
    data = dict(DATA[dataset]["data"])
    if scale.quick:
        data |= {"limit_train": 2000 * clients, "limit_test": 2000}
    return make_config(
        {
            "data": data,
            "partition": PARTITIONS[partition],
            "model": DATA[dataset]["model"] | {"init": "independent"},
            "graph": {
                "kind": "random-directed",
                "clients": clients,
                "p": 0.5,
                "mixing": "sinkhorn",
                "random_weights": True,
            },
            "algorithm": {
                "lr": {"schedule": "exponential", "start": 0.02, "decay": 0.95},
                **RULES[rule],
                **(algorithm or {}),
            },
            "run": {
                "rounds": scale.pick(rounds, 10),
                "batch_size": scale.pick(128, 32),
                "checkpoint_every": 10,
                "allow_divergence": True,
            },
        }
    )


QUICKLY = "2,000 training samples per client, 2,000 test samples, batch 32, 10 rounds"


def _table(rows: Iterable[tuple[Key, str, Row]], scale: Scale) -> list[Cell]:
    """A cell for each rule of each row: its key (a dataset first), its partition, and the numbers of the paper."""
    return [
        Cell(
            (*key, rule),
            Training(config(key[0], rule, scale, partition)),
            None if scale.quick else Published(*number),
        )
        for key, partition, row in rows
        for rule, number in zip(RULES, row, strict=True)
    ]


def _tolerance(key: Key) -> float:
    """In points: what was agreed to call a number reproduced."""
    if key[-1] == "DP":
        return 3.0
    return 0.6 if key[0] in ("MNIST", "FMNIST") else 2.0


def _losses(paper_dp: str, paper_lppa: str) -> list[Claim]:
    """What the rules lose against DSGT in the mean over all rows, as the last line of each table says."""

    def pairs(rule: str) -> Any:
        def of(outcome: ArtifactResult) -> list[tuple[Key, Key]]:
            rows = dict.fromkeys(cell.key[:-1] for cell in outcome.measured)
            return [((*row, "DSGT"), (*row, rule)) for row in rows]

        return of

    def dp_loses(outcome: ArtifactResult) -> ClaimVerdict:
        found = mean_losses(outcome, pairs("DP")(outcome))
        lost = statistics.fmean(found)
        ours = f"{lost:+.2f}"
        if outcome.scale.quick:
            return ClaimVerdict(
                "not measured", ours, "so early in training noise has not done its harm"
            )
        word: Word = "reproduced" if lost > 5 else "partly" if lost > 1 else "not reproduced"
        return ClaimVerdict(word, ours, spread_of(found))

    return [
        mean_loss(
            pairs("LPPA"), "LPPA loses nothing against DSGT in the mean (points)", paper_lppa, 0.1
        ),
        Claim("DP loses much against DSGT in the mean (points)", paper_dp, dp_loses),
    ]


def _table1(scale: Scale) -> list[Cell]:
    return _table((((dataset,), "iid", row) for dataset, row in TABLE1.items()), scale)


def _table3(scale: Scale) -> list[Cell]:
    return _table((((dataset,), "quantity", row) for dataset, row in TABLE3.items()), scale)


def _table4(scale: Scale) -> list[Cell]:
    return _table((((dataset, skew), skew, row) for (dataset, skew), row in TABLE4.items()), scale)


def _fig3(scale: Scale) -> list[Cell]:
    """The paper's DP "plummets midway": so it does with new noise in every iteration, not with noise in γ⁰."""
    every = config("MNIST", "DP", scale, algorithm={"inject": "every"})
    plain = [Cell((rule,), Training(config("MNIST", rule, scale))) for rule in RULES]
    return [*plain, Cell(("DP, noise in every iteration",), Training(every))]


BETAS = (0.025, 0.05, 0.1, 0.25, 0.5)


def _fig5(scale: Scale) -> list[Cell]:
    def of(rule: str, beta: float) -> Cell:
        noise = {} if rule == "DSGT" else {"noise": {"law": "laplace", "scale": beta}}
        return Cell((f"{beta:g}", rule), Training(config("MNIST", rule, scale, algorithm=noise)))

    return [of(rule, beta) for beta in BETAS for rule in RULES]


def _fig6(scale: Scale) -> list[Cell]:
    """Local epochs are updates that do not mix; the number of exchanges is that of 50 rounds throughout."""
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


FULL = Scale()
ARTIFACTS = (
    Artifact(
        name="lppa/table1",
        title="Table 1: accuracy under homogeneous data partitioning",
        axes=("dataset", "rule"),
        cells=_table1,
        metric="accuracy",
        claims=[
            *_losses("+13.82 stated, +12.00 by its rows", "−0.10 stated, 0.00 by its rows"),
            *number_claims(_table1(FULL), _tolerance),
        ],
        draw=beside_paper("accuracy (%)"),
        protocol=PROTOCOL + SUBSETS,
        quickly=QUICKLY,
    ),
    Artifact(
        name="lppa/table3",
        title="Table 3: accuracy under quantity distribution skew",
        axes=("dataset", "rule"),
        cells=_table3,
        metric="accuracy",
        claims=[*_losses("+11.40", "+0.04"), *number_claims(_table3(FULL), _tolerance)],
        draw=beside_paper("accuracy (%)"),
        protocol=f"{PROTOCOL}; sizes from a Dirichlet law of 0.5, which the paper does not state{SUBSETS}",
        quickly=QUICKLY,
    ),
    Artifact(
        name="lppa/table4",
        title="Table 4: accuracy under label distribution skew",
        axes=("dataset", "partitioning", "rule"),
        cells=_table4,
        metric="accuracy",
        claims=[*_losses("+14.56", "−0.15"), *number_claims(_table4(FULL), _tolerance)],
        draw=beside_paper("accuracy (%)"),
        protocol=PROTOCOL + SUBSETS,
        quickly=QUICKLY,
    ),
    Artifact(
        name="lppa/fig3",
        title="Figure 3a: training curves on MNIST",
        axes=("rule",),
        cells=_fig3,
        metric="accuracy",
        claims=[
            ordered(
                [("DP, noise in every iteration",), ("DP",), ("DSGT",)],
                "DP ends below DSGT, and collapses with noise in every iteration",
                "curve",
            ),
        ],
        draw=curves("accuracy", "accuracy (%)"),
        protocol=PROTOCOL,
        quickly=QUICKLY,
        repeats=3,
    ),
    Artifact(
        name="lppa/fig5",
        title="Figure 5 (accuracy): noise scales β from 0.025 to 0.5 on MNIST",
        axes=("β", "rule"),
        cells=_fig5,
        metric="accuracy",
        claims=[
            ordered(
                [("0.5", "DP"), ("0.025", "DP")],
                "DP gets worse with β",
                "falling curve",
                margin=1.0,
            ),
            *_losses("falling curve", "equal curves"),
        ],
        draw=beside_paper("accuracy (%)"),
        protocol=PROTOCOL,
        quickly=QUICKLY,
        repeats=3,
    ),
    Artifact(
        name="lppa/fig6",
        title="Figure 6: local epochs, and the number of clients, on MNIST",
        axes=("varied", "value", "rule"),
        cells=_fig6,
        metric="accuracy",
        claims=_losses("DP below", "equal curves"),
        draw=beside_paper("accuracy (%)"),
        protocol=f"{PROTOCOL}; local epochs are updates that do not mix",
        quickly=QUICKLY,
        repeats=3,
    ),
)
