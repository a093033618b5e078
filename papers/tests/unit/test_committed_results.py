"""The files in results/ are what the artifacts would measure now, and the page agrees with them."""

import json
import shutil
from pathlib import Path

import pytest

from tacit_papers.framework.cells import Scale
from tacit_papers.framework.registry import ARTIFACTS
from tacit_papers.framework.results_file import ResultsFile, as_text
from tacit_papers.framework.summary import write_summary

RESULTS = Path(__file__).parents[2] / "results"
FILES = sorted(RESULTS.glob("*/*/result.json"))
NAMES = [str(path.parent.relative_to(RESULTS)) for path in FILES]


def read(name):
    return (RESULTS / name).read_text(encoding="utf-8")


def test_every_artifact_was_run():
    assert sorted(ARTIFACTS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_stored_cells_have_the_same_measure_now(name):
    stored = json.loads(read(f"{name}/result.json"))
    cells = ARTIFACTS[name].cells(Scale(stored["quick"]))
    now = {cell.key: cell.measure.describe() for cell in cells}
    for cell in stored["cells"]:
        key = tuple(cell["key"].values())
        assert cell["measure"] == json.loads(json.dumps(now[key])), key
        assert cell["repeats"]


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_follow_from_the_numbers(name, tmp_path):
    shutil.copytree(RESULTS / name, tmp_path / name)
    text = read(f"{name}/result.json")
    scale = Scale(json.loads(text)["quick"])
    file = ResultsFile.read(tmp_path / name, ARTIFACTS[name], scale)
    assert file.outdated == []
    assert as_text(file.as_dict()) == text


def test_the_page_agrees_with_the_files(tmp_path):
    for name in NAMES:
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(RESULTS / name / "result.json", tmp_path / name)
    assert write_summary(tmp_path).read_text(encoding="utf-8") == read("README.md")
