"""Which names of Tacit an author must know: those of the shortest examples that work.

`python tools/author_names.py` writes the table into CONTRIBUTING.md. A test runs the examples, and
compares the table. A name counts once: what an example takes from `tacit`, the attributes and
methods it uses of what it got from there, and what its classes define for Tacit to find.
"""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import torch

ROOT = Path(__file__).parents[1]
EXAMPLES = Path(__file__).parent / "author_examples"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- tools/author_names.py writes this -->\n", "<!-- end -->\n"
AUTHORS = ("algorithm", "engine", "attack", "node")
# Methods of other libraries that the examples call.
FOREIGN = {name for kind in (dict, list, Queue, ThreadPoolExecutor) for name in dir(kind)}
FOREIGN |= {"double", "repeat"} & set(dir(torch.Tensor))


def names(source: str) -> list[str]:
    """The names of Tacit in the source of an example, sorted."""
    tree = ast.parse(source)
    modules = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tacit")
        for alias in node.names
    }
    found = {f"tacit.{name}" for name in imported}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root = node.value
            base = root.id if isinstance(root, ast.Name) else ""
            if base == "tacit":
                found.add(f"tacit.{node.attr}")
            elif base not in {*modules, "self"} and not (
                id(node) in called and node.attr in FOREIGN
            ):
                found.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            found |= _defined(node)
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    return sorted(found - own - _own_methods(tree))


def _defined(node: ast.ClassDef) -> set[str]:
    """What a class defines, but for names that begin with an underscore."""
    defined = set()
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            defined.add(statement.name)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            defined.add(statement.target.id)
        elif isinstance(statement, ast.Assign):
            defined |= {name.id for name in statement.targets if isinstance(name, ast.Name)}
    return {name for name in defined if not name.startswith("_")}


def _own_methods(tree: ast.Module) -> set[str]:
    """Methods that only the example itself calls, so that Tacit need not find them."""
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "net"
    }
    defined = {
        name for node in tree.body if isinstance(node, ast.ClassDef) for name in _defined(node)
    }
    return called & defined


def table() -> str:
    """The table for CONTRIBUTING.md."""
    lines = ["| author of | names | which |", "| --- | --- | --- |"]
    for author in AUTHORS:
        found = names((EXAMPLES / f"{author}.py").read_text("utf-8"))
        listed = ", ".join(f"`{name}`" for name in found)
        article = "an" if author[0] in "aeiou" else "a"
        link = f"[{article} {author}](tools/author_examples/{author}.py)"
        lines.append(f"| {link} | {len(found)} | {listed} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """The text of CONTRIBUTING.md with the table of today."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    CONTRIBUTING.write_text(written(CONTRIBUTING.read_text("utf-8")), "utf-8")
