"""A configuration with other values: those of a grid, or another algorithm by its label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_type_hints

from tacit.algorithms.algorithm import options_of
from tacit.config.kinds import SELECTORS
from tacit.config.loading import make_config, no_note
from tacit.config.options import OPTION_FAMILIES, algorithm_class
from tacit.config.overrides import REMOVED, Note, parse_override
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
    known = _option_names(name)
    allowed = {*_option_names(config.algorithm.name)}.union(
        *(_option_names(split_outside_brackets(variant, "+")[0]) for variant in variants)
    )
    options = {}
    for key, value in config.algorithm.options.items():
        if key not in allowed:
            raise Misuse(
                f"algorithm.{key} is an option of none of {', '.join(variants)}.", "Remove it."
            )
        if key in known:
            options[key] = value
        else:
            note(f"algorithm.{key} = {value!r} is dropped: {name!r} has no such option.")
    for setting in settings:
        (option, *rest), value = parse_override(setting)
        if rest:
            hint = get_type_hints(algorithm_class(name, "algorithm")).get(option)
            table, family = options.get(option), OPTION_FAMILIES.get(hint)
            if family is not None and isinstance(table, str):
                table = {family.selector: table}
            if not isinstance(table, dict) or len(rest) != 1:
                raise Misuse(
                    f"{setting!r} in the algorithm {label!r} sets a key of something that is no "
                    "table.",
                    f"Set {option} in the configuration.",
                )
            value = table | {rest[0]: value}
        if value is REMOVED:
            options.pop(option, None)
        else:
            options[option] = value
    plain = config.as_dict() | {"algorithm": {"name": name, **options}}
    if "privacy" in plain and not algorithm_class(name, "algorithm").keeps_guarantee:
        del plain["privacy"]
        note(f"[privacy] is dropped: {name!r} keeps no guarantee.")
    return make_config(plain)


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


def _option_names(algorithm: str) -> list[str]:
    return list(options_of(algorithm_class(algorithm, "algorithm")))
