"""Runs the notebooks of the documentation.

`python tests/docs/notebooks.py` runs all of them and stores what their cells show, which the site
displays and tests compare with a new run.
"""

from __future__ import annotations

import copy
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
SECONDS_PER_CELL = 300


def notebooks() -> list[Path]:
    """All notebooks of the documentation."""
    return sorted((ROOT / "docs").rglob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """A notebook as it is stored."""
    return nbformat.read(path, as_version=4)


def run(stored: NotebookNode, folder: Path, after: str = "") -> NotebookNode:
    """A copy with the outputs of a new run in `folder`; a cell `after` is added at its end.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    notebook = copy.deepcopy(stored)
    if after:
        notebook.cells.append(nbformat.v4.new_code_cell(after))
    programs = Path(sys.executable).parent
    variables = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "TERM": "dumb",
    }
    variables.pop("TACIT_DATA", None)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,
    )
    client.execute(env=variables)
    return notebook


def shown(cell: NotebookNode) -> str:
    """What a code cell shows, as text."""
    texts = [
        output.text if output.output_type == "stream" else output.data.get("text/plain", "")
        for output in cell.outputs
    ]
    return "\n".join(texts).replace("\r\n", "\n")


def store(path: Path) -> None:
    """Run a notebook and store what its cells show."""
    stored = read(path)
    with tempfile.TemporaryDirectory() as folder:
        notebook = run(stored, Path(folder))
    # Without the version of Python that ran it.
    notebook.metadata = stored.metadata
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                output.text = re.sub(r"\x1b\[[0-9;]*m", "", output.text.replace("\r\n", "\n"))
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for one in notebooks():
        store(one)
        print(one.relative_to(ROOT))
