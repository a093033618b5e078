"""All artifacts by name."""

from __future__ import annotations

from tacit.errors import unknown
from tacit.experiment.reproduce.artifact import Artifact
from tacit.experiment.reproduce.findings import (
    collusion,
    control_variates,
    epsilon,
    fresh_masks,
    frontier,
    norm_vector,
    own_signs,
    start_masks,
    zero_signs,
)
from tacit.experiment.reproduce.papers import (
    defl_vp,
    dfl_opt,
    dfl_opt_combining,
    dfl_opt_inversion,
    dfl_opt_membership,
    lppa,
    lppa_attack,
    lppa_budget,
    rms,
)

PAPERS = (
    lppa,
    lppa_attack,
    lppa_budget,
    rms,
    defl_vp,
    dfl_opt,
    dfl_opt_inversion,
    dfl_opt_combining,
    dfl_opt_membership,
)
FINDINGS = (
    start_masks,
    fresh_masks,
    control_variates,
    epsilon,
    own_signs,
    zero_signs,
    collusion,
    norm_vector,
    frontier,
)
ARTIFACTS: dict[str, Artifact] = {
    artifact.name: artifact for module in (*PAPERS, *FINDINGS) for artifact in module.ARTIFACTS
}


def artifact_named(name: str) -> Artifact:
    """One of them; refused with the names that come closest."""
    if name not in ARTIFACTS:
        raise unknown(f"There is no artifact {name!r}.", name, ARTIFACTS)
    return ARTIFACTS[name]
