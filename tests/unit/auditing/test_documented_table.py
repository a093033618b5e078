"""The table in docs/reference/what-leaks.md, cell by cell."""

import re
import tomllib
from pathlib import Path

import pytest

import tacit
from support.suited import guaranteed, made
from tacit.algorithms import ALGORITHMS
from tacit.auditing.adversary import Adversary
from tacit.auditing.statements import StrongestLeak
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "what-leaks.md"
GRAPH = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
ADVERSARIES = ("curious(1)", "curious(1,4)", "eavesdropper")


def documented():
    """Algorithm, options and cells of every row."""
    _, _, rest = PAGE.read_text().partition("<!-- generated: leaks -->")
    lines = rest.partition("<!-- end of generated text -->")[0].strip().splitlines()[2:]
    for line in lines:
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        name, *options = re.findall(r"`([^`]*)`", first)
        yield name, tomllib.loads("\n".join(options)), tuple(cells)


ROWS = list(documented())


@pytest.mark.parametrize(("name", "options", "cells"), ROWS, ids=lambda value: str(value))
def test_every_cell_is_what_the_audit_finds(name, options, cells):
    algorithm = guaranteed(made(ALGORITHMS[name], **options), GRAPH)
    run = run_on_symbols(algorithm, GRAPH, 6, common_start=True)
    known = [Knowledge(run, Adversary.parse(text)) for text in ADVERSARIES]
    assert tuple(str(StrongestLeak.of(Leakage(knowledge, 0))) for knowledge in known) == cells


def test_every_algorithm_is_in_the_table():
    assert {name for name, options, _ in ROWS if not options} == set(ALGORITHMS)
