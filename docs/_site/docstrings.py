"""An extension of Griffe: prepares docstrings for the site."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

SYMBOL = re.compile(r"[^\x00-\x7f]")


class Docstrings(griffe.Extension):
    """Makes examples a section, and keeps the lines of equations apart."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = prepare(obj.docstring.value)


def prepare(text: str) -> str:
    """The text with `Examples:` for `Example:`, and equations as code."""
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
    paragraphs = text.split("\n\n")
    for number, paragraph in enumerate(paragraphs[1:], start=1):
        lines = paragraph.splitlines()
        if lines and lines[0].startswith(">>>"):
            paragraphs[number] = "Examples:\n" + textwrap.indent(paragraph, "    ")
        elif lines and all(_is_equation(line) for line in lines):
            paragraphs[number] = f"```text\n{paragraph}\n```"
    return "\n\n".join(paragraphs)


def _is_equation(line: str) -> bool:
    symbols = len(SYMBOL.findall(line)) >= 2 or "ψ" in line
    return " = " in line and symbols and not line.startswith(" ") and not line.endswith(".")
