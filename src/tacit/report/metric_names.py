"""Metrics as reports call them."""

from __future__ import annotations

from tacit.tasks.metrics.metric import describe_metric

OWN_TEST = "own_test."


def metric_title(name: str) -> str:
    """A metric's name in a title, such as "AUC" or "AUC, own test sets"."""
    plain = name.removeprefix(OWN_TEST)
    title = "Majority baseline" if plain == "baseline" else describe_metric(plain).label
    return title if plain == name else f"{title}, own test sets"


def metric_unit(name: str) -> str:
    """What stands behind a metric's numbers: " %" or nothing."""
    plain = name.removeprefix(OWN_TEST)
    return " %" if plain == "baseline" else describe_metric(plain).unit


def metric_form(name: str) -> str:
    """The format of a metric's numbers."""
    return ".2f" if metric_unit(name) else ".4g"


def axis_label(name: str) -> str:
    """A metric's name at an axis."""
    plain = name.removeprefix(OWN_TEST)
    return f"{plain} (%)" if metric_unit(name) else plain
