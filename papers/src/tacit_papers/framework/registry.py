"""All artifacts by name."""

from __future__ import annotations

from tacit.core.errors import unknown
from tacit_papers.defl_vp import tables as defl_vp
from tacit_papers.dfl_opt import (
    combining as dfl_opt_combining,
)
from tacit_papers.dfl_opt import (
    figures as dfl_opt,
)
from tacit_papers.dfl_opt import (
    inversion as dfl_opt_inversion,
)
from tacit_papers.dfl_opt import (
    membership as dfl_opt_membership,
)
from tacit_papers.findings import (
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
from tacit_papers.framework.artifact import Artifact
from tacit_papers.lppa import attack as lppa_attack
from tacit_papers.lppa import budget as lppa_budget
from tacit_papers.lppa import tables as lppa
from tacit_papers.rms import figures as rms

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
