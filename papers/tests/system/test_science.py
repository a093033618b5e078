"""Science that a change of code must not break: quick cells of artifacts, and committed numbers.

A change that moves them on purpose commits new results of `tacit reproduce` with it.
"""

import json
import os
from pathlib import Path

import pytest

from tacit_papers.framework.cells import MeasureContext, Scale
from tacit_papers.framework.registry import find_artifact
from tacit_papers.framework.runner import Reproduction, run_artifact

RESULTS = Path(__file__).parents[2] / "results"


def measured(name, out, only=()):
    artifact = find_artifact(name)
    result = run_artifact(Reproduction(artifact, Scale(quick=True), out, repeats=1, only=only))
    return {claim.text: claim.judge(result).grade for claim in artifact.claims}, result


@pytest.mark.parametrize("name", ["findings/who-computes-what", "findings/collusion"])
def test_others_compute_what_we_claim(name, tmp_path):
    grades, _ = measured(name, tmp_path)
    assert set(grades.values()) == {"reproduced"}


def test_protection_hides_the_target_and_costs_nothing_in_localization(tmp_path):
    grades, result = measured("rms/fig3", tmp_path)
    assert grades["protection does not change where DSG ends"] == "reproduced"
    assert grades["the sliding mean of PD-LMS approximates the target"] == "reproduced"
    assert grades["the sliding means of DSG-RMS and EDSG-RMS do not"] == "reproduced"
    assert result.mean(("four anchors", "DSG-RMS")) == pytest.approx(-22.0, abs=1.0)


@pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")
def test_private_training_is_as_good_as_central_and_better_than_local_noise(tmp_path):
    _, result = measured("findings/private-training", tmp_path, only=("8",))
    local, decor, private, central = (
        result.mean(("MNIST", "8", name))
        for name in ("local noise", "decor", "private-sgd", "central DP-SGD")
    )
    assert abs(private - central) < 1.5
    assert private > max(local, decor) + 1
    assert min(local, decor) > 60


@pytest.mark.realdata
@pytest.mark.skipif(not os.environ.get("TACIT_DATA"), reason="TACIT_DATA is not set")
def test_masks_cost_nothing_on_adult(tmp_path):
    grades, result = measured("lppa/table1", tmp_path, only=("Adult",))
    assert grades["LPPA loses nothing against DSGT on average (points)"] == "reproduced"
    assert result.mean(("Adult", "DSGT")) == pytest.approx(76.7, abs=1.5)


@pytest.mark.parametrize(
    ("name", "every"),
    [("lppa/theorem2", 1), ("findings/who-computes-what", 17), ("findings/collusion", 23)],
    ids=str,
)
def test_committed_numbers_are_reproduced(name, every):
    stored = json.loads((RESULTS / name / "result.json").read_text(encoding="utf-8"))
    cells = {cell.key: cell for cell in find_artifact(name).cells(Scale(stored["quick"]))}
    for kept in stored["cells"][::every]:
        cell = cells[tuple(kept["key"].values())]
        assert json.loads(json.dumps(cell.measure.describe())) == kept["measure"]
        for repeat in kept["repeats"]:
            again = cell.measure(repeat["seed"], MeasureContext())
            for name, value in repeat["values"].items():
                if name not in ("machine", "took"):
                    same = value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
                    assert again[name] == same, name
