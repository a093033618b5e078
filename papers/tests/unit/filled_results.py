"""Results with made-up numbers, and the grades of the claims about them."""

from tacit_papers.framework.cells import Scale
from tacit_papers.framework.registry import find_artifact

FULL, QUICK = Scale(), Scale(quick=True)


def fill(name, values, scale=FULL):
    """An artifact and its result; `values(key)` gives a cell's values, or a list of repeats."""
    artifact = find_artifact(name)
    result = artifact.new_result(scale)
    for cell in result.cells:
        found = values(cell.key) or []
        cell.values.update(enumerate(found if isinstance(found, list) else [found]))
    return artifact, result


def grades(artifact, result):
    return {claim.text: claim.judge(result).grade for claim in artifact.claims}


def fill_grades(name, values, scale=FULL):
    """The grades of all claims, in order."""
    return list(grades(*fill(name, values, scale)).values())
