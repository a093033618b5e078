"""All artifacts by name."""

from __future__ import annotations

from tacit.errors import unknown
from tacit.experiment.reproduce import (
    defl_vp,
    dfl_opt,
    dfl_opt_inversion,
    dfl_opt_membership,
    findings_collusion,
    findings_control_variates,
    findings_epsilon,
    findings_norm_vector,
    lppa,
    lppa_attack,
    lppa_budget,
    rms,
)
from tacit.experiment.reproduce.artifact import Artifact

ROOMS = (
    lppa,
    lppa_attack,
    lppa_budget,
    rms,
    defl_vp,
    dfl_opt,
    dfl_opt_inversion,
    dfl_opt_membership,
    findings_collusion,
    findings_norm_vector,
    findings_control_variates,
    findings_epsilon,
)
ARTIFACTS: dict[str, Artifact] = {artifact.name: artifact for room in ROOMS for artifact in room.ARTIFACTS}


def artifact_named(name: str) -> Artifact:
    """One of them; refused with the names that come closest."""
    if name not in ARTIFACTS:
        raise unknown(f"There is no artifact {name!r}.", name, ARTIFACTS)
    return ARTIFACTS[name]
