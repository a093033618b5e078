"""The report has the numbers of the results, and says what it cannot fill in."""

import json
import shutil
from pathlib import Path

import pytest

from tacit.core.errors import Misuse
from tacit_papers.framework.filled_text import (
    StoredResults,
    fill,
    fill_places,
    write_report,
)

PAPERS = Path(__file__).parents[2]


def cell(labels, values, paper=None):
    return {
        "key": dict(zip(("data", "rule"), labels, strict=True)),
        "paper": paper and {"mean": paper, "deviation": None},
        "repeats": [{"seed": seed, "values": value} for seed, value in values.items()],
    }


@pytest.fixture
def results(tmp_path):
    """One artifact with two cells and three claims."""
    plain = {0: {"score": 90.0, "leak": 0.5}, 1: {"score": 92.0, "leak": 0.7}}
    masked = {1: {"score": 91.5, "leak": None}, 2: {"score": 10.0, "leak": 0.1}}
    words = {"masks are free": "reproduced", "it is fast": "partly", "it hides": "not reproduced"}
    causes = {"it hides": "open"}
    stored = {
        "artifact": "trial/table",
        "metric": "score",
        "claims": [
            {"claim": text, "word": word, "ours": "+0.5", "cause": causes.get(text)}
            for text, word in words.items()
        ],
        "cells": [cell(("digits", "a, b"), plain, 90.5), cell(("digits", "masked"), masked)],
    }
    folder = tmp_path / "results" / "trial" / "table"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(stored), encoding="utf-8")
    return StoredResults(tmp_path / "results")


@pytest.mark.parametrize(
    ("place", "filled"),
    [
        ("mean('trial/table', 'digits · a, b')", "91.00 ± 1.41"),
        ("mean('trial/table', 'digits · a, b', 'leak', '.1f')", "0.6 ± 0.1"),
        ("mean('trial/table', 'digits · a, b', form='.3f')", "91.000 ± 1.414"),
        ("paper('trial/table', 'digits · a, b')", "90.5"),
        ("mean('trial/table', 'digits ·\n  a, b')", "91.00 ± 1.41"),
        # Only seed 1 has both.
        ("difference('trial/table', 'digits · masked', 'digits · a, b')", "−0.50"),
        ("claim('trial/table', 'it hides')", "+0.5"),
        ("repeats('trial/table')", "2"),
        ("cells('trial/table')", "2"),
        ("claims('reproduced')", "1"),
        ("claims('not reproduced', 'trial/')", "1"),
        ("claims('partly', 'other/')", "0"),
        ("claims('all')", "3"),
        ("causes('open')", "1"),
        ("causes('open', 'other/')", "0"),
        ("causes('false', 'trial/')", "0"),
    ],
)
def test_a_place_is_filled_with_what_is_stored(results, place, filled):
    assert fill(f"x {{{{{place}}}}} y", results) == f"x {filled} y"


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("mean('trial/tabel', 'digits · a, b')", "trial/table"),
        ("mean('trial/table', 'digits · maskd')", "digits · masked"),
        ("paper('trial/table', 'digits · masked')", "no number"),
        ("mean('trial/table', 'digits · masked', 'leak')", "seed 1"),
        ("claim('trial/table', 'it hide')", "it hides"),
        ("causes('opened')", "no cause 'opened'"),
        ("what('is this')", "'what' is undefined"),
        ("mean('trial/table')", "missing 1 required"),
        ("mean(", "unexpected"),
    ],
)
def test_what_cannot_be_filled_is_an_error(results, place, problem):
    with pytest.raises(Misuse, match=problem):
        fill(f"{{{{{place}}}}}", results)


def test_a_claim_that_is_not_measured_has_no_number(results):
    results.artifact("trial/table")["claims"][1]["word"] = "not measured"
    text = "A {{ claim('trial/table', 'it hides') }}, B {{ claim('trial/table', 'it is fast') }}."
    assert fill_places(text, results, unknown="–") == "A +0.5, B –."


def test_a_table_has_all_cells(results):
    plain = results.artifact("trial/table")["cells"][0]["repeats"][0]["values"]
    plain["learns"] = "nothing"
    table = fill("{{ table('trial/table', 'learns') }}", results)
    assert table.splitlines() == [
        "|  | a, b | masked |",
        "| --- | --- | --- |",
        "| digits | nothing |  |",
    ]
    with pytest.raises(Misuse, match="no text 'colour'"):
        fill("{{ table('trial/table', 'colour') }}", results)


def test_paragraphs_are_wrapped_and_tables_are_not(results):
    long = "word " * 40
    text = f"# A title\n\n{long}\n\n- {long}\n- short\n\n| {long} |\n| --- |\n"
    lines = fill(text, results).splitlines()
    assert all(len(line) <= 100 for line in lines if not line.startswith("|"))
    assert lines.count("- short") == 1
    assert fill(text, results).endswith("| --- |\n")


def test_the_committed_report_has_the_numbers_of_the_results(tmp_path):
    shutil.copytree(PAPERS / "report", tmp_path / "report")
    shutil.copytree(PAPERS / "results", tmp_path / "results")
    committed = (PAPERS / "report" / "README.md").read_text(encoding="utf-8")
    written = write_report(tmp_path / "results").read_text(encoding="utf-8")
    assert written == committed, "run: tacit reproduce report --out papers/results"
    assert "{{" not in written


def test_without_a_template_the_command_says_where_it_belongs(tmp_path):
    with pytest.raises(Misuse, match="template") as refused:
        write_report(tmp_path / "results")
    assert "papers/results" in refused.value.remedy
