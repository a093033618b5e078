"""Every notebook runs from top to bottom, and shows what is stored in it."""

import json
import posixpath
import re

import pytest
from code_blocks import ROOT, Block, compare_output

# Light installations lack what runs notebooks.
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from notebooks import notebooks, read, run, shown

LINK = re.compile(r"\]\(([^)\s]+)\)")
LARGEST = 64_000  # bytes of a notebook with its outputs
# What a cell at the end of each notebook says about its results.
RESULTS = {
    "researchers-day.ipynb": """
import json
auc = run.history.column("auc.mean")[-1]
print(json.dumps([auc > 0.95, best.load().shape[0], lr, audit.answer.level, float(right)]))
""",
    "own-model-with-a-guarantee.ipynb": """
import json
spent = [result.ledgers[0].whole_run.epsilon for result in audit.results]
accuracies = [one.history[-1].accuracy.mean for one in (plain, private)]
print(json.dumps([spent, accuracies, audit.answer.level]))
""",
}


@pytest.fixture(scope="module", params=notebooks(), ids=lambda path: path.name)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def stored(path):
    return read(path)


def test_a_notebook_runs_and_shows_what_is_stored(path, stored, tmp_path):
    executed = run(stored, tmp_path, after=RESULTS[path.name])
    for number, (old, new) in enumerate(zip(stored.cells, executed.cells, strict=False)):
        if old.cell_type == "code":
            block = Block(path, number, "text", "output", shown(old))
            compare_output(block, shown(new))
            kinds = [{*output.get("data", ())} for output in old.outputs]
            assert [{*output.get("data", ())} for output in new.outputs] == kinds
    results = json.loads(shown(executed.cells[-1]))
    if path.name == "researchers-day.ipynb":
        assert results[:4] == [True, 5, 0.5, "no"]
        assert results[4] > 0.9
        table = (tmp_path / "runs" / "both-table.tex").read_text()
        assert "lppa" in table
        assert (tmp_path / "runs" / "both.html").stat().st_size > 10_000
    else:
        (two, four), (plain, private), level = results
        assert 1.9 < two <= 2 < four < 10
        assert min(plain, private) > 60
        assert level == "weak"


@pytest.mark.quick
def test_what_is_stored_is_small_and_of_no_machine(path, stored):
    text = path.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    for output in (one for cell in stored.cells for one in cell.get("outputs", ())):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
        assert not re.search(r"/(tmp|home|root|usr)/", json.dumps(output))


@pytest.mark.quick
def test_links_of_a_notebook_lead_somewhere(path, stored):
    for cell in stored.cells:
        for link in LINK.findall(cell.source) if cell.cell_type == "markdown" else ():
            target = posixpath.normpath(path.parent.relative_to(ROOT) / link.partition("#")[0])
            assert (ROOT / target).is_file(), link


@pytest.mark.quick
def test_the_menu_has_the_notebook(path):
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert path.relative_to(ROOT / "docs").with_suffix(".md").as_posix() in menu
