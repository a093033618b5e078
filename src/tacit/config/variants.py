"""A configuration with other values: those of a grid, or another algorithm by its label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit.algorithms.algorithm import options_of
from tacit.config.algorithms import algorithm_class
from tacit.config.kinds import SELECTORS
from tacit.config.loading import make_config, no_note
from tacit.config.overrides import Note
from tacit.config.sections import Config
from tacit.core.errors import Misuse


def with_values(
    config: Config, values: Mapping[str, str], algorithms: Sequence[str], note: Note = no_note
) -> Config:
    """The configuration with a value for each of some keys.

    Args:
        config: The configuration.
        values: A value by its key as in `--set`, or a label by its section, such as
            {"algorithm": "lppa+fresh=true", "graph": "random-regular+degree=4"}.
        algorithms: The labels of all algorithms that are compared; see `make_variant`.
        note: Told of options that changed kinds drop.
    """
    overrides = []
    for key, value in values.items():
        if key == "algorithm":
            config = make_variant(config, value, algorithms, note)
        elif key in SELECTORS:
            name, *options = split_outside_brackets(value, "+")
            overrides.append(f"{key}.{SELECTORS[key]}={name}")
            overrides += [f"{key}.{option}" for option in options]
        else:
            overrides.append(f"{key}={value}")
    return make_config(config.as_dict(), overrides, "The grid", note)


def make_variant(
    config: Config, label: str, variants: Sequence[str], note: Note = no_note
) -> Config:
    """The configuration with the algorithm and the options of a label such as "lppa+fresh=true".

    An algorithm that keeps no guarantee runs without [privacy]. Options of the configuration carry
    over to algorithms that have them. An option that neither the configuration's own algorithm nor
    any of the `variants` has is an error. `note` is told of what is dropped.
    """
    name, *settings = split_outside_brackets(label, "+")
    kind = algorithm_class(name, "algorithm")
    names = (config.algorithm.name, *(split_outside_brackets(each, "+")[0] for each in variants))
    allowed = {
        option for each in names for option in options_of(algorithm_class(each, "algorithm"))
    }
    options = {}
    for key, value in config.algorithm.options.items():
        if key not in allowed:
            raise Misuse(
                f"algorithm.{key} is an option of none of {', '.join(variants)}.", "Remove it."
            )
        if key in options_of(kind):
            options[key] = value
        else:
            note(f"algorithm.{key} = {value!r} is dropped: {name!r} has no such option.")
    plain = config.as_dict() | {"algorithm": {"name": name, **options}}
    if "privacy" in plain and not kind.keeps_guarantee:
        del plain["privacy"]
        note(f"[privacy] is dropped: {name!r} keeps no guarantee.")
    return make_config(plain, [f"algorithm.{setting}" for setting in settings], note=note)


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split a text at the separators that are not inside brackets.

    Example:
        >>> split_outside_brackets("a+b={x=[1,2]},c", ",")
        ['a+b={x=[1,2]}', 'c']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
