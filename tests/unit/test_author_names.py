"""The shortest examples for authors work, and CONTRIBUTING lists the names that they need."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from author_names import AUTHORS, CONTRIBUTING, EXAMPLES, names, written  # noqa: E402


@pytest.mark.parametrize("author", AUTHORS)
def test_an_example_works(author):
    assert runpy.run_path(str(EXAMPLES / f"{author}.py"))["result"]


def test_every_example_is_listed_and_the_list_is_up_to_date():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(AUTHORS)
    text = CONTRIBUTING.read_text("utf-8")
    assert text == written(text), "run python tools/author_names.py"


def test_names_of_tacit_are_counted_once_and_others_are_not():
    source = """
import torch
import tacit
from tacit.core.noise import Laplace

class Own(tacit.Algorithm):
    name = "own"
    def step(self, s, here):
        self.seen = torch.cat([s.theta, here.net.mix(x=s.theta)[0]])
        return tacit.run, tacit.run, Laplace, {}.get(0)
"""
    assert names(source) == [
        "mix", "name", "net", "step", "tacit.Algorithm", "tacit.Laplace", "tacit.run", "theta",
    ]  # fmt: skip
