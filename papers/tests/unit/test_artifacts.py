"""Every artifact can be listed, describes its cells, and has claims about them."""

import json

import pytest

from tacit.core.errors import Misuse
from tacit_papers.framework.cells import Scale
from tacit_papers.framework.registry import ARTIFACTS, find_artifact

SCALES = [Scale(), Scale(quick=True)]


@pytest.mark.parametrize("scale", SCALES, ids=["full", "quick"])
@pytest.mark.parametrize("artifact", ARTIFACTS.values(), ids=ARTIFACTS)
def test_cells_have_a_key_and_a_description(artifact, scale):
    cells = artifact.cells(scale)
    assert cells
    assert len({cell.key for cell in cells}) == len(cells)
    assert all(len(cell.key) == len(artifact.axes) for cell in cells)
    described = [json.dumps(cell.measure.describe(), sort_keys=True) for cell in cells]
    assert all(json.loads(text) for text in described)


@pytest.mark.parametrize("artifact", ARTIFACTS.values(), ids=ARTIFACTS)
def test_claims_without_numbers_are_not_measured(artifact):
    result = artifact.new_result(Scale())
    # A search has no claims: its numbers explain why others are not reproduced.
    assert artifact.claims or "/search-" in artifact.name
    assert {claim.judge(result).grade for claim in artifact.claims} <= {"not measured"}
    assert len({claim.text for claim in artifact.claims}) == len(artifact.claims)


def test_an_unknown_name_raises_with_the_closest_one():
    with pytest.raises(Misuse, match="lppa/table1"):
        find_artifact("lppa/tabel1")
