"""Science that a change of code must not break: quick cells of artifacts, and numbers that were published with us.

What a change moves on purpose is measured again by `tacit reproduce`, and its results are committed with the change.
"""

import json
import os
from pathlib import Path

import pytest

from tacit_papers.framework.artifact import MeasureContext, Scale
from tacit_papers.framework.registry import artifact_named
from tacit_papers.framework.runner import Wanted, run_artifact

RESULTS = Path(__file__).parents[2] / "results"
QUICK = Scale(quick=True)


def verdicts(name, out, only=()):
    outcome = run_artifact(Wanted(artifact_named(name), QUICK, repeats=1, only=only), out)
    return {
        claim.text: claim.verdict(outcome).word for claim in artifact_named(name).claims
    }, outcome


def test_what_neighbours_learn_is_what_we_claim(tmp_path):
    words, _ = verdicts("findings/collusion", tmp_path)
    assert set(words.values()) == {"reproduced"}


def test_protection_hides_the_target_and_costs_nothing_in_localization(tmp_path):
    words, outcome = verdicts("rms/fig3", tmp_path)
    assert words["protection does not change where DSG ends"] == "reproduced"
    assert words["the sliding mean of PD-LMS approximates the target"] == "reproduced"
    assert words["the sliding means of DSG-RMS and EDSG-RMS do not"] == "reproduced"
    assert outcome.mean(("four anchors", "DSG-RMS")) == pytest.approx(-22.0, abs=1.0)


@pytest.mark.realdata
@pytest.mark.skipif(
    not os.environ.get("TACIT_DATA"), reason="TACIT_DATA does not name the real datasets"
)
def test_masks_cost_nothing_on_adult(tmp_path):
    words, outcome = verdicts("lppa/table1", tmp_path, only=("Adult",))
    assert words["LPPA loses nothing against DSGT in the mean (points)"] == "reproduced"
    assert outcome.mean(("Adult", "DSGT")) == pytest.approx(76.7, abs=1.5)


@pytest.mark.parametrize(
    ("name", "every"),
    [("lppa/theorem2", 1), ("findings/collusion", 7)],
    ids=lambda value: str(value),
)
def test_committed_numbers_come_out_again(name, every):
    told = json.loads((RESULTS / name / "result.json").read_text(encoding="utf-8"))
    artifact = artifact_named(name)
    cells = {cell.key: cell for cell in artifact.cells(Scale(told["quick"]))}
    for kept in told["cells"][::every]:
        cell = cells[tuple(kept["key"].values())]
        assert json.loads(json.dumps(cell.measure.describe())) == kept["measure"]
        for repeat in kept["repeats"]:
            again = cell.measure(repeat["seed"], MeasureContext())
            known = {name: value for name, value in repeat["values"].items() if name != "machine"}
            assert again == pytest.approx(known, rel=1e-9)
