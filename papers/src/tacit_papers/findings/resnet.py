"""Finding: ResNet-18 on CIFAR-10 between 16 clients; masks that cancel cost no accuracy.

Clients have different classes and different numbers of images (Dirichlet(0.5)). dsgt and lppa take
the same steps; lppa hides the gradients by masks. The same model trained centrally, by SGD with the
batches of all clients together, is what they would reach on one machine.
"""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.figure import Figure

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit.report.style import plot_style
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Scale
from tacit_papers.framework.claims import Claim, ClaimVerdict, claim, full_scale_only, grade
from tacit_papers.framework.drawing import HEIGHT, WIDTH, line_style
from tacit_papers.framework.results import ArtifactResult, NotMeasured, numbers
from tacit_papers.measures.simulated_training import SimulatedTraining

TRACKING, MASKED, CENTRAL = "dsgt", "lppa", "central SGD"
LOSSLESS = 0.3  # points that masks may cost
HETEROGENEOUS = 3.0  # points that clients may lose to central training
EARLY = "the quick version ends before the models have learned much"
OURS = "our claim"

CLIENTS = 16
CIFAR: dict[str, Any] = {
    "data": {"name": "cifar10", "scale": "standard", "augment": {"crop": 4, "flip": True}},
    "partition": {"kind": "dirichlet", "alpha": 0.5},
    "model": {"name": "resnet18-gn"},
    "graph": {"kind": "random-regular", "clients": CLIENTS, "degree": 8},
    "run": {
        "rounds": 30,
        "batch_size": 32,
        "iterations_per_round": 50_000 // (CLIENTS * 32),
        "evaluate_every": 6,
        "precision": "bf16",
    },
}
DIGITS: dict[str, Any] = {
    "data": {
        "name": "mnist-mini",
        "scale": "standard",
        "limit_train": 480,
        "limit_test": 100,
        "augment": {"crop": 1},
    },
    "partition": {"kind": "dirichlet", "alpha": 0.5},
    "model": {"name": "resnet18-gn", "width": 4, "groups": 2},
    "graph": {"kind": "ring", "clients": 3},
    "run": {"rounds": 4, "batch_size": 8, "iterations_per_round": 20, "evaluate_every": 2},
}
# The warm-up takes the first steps while masks have not mixed yet.
RATE: dict[str, Any] = {
    "schedule": "warmup",
    "epochs": 2,
    "then": {"schedule": "cosine", "start": 0.02},
}
SGD: dict[str, Any] = {"lr": RATE, "momentum": 0.9, "weight_decay": 5e-4}


def _config(algorithm: str, scale: Scale) -> Config:
    values = scale.pick(CIFAR, DIGITS)
    if algorithm == CENTRAL:
        # One client with all data. Its tracker is its gradient, so this is SGD.
        clients = values["graph"]["clients"]
        batch = {"batch_size": clients * values["run"]["batch_size"]}
        alone = {"kind": "complete", "clients": 1}
        values = values | {"graph": alone, "run": values["run"] | batch, "partition": {}}
    name = TRACKING if algorithm == CENTRAL else algorithm
    return make_config(values | {"algorithm": {"name": name, **SGD}})


def _cells(scale: Scale) -> list[Cell]:
    return [
        Cell((algorithm,), SimulatedTraining(_config(algorithm, scale)))
        for algorithm in (TRACKING, MASKED, CENTRAL)
    ]


@claim
def _lossless(result: ArtifactResult) -> ClaimVerdict:
    """Paired by seed: a seed also is a partition, which changes accuracy more than masks do."""
    gaps = result.differences((MASKED,), (TRACKING,))
    if not gaps:
        raise NotMeasured
    gap = statistics.fmean(gaps)
    text = f"from {min(gaps):+.2f} to {max(gaps):+.2f}"
    return ClaimVerdict(
        grade(abs(gap), LOSSLESS), f"{gap:+.2f} points over {len(gaps)} seeds", text
    )


@claim
def _near_central(result: ArtifactResult, algorithm: str) -> ClaimVerdict:
    losses = result.differences((CENTRAL,), (algorithm,))
    if not losses:
        raise NotMeasured
    lost = statistics.fmean(losses)
    text = f"{result.formatted((algorithm,))} against {result.formatted((CENTRAL,))}"
    return ClaimVerdict(grade(max(0.0, lost), HETEROGENEOUS), f"{-lost:+.2f} points", text)


def _claims() -> list[Claim]:
    claims = [
        _lossless(f"lppa is within {LOSSLESS:g} points of dsgt", OURS),
        *(
            _near_central(
                f"{algorithm} loses at most {HETEROGENEOUS:g} points to central SGD",
                OURS,
                algorithm,
            )
            for algorithm in (TRACKING, MASKED)
        ),
    ]
    return [full_scale_only(each, EARLY) for each in claims]


def _draw(result: ArtifactResult) -> Figure:
    """Accuracy over the rounds."""
    with plot_style():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        for number, cell in enumerate(result.measured):
            curve = result.curve(cell.key)
            axes.plot(
                curve["round"], numbers(curve["accuracy"]), label=cell.key[0], **line_style(number)
            )
        axes.set_xlabel("round")
        axes.set_ylabel("test accuracy (%)")
        axes.legend()
    return figure


ARTIFACTS = (
    Artifact(
        name="findings/resnet",
        title="ResNet-18 on CIFAR-10: 16 clients with different classes, and one machine",
        axes=("training",),
        cells=_cells,
        metric="accuracy",
        claims=_claims(),
        draw=_draw,
        protocol=(
            "CIFAR-10, 16 clients with Dirichlet(0.5) shares on a random 8-regular graph with "
            "Metropolis weights; ResNet-18 with GroupNorm (11.2 million parameters); images "
            "standardised, cropped by up to 4 pixels and flipped at random; 30 rounds of 97 "
            "iterations with batches of 32 per client, an exchange after each; step size 0.02 with "
            "a linear warm-up of 2 rounds and a cosine to 0, momentum 0.9 on the trackers, weight "
            "decay 0.0005; gradients in bf16. lppa has Laplace(0.025) masks at the start. Central "
            "SGD is one model with batches of 512 of all images and the same steps. Clients weigh "
            "alike in dsgt and lppa, whatever their numbers of images. Accuracy is the mean over "
            "the clients' own models"
        ),
        quickly="3 clients, 480 digits, a ResNet with a sixteenth of the channels, 80 iterations",
        repeats=3,
    ),
)
