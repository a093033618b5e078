"""What is in results/ is what the artifacts would measure now, and its page says what the files say."""

import json
import shutil
from pathlib import Path

import pytest

from tacit_papers.framework.artifact import Scale
from tacit_papers.framework.registry import ARTIFACTS
from tacit_papers.framework.results_file import ResultsFile, as_text
from tacit_papers.framework.summary import write_summary

RESULTS = Path(__file__).parents[2] / "results"
FILES = sorted(RESULTS.glob("*/*/result.json"))
NAMES = [str(path.parent.relative_to(RESULTS)) for path in FILES]


def test_every_artifact_was_run():
    assert sorted(ARTIFACTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_of_cells_that_are_measured_in_this_way_now(name):
    told = json.loads((RESULTS / name / "result.json").read_text(encoding="utf-8"))
    artifact = ARTIFACTS[name]
    now = {cell.key: cell.measure.describe() for cell in artifact.cells(Scale(told["quick"]))}
    for cell in told["cells"]:
        key = tuple(cell["key"].values())
        assert cell["measure"] == json.loads(json.dumps(now[key])), key
        assert cell["repeats"]


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_are_those_of_the_numbers(name, tmp_path):
    shutil.copytree(RESULTS / name, tmp_path / name)
    quick = json.loads((RESULTS / name / "result.json").read_text(encoding="utf-8"))["quick"]
    ledger = ResultsFile.empty(tmp_path / name, ARTIFACTS[name], Scale(quick))
    assert ledger.refresh() == []
    assert as_text(ledger.as_dict()) == (RESULTS / name / "result.json").read_text(encoding="utf-8")


def test_the_page_says_what_the_files_say(tmp_path):
    for name in NAMES:
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(RESULTS / name / "result.json", tmp_path / name)
    assert write_summary(tmp_path).read_text(encoding="utf-8") == (RESULTS / "README.md").read_text(
        encoding="utf-8"
    )
