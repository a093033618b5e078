"""Every artifact can be listed, is made of cells that say all about themselves, and has claims about cells it has."""

import json

import pytest

from tacit.core.errors import Misuse
from tacit_papers.framework.artifact import Scale
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.framework.registry import ARTIFACTS, artifact_named

SCALES = [Scale(), Scale(quick=True)]


@pytest.mark.parametrize("scale", SCALES, ids=["full", "quick"])
@pytest.mark.parametrize("artifact", ARTIFACTS.values(), ids=ARTIFACTS)
def test_cells_have_a_place_and_a_description(artifact, scale):
    cells = artifact.cells(scale)
    assert cells
    assert len({cell.key for cell in cells}) == len(cells)
    assert all(len(cell.key) == len(artifact.axes) for cell in cells)
    described = [json.dumps(cell.measure.describe(), sort_keys=True) for cell in cells]
    assert all(json.loads(text) for text in described)


@pytest.mark.parametrize("artifact", ARTIFACTS.values(), ids=ARTIFACTS)
def test_claims_that_cannot_be_judged_say_so(artifact):
    scale = Scale()
    outcome = ArtifactResult.empty(artifact, scale, artifact.cells(scale))
    assert artifact.claims
    assert {claim.verdict(outcome).word for claim in artifact.claims} == {"not measured"}
    assert len({claim.text for claim in artifact.claims}) == len(artifact.claims)


def test_a_wrong_name_is_refused_with_one_that_is_near():
    with pytest.raises(Misuse, match="lppa/table1"):
        artifact_named("lppa/tabel1")
