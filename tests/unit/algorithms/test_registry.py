"""Algorithms are registered by name, and the rest of the library does not mention them."""

import ast
import re
from pathlib import Path

import pytest

import tacit
from tacit.algorithms import ALGORITHMS

SOURCE = Path(tacit.__file__).parent
# These may name algorithms: their own package, the shipped configurations and the public names.
ALLOWED = {
    "algorithms", "__init__.py", "experiment/demo.py", "config/sections.py",
}  # fmt: skip


def other_modules():
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE).as_posix()
        if not any(inside == allowed or inside.startswith(f"{allowed}/") for allowed in ALLOWED):
            yield inside


def words_of(source):
    """Names and strings in a module's code.

    A string with a space is a sentence for readers, which may have an example: docstrings, help
    and remedies. Code that treats an algorithm specially needs its bare name.
    """
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and " " not in node.value:
            yield from re.findall(r"[\w-]+", node.value)
        if isinstance(node, ast.Name):
            yield node.id
        if isinstance(node, ast.Attribute):
            yield node.attr
        if isinstance(node, ast.alias):
            yield from node.name.split(".")


def test_no_algorithm_is_named_outside_its_package():
    classes = {kind.__name__ for kind in ALGORITHMS.values()}
    files = {kind.__module__.rpartition(".")[2] for kind in ALGORITHMS.values()}
    names = {*ALGORITHMS, *files, *classes, *(name.upper() for name in ALGORITHMS)}
    found = {
        inside: names.intersection(words_of((SOURCE / inside).read_text(encoding="utf-8")))
        for inside in other_modules()
    }
    assert {inside: named for inside, named in found.items() if named} == {}


@pytest.mark.parametrize(
    "code",
    [
        "if name == 'lppa': pass",
        "from tacit.algorithms import lppa",
        "f(['dsgt,lppa'])",
        "t.lppa()",
    ],
)
def test_the_check_finds_names_in_code(code):
    assert "lppa" in set(words_of(code))


def test_the_check_passes_over_examples_in_sentences():
    assert "lppa" not in set(words_of("help = 'Its name, e.g. lppa.'"))


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_has_its_own_module(name):
    kind = ALGORITHMS[name]
    assert kind.name == name
    assert kind.__module__ == f"tacit.algorithms.{name.replace('-', '_')}"
    # A public name is one more line, in `__init__.pyi`.
    assert getattr(tacit, kind.__name__, kind) is kind


def test_the_field_knows_every_algorithm_by_a_name_in_one_line():
    for name in (name for name in ALGORITHMS if ALGORITHMS.package(name) is None):
        line = ALGORITHMS[name].known_as
        assert line, name
        assert "\n" not in line
        assert len(line) <= 90
    assert "no differential privacy" in ALGORITHMS["dp-dsgt"].known_as
    assert "adapt-then-combine" in ALGORITHMS["dsg"].known_as
    assert "exact diffusion" in ALGORITHMS["edsg"].known_as
