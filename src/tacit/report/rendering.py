"""Templates: they say what Python computes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from tacit.core.templates import environment
from tacit.privacy.planning import epsilon_text
from tacit.record.history import decibels
from tacit.report.measures import format_metric, metric_title
from tacit.report.numbers import format_bytes, format_duration, format_number
from tacit.report.style import series_sign

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
def templates() -> Environment:
    """The templates of reports, with their filters."""
    made = environment(
        "tacit.report",
        marked=marked,
        latex=latex,
        number=format_number,
        bytes=format_bytes,
        duration=format_duration,
        metric=format_metric,
        metric_title=metric_title,
        decibels=decibels,
        epsilon=epsilon_text,
    )
    made.globals["series_sign"] = series_sign
    return made


def render(name: str, **values: Any) -> Markup:
    """A filled template of reports; "" if it says nothing."""
    return Markup(templates().get_template(name).render(values).strip())


def source(name: str) -> str:
    """A file beside the templates of reports, as it is."""
    made = templates()
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
