"""The algorithm of a configuration: its options, the noise of its guarantee, robust mixing."""

from __future__ import annotations

import dataclasses
from typing import Any, cast, get_type_hints

from tacit.algorithms import ALGORITHMS
from tacit.algorithms.algorithm import Algorithm, state_type
from tacit.algorithms.named import check_options
from tacit.algorithms.private_algorithm import prepare
from tacit.config.options import import_object, make_option, make_rate
from tacit.config.sections import Config
from tacit.core.errors import Misuse, prefix_errors
from tacit.core.schedules import Rate
from tacit.engines.gradients.personal import check_local
from tacit.engines.robust_mixing import Robust
from tacit.engines.running import epoch_length
from tacit.engines.setting import check_fit
from tacit.graph import Graph
from tacit.privacy.guarantee import Privacy
from tacit.tasks import Objective


def make_algorithm_for(
    config: Config, task: Objective, graph: Graph, reserve: int = 0
) -> tuple[Algorithm, int]:
    """Make the algorithm of a configuration for its task; return it and the round's iterations.

    A guarantee covers `reserve` iterations more than the run has, in case some are repeated.
    """
    name, options = config.algorithm.name, config.algorithm.options
    draft = make_algorithm(name, options, round_length=1, steps=1)
    with prefix_errors("[algorithm]"):
        check_fit(draft, task)
    round_length = config.run.iterations_per_round or epoch_length(task, draft)
    steps = round_length * config.run.rounds
    algorithm = make_algorithm(name, options, round_length, steps)
    algorithm = with_guarantee(config, algorithm, task, graph, steps + reserve)
    with prefix_errors("[model]"):
        check_local(algorithm, task)
    return with_robust_mixing(config, algorithm), round_length


def make_algorithm(name: str, options: dict[str, Any], round_length: int, steps: int) -> Algorithm:
    """Make an algorithm from options as written in a configuration.

    Schedules that set neither `epochs` nor `steps` get the length of a round or of the run.
    """
    kind = algorithm_class(name, "algorithm.name")
    hints = get_type_hints(kind)
    check_options(name, kind, options, "algorithm.")
    values: dict[str, Any] = {}
    for option, value in options.items():
        key = f"algorithm.{option}"
        if hints[option] == Rate:
            # Step sizes decay by rounds unless they say otherwise; other rates by iterations.
            period = round_length if option == "lr" else 1
            values[option] = make_rate(key, value, round_length, steps, period)
        else:
            values[option] = make_option(key, value, hints[option])
    with prefix_errors("[algorithm]"):
        return cast(Algorithm, kind(**values))


def algorithm_class(name: str, key: str) -> type[Any]:
    """The class of a registered algorithm, or of a user's own at "package.module:Class"."""
    if ":" not in name:
        with prefix_errors(key):
            return ALGORITHMS.find(name)
    kind = import_object(name, key)
    remedy = "Write it as docs/guides/own-algorithm.md shows."
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise Misuse(f"{key} = {name!r} is not a dataclass.", remedy)
    if not issubclass(kind, Algorithm):
        raise Misuse(f"{key} = {name!r} does not derive from tacit.algorithms.Algorithm.", remedy)
    missing = [] if hasattr(kind, "name") else ["name"]
    missing += sorted(kind.__abstractmethods__)
    if missing:
        raise Misuse(f"{key} = {name!r} has no {', no '.join(missing)}.", remedy)
    try:
        state_type(kind)
    except NameError as problem:
        raise Misuse(
            f"{key} = {name!r} has an annotation with an unknown name: {problem}.", remedy
        ) from None
    except TypeError:
        raise Misuse(
            f"{key} = {name!r} does not declare what its state is.", f"Annotate start. {remedy}"
        ) from None
    return kind


def with_guarantee(
    config: Config, algorithm: Algorithm, task: Objective, graph: Graph, steps: int
) -> Algorithm:
    """The algorithm with the noise that keeps the promise of [privacy] for so many iterations.

    Raises:
        Misuse: If the promise cannot be kept, or the algorithm needs one and there is none.
    """
    promise = promise_of(config, algorithm)
    with prefix_errors("[privacy]"):
        return prepare(algorithm, promise, task, graph, steps)


def promise_of(config: Config, algorithm: Algorithm) -> Privacy | None:
    """The promise of [privacy]; None for an algorithm that keeps none.

    Raises:
        Misuse: If the algorithm needs a promise and there is none, or it does not keep one.
    """
    section = config.privacy
    if not algorithm.keeps_guarantee:
        if section is None:
            return None
        raise Misuse(
            f"[privacy] promises a guarantee, which {algorithm.name} does not keep.",
            "Choose an algorithm that does (`tacit algorithms`), or remove the section.",
        )
    if section is None:
        raise Misuse(
            f"{algorithm.name} keeps a guarantee, and none is given.",
            "Add one: [privacy] epsilon = 3.0 (or inf for sums without noise).",
        )
    with prefix_errors("[privacy]"):
        return Privacy(**section.model_dump())


def with_robust_mixing(config: Config, algorithm: Algorithm) -> Algorithm:
    """The algorithm as [robust] changes it; itself without that section."""
    section = config.robust
    if section is None:
        return algorithm
    with prefix_errors("[robust]"):
        return Robust(algorithm, section.rule, section.liars, section.allow_inexact)
