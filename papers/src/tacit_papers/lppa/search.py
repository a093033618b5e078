"""Miao et al. 2025, LPPA: searches over what section 6 leaves open, beside the numbers it gives.

Searched are the scaling of tables, the perceptron, the decay of λ, the CNN and the reading of the
partitions. Section 6 cites a benchmark of skewed partitions (Li et al. 2022, its reference 17) that
has the same datasets and the same names for partitions. Its models, its partition and its scaling
(none) are among the settings. What section 6 gives is kept: λ starts at 0.02, batches of 128, 50
rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Measure, Published, Scale
from tacit_papers.framework.search_figure import search_figure
from tacit_papers.lppa.accuracy import TABLE1, TABLE3, TABLE4, Row
from tacit_papers.lppa.setting import PROTOCOL, QUICKLY, config
from tacit_papers.measures.partitioned_training import READINGS, PartitionedTraining
from tacit_papers.measures.training import Training

Sections = dict[str, dict[str, Any]]  # keys of a configuration that a setting changes
RULES = ("DSGT", "DP")
HIDDEN: dict[str, list[int]] = {"64": [64], "32, 16, 8": [32, 16, 8]}
DECAYS: dict[str, Any] = {
    "λ · 0.95 per round": {"schedule": "exponential", "start": 0.02, "decay": 0.95},
    "constant λ": 0.02,
}
SCALINGS: dict[str, dict[str, dict[str, Any]]] = {
    "Rcv1": {
        "largest weight one": {"scale": "maxabs"},
        "length one": {"scale": "none"},
    },
    "Covtype": {
        "deviation one": {"scale": "standard"},
        "in [0, 1]": {"scale": "minmax"},
    },
    "Adult": {"in [0, 1]": {"scale": "minmax"}},
}
ALL_TERMS = {"features": None}
# What the numbers of a search are compared with, and their partition.
RCV1_TARGETS: dict[str, tuple[Row, str]] = {
    "Rcv1, Table 1": (TABLE1["Rcv1",], "iid"),
    "Rcv1, Table 3": (TABLE3["Rcv1",], "quantity"),
    "Rcv1, Table 4, Dir(0.1)": (TABLE4["Rcv1", "Dir(0.1)"], "Dir(0.1)"),
    "Rcv1, Table 4, #C = 1": (TABLE4["Rcv1", "#C = 1"], "#C = 1"),
}


def _changed(base: Config, sections: Sections) -> Config:
    plain = base.as_dict()
    return make_config(plain | {name: plain[name] | keys for name, keys in sections.items()})


def _pair(target: str, row: Row, setting: str, measures: tuple[Measure, ...]) -> Iterator[Cell]:
    for rule, number, measure in zip(RULES, row, measures, strict=False):
        yield Cell((target, setting, rule), measure, Published(*number))


def _grid(
    target: str, dataset: str, row: Row, partition: str, scale: Scale, *more: tuple[str, Any]
) -> Iterator[Cell]:
    """All combinations of scaling, perceptron and decay; `more` scalings with one perceptron."""
    every = [
        (scaling, size, decay)
        for scaling in SCALINGS[dataset].items()
        for size in HIDDEN
        for decay in DECAYS
    ]
    every += [(scaling, "64", decay) for scaling in more for decay in DECAYS]
    for (name, data), size, decay in every:
        measures = tuple(
            Training(
                _changed(
                    config(dataset, rule, scale, partition),
                    {
                        "data": data,
                        "model": {"hidden": HIDDEN[size]},
                        "algorithm": {"lr": DECAYS[decay]},
                    },
                )
            )
            for rule in RULES
        )
        yield from _pair(target, row, f"{name}; {size} hidden units; {decay}", measures)


def _tables(scale: Scale) -> list[Cell]:
    """Tables 1, 3 and 4 for Rcv1; Table 1 for Adult and Covtype, whose DP is far off in all."""
    adult = _grid("Adult, Table 1", "Adult", TABLE1["Adult",], "iid", scale)
    if scale.quick:
        return list(adult)
    all_terms = [
        (f"all 47,236 terms, {name}", data | ALL_TERMS) for name, data in SCALINGS["Rcv1"].items()
    ]
    cells = [
        *adult,
        *_grid(
            "Covtype, Table 1", "Covtype", TABLE1["Covtype",], "iid", scale,
            ("not scaled", {"scale": "none"}),
        ),
    ]  # fmt: skip
    for target, (row, partition) in RCV1_TARGETS.items():
        more = all_terms if partition == "iid" else []
        cells += _grid(target, "Rcv1", row, partition, scale, *more)
    return cells


def _images(scale: Scale) -> list[Cell]:
    """What Tables 1, 3 and 4 were not measured with: another CNN, other readings of partitions."""
    cells: list[Cell] = []

    def add(
        target: str,
        row: Row,
        dataset: str,
        skew: str,
        setting: str,
        sections: Sections,
        reading: str = "",
    ) -> None:
        changed = [_changed(config(dataset, rule, scale, skew), sections) for rule in RULES]
        measures = tuple(
            PartitionedTraining(one, reading, 0.1) if reading else Training(one) for one in changed
        )
        cells.extend(_pair(target, row, setting, measures))

    lenet: Sections = {"model": {"name": "lenet"}}
    constant: Sections = {"algorithm": {"lr": DECAYS["constant λ"]}}
    for dataset in ("MNIST",) if scale.quick else ("MNIST", "FMNIST", "CIFAR10"):
        target, row = f"{dataset}, Table 1", TABLE1[dataset,]
        add(target, row, dataset, "iid", "LeNet", lenet)
        add(target, row, dataset, "iid", "LeNet; constant λ", lenet | constant)
        add(target, row, dataset, "iid", "two layers; constant λ", constant)
        target, row = f"{dataset}, Table 4, Dir(0.1)", TABLE4[dataset, "Dir(0.1)"]
        for reading in READINGS:
            add(target, row, dataset, "Dir(0.1)", f"two layers; {reading}", {}, reading)
        add(target, row, dataset, "Dir(0.1)", "LeNet; shares of each class", lenet)
    if scale.quick:
        return cells
    target, row = "FMNIST, Table 3", TABLE3["FMNIST",]
    uneven: Sections = {"partition": {"alpha": 0.1}}
    for setting, sections in {
        "two layers; sizes from Dirichlet(0.1)": uneven,
        "LeNet; sizes from Dirichlet(0.1)": uneven | lenet,
        "LeNet; sizes from Dirichlet(0.5)": lenet,
    }.items():
        add(target, row, "FMNIST", "quantity", setting, sections)
    for classes in ("#C = 2", "#C = 3"):
        row = TABLE4["FMNIST", classes]
        add(f"FMNIST, Table 4, {classes}", row, "FMNIST", classes, "LeNet", lenet)
    return cells


search = partial(
    Artifact,
    axes=("numbers of the paper", "setting", "rule"),
    metric="accuracy",
    claims=[],
    draw=search_figure("accuracy (%)"),
)
ARTIFACTS = (
    search(
        name="lppa/search-tables",
        title="Search: scaling, perceptron and decay of λ for Rcv1, Covtype and Adult",
        cells=_tables,
        protocol=f"{PROTOCOL}, except for what is searched; Rcv1 with 5,000 terms if not all",
        quickly=f"Adult only; {QUICKLY}",
        repeats=1,
    ),
    search(
        name="lppa/search-partitions",
        title="Search: CNN, decay of λ and partition for images",
        cells=_images,
        protocol=(
            f"{PROTOCOL}, except for what is searched. Tables 3 and 4 have two layers, sizes from "
            "Dirichlet(0.5), and shares of each class from Dirichlet(0.1). Capped: clients "
            "that have their share of all samples get no more, as in the benchmark that the paper "
            "cites; classes of each client: shares of the classes are drawn, sizes are equal"
        ),
        quickly=f"MNIST only; {QUICKLY}",
        repeats=1,
    ),
)
