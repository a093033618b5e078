"""What is stored was measured as it would be measured today."""

from pathlib import Path

from tacit_papers.framework.cells import Scale
from tacit_papers.framework.registry import ARTIFACTS
from tacit_papers.framework.results_file import ResultsFile

RESULTS = Path(__file__).parents[2] / "results"


def test_no_measurement_is_lost_because_its_description_changed():
    """A new key of configurations must not change the description of what lacked it."""
    full = Scale(quick=False)
    outdated = {
        name: ResultsFile.read(RESULTS / artifact.name, artifact, full).outdated
        for name, artifact in ARTIFACTS.items()
    }
    assert {name: cells for name, cells in outdated.items() if cells} == {}
