"""Notebooks as pages: their text, code and stored outputs as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

# Pandas colours its tables for notebooks; the site has its own style.
STYLE = re.compile(r"<style[^>]*>.*?</style>\s*", re.DOTALL)


def to_markdown(notebook: str, name: str) -> str:
    """The page of a notebook, whose file is called `name`."""
    cells = json.loads(notebook)["cells"]
    link = f'<a href="../{escape(name)}" download>{escape(name)}</a>'
    note = f'<p class="notebook-file">This page is a notebook: {link}</p>'
    parts = [part for cell in cells for part in _cell(cell)]
    return "\n\n".join([parts[0], note, *parts[1:]]) + "\n"


def _cell(cell: Mapping[str, Any]) -> Iterator[str]:
    source = _text(cell["source"])
    if cell["cell_type"] != "code":
        yield source
        return
    yield _fenced("bash" if source.startswith("!") else "python", source.removeprefix("!"))
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield _fenced('text title="output"', _text(output["text"]))
            continue
        data = output["data"]
        if "image/png" in data:
            image = "".join(_text(data["image/png"]).split())
            yield f'<img class="notebook-figure" alt="Figure" src="data:image/png;base64,{image}">'
        elif "text/html" in data:
            html = re.sub(r"\n\s*", "\n", STYLE.sub("", _text(data["text/html"]))).strip()
            html = html.replace(' border="1" class="dataframe"', "")
            yield f'<div class="notebook-output">\n{html}\n</div>'
        else:
            yield _fenced('text title="output"', _text(data["text/plain"]))


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _text(lines: str | Sequence[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)
