"""The order of the packages, and of the files: imports run one way."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent
# docs/explanation/architecture.md says what each of them is for, and why they are in this order.
PACKAGES = [
    "core", "graph", "data", "models", "compression", "privacy", "gradients", "tasks",
    "algorithms", "record", "engines", "auditing", "config", "report", "experiment", "peer", "cli",
]  # fmt: skip
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


def imported(text):
    """The packages that a module imports from, wherever it does; "tacit" for the public names."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "tacit":
            names = [f"tacit.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "tacit":
                yield node.lineno, [*name.split("."), "tacit"][1]


def violations(text, package):
    """Imports from packages that come later, or from the package itself, which imports them all."""
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    return [f"line {line}: {other}" for line, other in imported(text) if other not in allowed]


def test_every_package_has_its_place():
    found = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert found - {"__init__", "__main__"} == set(PACKAGES)


def test_packages_import_only_from_packages_before_them():
    climbs = {
        str(path.relative_to(SOURCE)): violations(
            path.read_text("utf-8"), path.relative_to(SOURCE).parts[0].removesuffix(".py")
        )
        for path in FILES
    }
    assert {path: lines for path, lines in climbs.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from tacit.engines.lazy_rows import Rows",
        "from tacit import engines",
        "import tacit",
        "def late():\n    from tacit.cli.app import app",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tacit.peer.node",
    ],
)
def test_the_check_sees_every_kind_of_import(text):
    assert len(violations(text, "tasks")) == 1
    assert violations("from tacit.core.errors import Misuse\nimport torch", "tasks") == []


def modules():
    """All files of the package, by the name they are imported by."""
    for path in SOURCE.rglob("*.py"):
        parts = ("tacit", *path.relative_to(SOURCE).with_suffix("").parts)
        yield ".".join(parts).removesuffix(".__init__"), path.read_text("utf-8")


def imported_modules(name, text, known):
    """The files that a file imports, anywhere in it and for types, too."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {other if other in known else node.module for other in names}
    return (found & known) - {name}


def first_circle(sources):
    """Files that import each other, or None."""
    known = sources.keys()
    try:
        TopologicalSorter(
            {name: imported_modules(name, text, known) for name, text in sources.items()}
        ).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_two_files_import_each_other():
    """Not even for types: what both need belongs into a third file."""
    assert first_circle(dict(modules())) is None


@pytest.mark.parametrize(
    "text",
    [
        "import b",
        "from b import thing",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from b import Thing",
        "def late():\n    from b.part import thing",
    ],
)
def test_every_kind_of_circle_is_seen(text):
    assert first_circle({"a": text, "b": "import a", "b.part": "from a import other"}) is not None
    assert first_circle({"a": text, "b": "import math", "b.part": "import b"}) is None


def test_what_torch_keeps_private_is_looked_up_in_one_place_that_can_do_without():
    """Any torch from 2.6 on may be installed. (Rules of gradients name what its layers call.)"""
    users = {
        str(path.relative_to(SOURCE))
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch._")
        if not node.attr.startswith("__") and "gradients" not in path.relative_to(SOURCE).parts
    }
    assert users == {"engines/buffers.py"}
