"""Finding: what signs of clients' own gradients cost without variance reduction, on skewed and on equal data.

Table 4 of the DeFL-VP paper has 84.3 % without variance reduction; here accuracy rises, and falls again. Each client
sends signs of its own gradient, and the sum of signs is not the sign of the sum: the more data differ, the more it is
another direction, of constant length. Variates turn gradients towards the common one before their signs are taken.
"""

from __future__ import annotations

from typing import Any

from tacit.experiment.config import Config, make_config
from tacit.experiment.reproduce.artifact import Artifact, Cell, Scale
from tacit.experiment.reproduce.claims import Claim, Verdict, Word
from tacit.experiment.reproduce.drawing import curves
from tacit.experiment.reproduce.measures.training import Training
from tacit.experiment.reproduce.outcome import Outcome
from tacit.experiment.reproduce.papers.defl_vp_setting import VARIANTS
from tacit.experiment.reproduce.papers.defl_vp_setting import config as published

DATA: dict[str, dict[str, Any]] = {
    "IID": {"kind": "iid"},
    "Dirichlet(0.3)": {"kind": "dirichlet", "alpha": 0.3},
}
REDUCED, PLAIN = "with variance reduction", "without"
RULES = {REDUCED: "DeFL-VP", PLAIN: "w/o VR"}
LOST = 5.0  # points that are much


def config(partition: str, rule: str, scale: Scale) -> Config:
    """Table 4's setting with other data."""
    plain = published(scale, VARIANTS[RULES[rule]]).as_dict()
    plain["partition"] = DATA[partition]
    plain["run"] |= {"rounds": scale.pick(200, 80), "evaluate_every": scale.pick(1, 8)}
    return make_config(plain)


def _cells(scale: Scale) -> list[Cell]:
    return [
        Cell((partition, rule), Training(config(partition, rule, scale)))
        for partition in DATA
        for rule in RULES
    ]


def _loses(partition: str, much: bool) -> Claim:
    def check(outcome: Outcome) -> Verdict:
        lost = outcome.mean((partition, REDUCED)) - outcome.mean((partition, PLAIN))
        word: Word = "reproduced" if (lost >= LOST) == much else "not reproduced"
        return Verdict(word, f"{lost:+.2f} points lost", f"{LOST:g} points are much")

    text = f"{partition}: without variance reduction {'much' if much else 'little'} accuracy is lost"
    return Claim(text, "4.4 points" if partition != "IID" else "not tried", check)


ARTIFACTS = (
    Artifact(
        name="findings/own-signs",
        title="DeFL-VP without variance reduction: signs of clients' own gradients",
        axes=("data", "rule"),
        cells=_cells,
        metric="accuracy",
        claims=[_loses("Dirichlet(0.3)", much=True), _loses("IID", much=False)],
        draw=curves("accuracy", "accuracy (%)"),
        protocol="the setting of defl-vp/table4 with ε = 4 and η = 0.01, and the same with equal random shares",
        quickly="2,000 training and 500 test samples, filters 8 and 16, batch 16, 80 rounds",
        repeats=3,
    ),
)
