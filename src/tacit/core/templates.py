"""Templates: they say what Python computes. A package keeps its own in a folder `templates`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

PLAIN = (".txt.jinja", ".md.jinja", ".tex.jinja")


def environment(package: str, **filters: Callable[..., Any]) -> Environment:
    """The templates in the folder `templates` of a package.

    What is inserted into HTML and SVG is escaped, unless it is Markup; plain text, Markdown and
    LaTeX stay as they are. A name that a template uses but does not get is an error.
    """
    made = Environment(
        loader=PackageLoader(package),
        autoescape=lambda name: name is None or not name.endswith(PLAIN),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters
    return made


class Phrases:
    """What the macros of one template say: `phrases("macro", …)` gives its paragraphs."""

    def __init__(self, package: str, name: str, **filters: Callable[..., Any]) -> None:
        self._package, self._name, self._filters = package, name, filters

    @cached_property
    def _template(self) -> Template:
        return environment(self._package, **self._filters).get_template(self._name)

    def __call__(self, macro: str, **values: object) -> list[str]:
        return paragraphs(self._template, macro, **values)


def paragraphs(template: Template, macro: str, **values: object) -> list[str]:
    """The paragraphs that a macro of a template gives, each in one line."""
    said = str(getattr(template.module, macro)(**values))
    return [" ".join(part.split()) for part in said.split("\n\n") if part.strip()]
