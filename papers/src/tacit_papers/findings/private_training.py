"""Finding: private training without a server is as accurate as central DP-SGD.

All algorithms keep the same (ε, δ) for the whole run and one training sample. They differ in how
much noise is left in the model: in local noise, every client adds all the noise of the guarantee;
in decor, neighbours add noise that cancels in part; in private-sgd, masks hide everything but the
sum, which carries the noise once, as if one party had all data.
"""

from __future__ import annotations

from tacit_papers.findings.private_training_figure import draw
from tacit_papers.findings.private_training_settings import (
    ALGORITHMS,
    CENTRAL,
    DECOR,
    LOCAL,
    NO_GUARANTEE,
    PLAIN,
    PRIVATE,
    STUDIES,
    studies,
)
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Key, Scale
from tacit_papers.framework.claims import (
    Claim,
    ClaimVerdict,
    above,
    claim,
    full_scale_only,
    grade,
    grade_least,
)
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.measures.training import Training

CLOSE = 0.3  # points that private-sgd may be below central DP-SGD
NEARLY = 0.5  # points below the required accuracy that count in part
EARLY = "the quick version has too few samples"
OURS = "our claim"


def _cells(scale: Scale) -> list[Cell]:
    cells = []
    for name, study in studies(scale).items():
        cells += [
            Cell((name, epsilon, algorithm), Training(study.config(algorithm, epsilon)))
            for epsilon in study.private
            for algorithm in ALGORITHMS
            if epsilon in study.rates(algorithm)
        ]
        cells += [
            Cell((name, NO_GUARANTEE, label), Training(study.plain_config(label)))
            for label in PLAIN
            if study.compared
        ]
    return cells


@claim
def _reaches(result: ArtifactResult, key: Key, least: float) -> ClaimVerdict:
    word = grade_least(result.mean(key), least, least - NEARLY)
    return ClaimVerdict(word, f"{result.formatted(key)} %")


@claim
def _close(result: ArtifactResult, key: Key, reference: Key) -> ClaimVerdict:
    gap = result.mean(key) - result.mean(reference)
    text = f"{result.formatted(key)} against {result.formatted(reference)}"
    return ClaimVerdict(grade(max(0.0, -gap), CLOSE), f"{gap:+.2f} points", text)


def _claims() -> list[Claim]:
    claims: list[Claim] = []
    for name, study in STUDIES.items():
        for epsilon, least in study.required.items():
            key, central = ((name, epsilon, algorithm) for algorithm in (PRIVATE, CENTRAL))
            claims += [
                _reaches(
                    f"{name}, ε = {epsilon}: private-sgd reaches {least:g} %", OURS, key, least
                ),
                _close(
                    f"{name}, ε = {epsilon}: at most {CLOSE:g} points below central DP-SGD",
                    OURS,
                    key,
                    central,
                ),
            ]
        for other in (DECOR, LOCAL):
            pairs = [((name, each, PRIVATE), (name, each, other)) for each in study.rates(other)]
            if pairs:
                text = f"{name}: more accurate than {other} at the same ε (points)"
                claims.append(above(text, OURS, pairs))
    return [full_scale_only(each, EARLY) for each in claims]


ARTIFACTS = (
    Artifact(
        name="findings/private-training",
        title="Accuracy with a guarantee: private-sgd, central DP-SGD, decor and local noise",
        axes=("data", "ε", "algorithm"),
        cells=_cells,
        metric="accuracy",
        claims=_claims(),
        draw=draw,
        protocol=(
            "10 clients with equal random shares on a random 4-regular graph; δ = 10⁻⁵, per "
            "training sample, for the whole run; one curious client is assumed (9 of 10 are "
            "honest). Samples are drawn with the same probability, gradients clipped to 0.1 per "
            "sample. MNIST: tanh-cnn2 of 26,010 weights, 2,050 samples expected per iteration, 40 "
            "epochs; Fashion-MNIST: the same with 4,100 and 80; Adult: logistic regression, 2,050, "
            "40; CIFAR-10: tanh-cnn6, 8,190, 100. Images are standardised with published "
            "constants; Adult's columns with those of its training set, which the guarantee does "
            "not cover. private-sgd and central DP-SGD (one client with all data, σ for itself "
            "alone) have momentum 0.9 and the same learning rate. decor has correlation 3; local "
            "noise is decor with correlation 0, where every client's message keeps the guarantee "
            "on its own. Learning rates by trial with seed 0 on the test data, for each of them: "
            "the guarantee does not cover that choice. Accuracy is the mean over the clients' own "
            "models"
        ),
        quickly="logistic regression, 4,000 digits, 400 per iteration, 8 epochs, ε = 3 and 8",
    ),
)
