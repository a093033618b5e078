"""All artifacts by name."""

from __future__ import annotations

from tacit.errors import unknown
from tacit.experiment.reproduce import defl_vp, findings_control_variates, findings_epsilon, lppa
from tacit.experiment.reproduce.artifact import Artifact

PAPERS = (lppa, defl_vp, findings_control_variates, findings_epsilon)
ARTIFACTS: dict[str, Artifact] = {artifact.name: artifact for paper in PAPERS for artifact in paper.ARTIFACTS}


def artifact_named(name: str) -> Artifact:
    """One of them; refused with the names that come closest."""
    if name not in ARTIFACTS:
        raise unknown(f"There is no artifact {name!r}.", name, ARTIFACTS)
    return ARTIFACTS[name]
