"""All artifacts by name."""

from __future__ import annotations

from tacit.errors import unknown
from tacit.experiment.reproduce import dfl_opt, dfl_opt_inversion, dfl_opt_membership, lppa
from tacit.experiment.reproduce.artifact import Artifact

ARTIFACTS: dict[str, Artifact] = {
    artifact.name: artifact
    for paper in (lppa, dfl_opt, dfl_opt_inversion, dfl_opt_membership)
    for artifact in paper.ARTIFACTS
}


def artifact_named(name: str) -> Artifact:
    """One of them; refused with the names that come closest."""
    if name not in ARTIFACTS:
        raise unknown(f"There is no artifact {name!r}.", name, ARTIFACTS)
    return ARTIFACTS[name]
