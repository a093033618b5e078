"""All artifacts by name."""

from __future__ import annotations

from importlib import import_module

from tacit.core.errors import unknown_name
from tacit_papers.framework.artifact import Artifact

MODULES = {
    "lppa": ("accuracy", "search", "deep_leakage", "theorem2"),
    "rms": ("fig1_fig3", "search", "fig2"),
    "defl_vp": ("tables", "settings", "membership"),
    "dfl_opt": ("convergence", "noise", "inversion", "inversion_over_time", "membership"),
    "findings": (
        "start_masks",
        "fresh_masks",
        "control_variates",
        "epsilon",
        "own_signs",
        "zero_signs",
        "who_computes_what",
        "collusion",
        "norm_vector",
        "frontier",
        "private_training",
        "liars",
        "resnet",
    ),
}
ARTIFACTS: dict[str, Artifact] = {
    artifact.name: artifact
    for folder, modules in MODULES.items()
    for module in modules
    for artifact in import_module(f"tacit_papers.{folder}.{module}").ARTIFACTS
}


def find_artifact(name: str) -> Artifact:
    """The artifact of this name; an unknown name raises Misuse with the closest ones."""
    if name not in ARTIFACTS:
        raise unknown_name(f"There is no artifact {name!r}.", name, ARTIFACTS)
    return ARTIFACTS[name]
