"""Attacks on convolutional models were in TF32 on a GPU; those numbers are marked as outdated."""

import json
from pathlib import Path

import pytest

from tacit_papers.framework.registry import ARTIFACTS
from tacit_papers.framework.results import OUTDATED

RESULTS = Path(__file__).parents[2] / "results"
# Parts of the descriptions of measures that compute attacks, or gradients of their own.
ATTACKS = (
    "inverting",
    "inverting over time",
    "curious neighbour",
    "best reconstruction",
    "neighbour_inversion",
    "first message inverted",
    "membership",
    "membership by",
    "audited",
    "gradient_norms",
)
FLAT = ("mlp", "linear")  # models without convolutions


def parts(description):
    """All dictionaries in a description."""
    if isinstance(description, dict):
        yield description
        for value in description.values():
            yield from parts(value)
    elif isinstance(description, list):
        for value in description:
            yield from parts(value)


def is_affected(cell):
    found = list(parts(cell["measure"]))
    models = {one["model"]["name"] for one in found if one.get("model")}
    return bool(models.difference(FLAT)) and any(key in one for one in found for key in ATTACKS)


@pytest.mark.parametrize("name", ARTIFACTS)
def test_attacks_in_tf32_are_marked(name):
    content = json.loads((RESULTS / name / "result.json").read_text())
    gpus = [machine.startswith("NVIDIA") for machine in content["machines"]]
    for cell in content["cells"]:
        for repeat in cell["repeats"]:
            values = repeat["values"]
            # Measurements since attacks are in float32 have their time.
            old = is_affected(cell) and gpus[values["machine"]] and "took" not in values
            assert (values.get(OUTDATED) == "attacked in TF32") == old, cell["key"]
