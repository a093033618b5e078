"""Templates: they say what Python computes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tacit.report.style import series_sign

PLAIN = (".txt.jinja", ".md.jinja", ".tex.jinja")
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "±": r"$\pm$",
    "−": r"$-$",
    "∞": r"$\infty$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


@cache
def environment(package: str = "tacit.report") -> Environment:
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
    made.filters |= {"marked": marked, "latex": latex}
    made.globals["series_sign"] = series_sign
    return made


def render(name: str, **values: Any) -> Markup:
    """A filled template of reports; "" if it says nothing."""
    return Markup(environment().get_template(name).render(values).strip())


def source(name: str) -> str:
    """A file beside the templates of reports, as it is."""
    made = environment()
    assert made.loader is not None
    return made.loader.get_source(made, name)[0]


def marked(text: str) -> Markup:
    """Text with `code` in code style.

    Example:
        >>> marked("Set `a < b`.")
        Markup('Set <code>a &lt; b</code>.')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda found: LATEX[found.group()], text)
