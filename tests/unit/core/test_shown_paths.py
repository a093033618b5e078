"""Texts that people share do not show the folders of a machine."""

import doctest
import sys

import pytest

from tacit.core import provenance, shown_paths
from tacit.core.shown_paths import without_folders


def test_examples():
    assert doctest.testmod(shown_paths).failed == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/rows.csv: 3 clients, 1/2 of them", "…/rows.csv: 3 clients, 1/2 of them"),
        ("--out=/home/ada/runs/first", "--out=…/first"),
        ("/home/ada l/sites/{client}.csv", "…/{client}.csv"),
        ("~/rows.csv, ~ada/rows.csv", "…/rows.csv, …/rows.csv"),
        ("C:\\Users\\ada\\rows.csv", "…/rows.csv"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("sites/{client}.csv, ../other/rows.csv", "sites/{client}.csv, ../other/rows.csv"),
        ("3 / 4 and 1/2/3", "3 / 4 and 1/2/3"),
    ],
)
def test_only_absolute_paths_are_shortened(text, shown):
    assert without_folders(text) == shown


def test_the_command_of_a_result_names_no_folder(monkeypatch):
    words = ["/home/ada/bin/tacit", "run", "/home/ada/my data/c.toml", "--out", "run"]
    monkeypatch.setattr(sys, "argv", words)
    assert provenance.current_provenance()["command"] == "tacit run '…/c.toml' --out run"
