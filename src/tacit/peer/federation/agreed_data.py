"""What the members of a federation agree on about their data: input shape and classes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt

from tacit import data
from tacit.config.options import check_names, prefix_errors, validate_value
from tacit.config.sections import Config
from tacit.core.errors import Misuse

OWN_DATA = "own"  # the data.name of a federation in which every node brings its own data
OPTIONS = {
    "shape": Annotated[list[PositiveInt], Field(min_length=1)],
    "classes": Annotated[int, Field(ge=2)],
}


def agreed_data(config: Config) -> tuple[tuple[int, ...], int]:
    """The shape of one input and the number of classes; raises Misuse if they are not agreed on."""
    section = config.data
    options = section.options
    if section.name != OWN_DATA:
        with prefix_errors("[data]"):
            known = data.describe(section.name)
        if "features" in options and "features" in known.options:
            features = validate_value("data.features", options["features"], PositiveInt)
            return (features,), known.classes
        return known.shape, known.classes
    check_names("data", options, list(OPTIONS), "own data")
    for key in ("limit_train", "limit_test"):
        if getattr(section, key) is not None:
            raise Misuse(
                f"[data]: {key} is set for own data.", "Remove it: each node limits its own data."
            )
    for key in OPTIONS:
        if key not in options:
            raise Misuse(
                f"[data]: own data need {key}, which is not set.",
                "Add what all nodes agree on, e.g. shape = [30] and classes = 2.",
            )
    shape, classes = (
        validate_value(f"data.{key}", options[key], kind) for key, kind in OPTIONS.items()
    )
    return tuple(shape), classes
