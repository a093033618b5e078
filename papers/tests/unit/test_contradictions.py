"""Claims that are not reproduced have a cause and an argument, in files and on the page."""

import json

import pytest

from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Scale
from tacit_papers.framework.claims import Claim, ClaimVerdict
from tacit_papers.framework.contradictions import (
    DESCRIPTIONS,
    Cause,
    Contradiction,
    find_contradiction,
)
from tacit_papers.framework.results_file import ResultsFile
from tacit_papers.framework.summary import write_summary

GROUP = Contradiction("* · DP", Cause.OPEN, "No scaling is given.")
SINGLE = Contradiction("curve [dB]", Cause.FALSE, "It cannot be.")
GRADES = {"A · DP": "not reproduced", "B · DP": "not reproduced", "C · DP": "partly"}


@pytest.fixture
def folder(tmp_path):
    """An artifact whose claims have the grades above, written to a folder of results."""
    claims = [
        Claim(text, "1", lambda result, word=word: ClaimVerdict(word, "2"))
        for text, word in (GRADES | {"other": "not reproduced"}).items()
    ]
    artifact = Artifact(
        "trial/table", "t", ("a",), lambda scale: [], "m", claims, None, "p", "q",
        contradictions=(GROUP,),
    )  # fmt: skip
    (tmp_path / artifact.name).mkdir(parents=True)
    ResultsFile.read(tmp_path / artifact.name, artifact, Scale()).write()
    return tmp_path


def test_a_text_or_a_pattern_explains_claims():
    assert find_contradiction("Rcv1 · DP", [SINGLE, GROUP]) is GROUP
    assert find_contradiction("Rcv1 · LPPA", [SINGLE, GROUP]) is None
    # Exact texts may have characters that patterns treat as special.
    assert find_contradiction("curve [dB]", [GROUP, SINGLE]) is SINGLE


def test_the_first_explanation_counts():
    later = Contradiction("*", Cause.UNEXPLAINED, "Not measured.")
    assert find_contradiction("Rcv1 · DP", [GROUP, later]) is GROUP
    assert find_contradiction("other", [GROUP, later]) is later


def test_every_cause_has_its_own_description():
    assert list(DESCRIPTIONS) == list(Cause)
    assert len({cause.description for cause in Cause}) == len(Cause)


def test_only_claims_that_are_not_reproduced_have_a_cause(folder):
    stored = json.loads((folder / "trial/table/result.json").read_text(encoding="utf-8"))
    causes = {claim["claim"]: (claim["cause"], claim["argument"]) for claim in stored["claims"]}
    assert causes == {
        "A · DP": ("open", GROUP.argument),
        "B · DP": ("open", GROUP.argument),
        "C · DP": (None, None),
        "other": (None, None),
    }


def test_the_page_counts_causes_and_gives_each_argument_once(folder):
    path = folder / "trial/table/result.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["machines"], stored["cells"] = ["m"], [{"repeats": []}]
    path.write_text(json.dumps(stored), encoding="utf-8")
    page = write_summary(folder).read_text(encoding="utf-8")
    assert "| cause | trial | all |" in page
    assert f"| {Cause.OPEN.description} | 2 | 2 |" in page
    assert f"| {Cause.FALSE.description} | 0 | 0 |" in page
    assert f"- A · DP; B · DP: **{Cause.OPEN.description}**. {GROUP.argument}" in page
    assert page.count(GROUP.argument) == 1


def test_results_without_causes_have_a_page_without_them(folder):
    path = folder / "trial/table/result.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["cells"] = [{"repeats": []}]
    for claim in stored["claims"]:
        del claim["cause"], claim["argument"]
    path.write_text(json.dumps(stored), encoding="utf-8")
    page = write_summary(folder).read_text(encoding="utf-8")
    assert "cause" not in page
    assert "Why not reproduced" not in page
