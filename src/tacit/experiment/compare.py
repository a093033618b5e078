"""Compare algorithms on one experiment: the same data, graph and initial weights per seed."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_type_hints

from tacit.algorithms.algorithm import options_of
from tacit.config.loading import make_config, with_keys
from tacit.config.options import OPTION_FAMILIES, algorithm_class
from tacit.config.overrides import REMOVED, parse_override
from tacit.config.sections import Config
from tacit.core.errors import Misuse, unknown_name
from tacit.core.storage import write_json
from tacit.experiment.folder import RunFolder, folder_name
from tacit.experiment.run_many import (
    ListenerFor,
    LoadedData,
    PlannedRun,
    named_failure,
    no_listener,
    run_many,
)
from tacit.record.history import decibels
from tacit.tasks.metrics.metric import find_metrics


@dataclass(frozen=True)
class ComparisonRow:
    """One variant over all seeds; pairs are mean and standard deviation.

    Attributes:
        accuracy: In percent, if the task has accuracies.
        difference: To the first row, paired by seed: of the comparison's metric.
        diverged: Number of runs that diverged.
        msd_db: Mean-square deviation in decibels, if the optimum is known.
        epsilon: The largest ε that a run has spent; None without a guarantee.
        baseline: Majority baseline in percent, the mean over seeds, if the task has accuracies.
        metrics: Further ones by name; those on clients' own test sets start with "own_test.".
        misleading: Number of runs whose accuracy misleads: see `alerts` of their summaries.
        differences: To the first row, paired by seed, of every metric by name.
    """

    label: str
    accuracy: tuple[float, float] | None
    difference: tuple[float, float] | None
    loss: tuple[float, float] | None
    bytes_sent: float
    diverged: int
    msd_db: tuple[float, float] | None = None
    epsilon: float | None = None
    baseline: float | None = None
    metrics: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    misleading: int = 0
    differences: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, None for numbers that are not finite."""
        plain = dataclasses.asdict(self)
        for key in ("accuracy", "difference", "loss", "msd_db"):
            plain[key] = _plain_pair(plain[key])
        for key in ("metrics", "differences"):
            plain[key] = {name: _plain_pair(pair) for name, pair in plain[key].items()}
        return plain

    def value(self, metric: str) -> tuple[float, float] | None:
        """Mean and deviation of a metric by name; None if this variant has none."""
        if metric in ("accuracy", "loss", "msd_db"):
            return cast(tuple[float, float] | None, getattr(self, metric))
        return self.metrics.get(metric)


@dataclass(frozen=True)
class Comparison:
    """The rows of the table, and the folders of the runs behind them."""

    rows: list[ComparisonRow]
    folders: list[Path]
    seeds: list[int]
    metric: str = "accuracy"
    """What differences are of: "accuracy", "loss", "msd_db" or a further metric."""

    @property
    def has_guarantees(self) -> bool:
        return any(row.epsilon is not None for row in self.rows)

    @property
    def alerts(self) -> list[str]:
        """A sentence for each variant whose results mislead."""
        return [
            f"{row.label}, {row.misleading} of {len(self.seeds)} runs: models do not beat the "
            "majority baseline or the mean, or predict almost only one class. See the report."
            for row in self.rows
            if row.misleading
        ]

    def as_dict(self) -> dict[str, Any]:
        rows = [row.as_dict() for row in self.rows]
        return {"seeds": self.seeds, "metric": self.metric, "rows": rows}


def compare(
    config: Config,
    variants: Sequence[str],
    seeds: int,
    out: Path,
    *,
    data_folder: Path | None = None,
    metric: str | None = None,
    jobs: int = 1,
    resume: bool = False,
    listener_for: ListenerFor = no_listener,
) -> Comparison:
    """Run every variant with every seed, and write the table to compare.json.

    The promise of [privacy] is for the variants that can keep one; the others run without. All
    variants are built before the first run, so that errors appear early. A run that fails later is
    an error when all others have ended.

    Args:
        config: The experiment. Variants take over its algorithm options where they have them.
        variants: Algorithms with options, such as "lppa" or "lppa+fresh=true".
        seeds: Number of seeds, counted up from the configuration's.
        out: Folder for the runs, new or empty.
        data_folder: Folder of the datasets.
        metric: What differences are of; one that run.metrics does not name is added to the runs.
            Default: the accuracy or, without one, the mean-square deviation.
        jobs: How many runs at the same time, each in a process with its part of the threads.
        resume: Continue the comparison in `out`; finished runs are not repeated.
        listener_for: Makes the listener of a run from its label and seed.
    """
    if seeds < 1:
        raise Misuse(f"--seeds is {seeds}.", "Give at least 1.")
    if not variants:
        raise Misuse("--algorithms names none.", "Give at least one; see `tacit algorithms`.")
    if not resume:
        RunFolder(out).require_empty()
    config = with_metric(config, metric)
    numbers = [config.run.seed + k for k in range(seeds)]
    configs = {label: make_variant(config, label, variants) for label in dict.fromkeys(variants)}
    _check_promise(config, list(configs.values()))
    data = LoadedData(data_folder)
    for variant in configs.values():
        data.check(variant)
    plan = [
        PlannedRun(
            label,
            with_keys(variant, "run", seed=seed),
            RunFolder(out / folder_name(label, f"-seed{seed}")),
        )
        for label, variant in configs.items()
        for seed in numbers
    ]
    for one in plan:
        one.folder.require_same_run(
            one.config, "Choose another --out, or resume with the configuration of that comparison."
        )
    outcomes = run_many(plan, data=data, jobs=jobs, resume=resume, listener_for=listener_for)
    summaries: dict[str, list[dict[str, Any]]] = {label: [] for label in configs}
    for outcome in outcomes:
        if outcome.summary is None:
            raise named_failure(outcome)
        summaries[outcome.planned.label].append(outcome.summary)
    first = next(iter(summaries.values()))
    chosen = metric or _usual_metric(summaries.values())
    rows = [make_row(label, runs, first, chosen) for label, runs in summaries.items()]
    comparison = Comparison(rows, [one.folder.path for one in plan], numbers, chosen)
    write_json(out / "compare.json", comparison.as_dict())
    return comparison


def with_metric(config: Config, metric: str | None) -> Config:
    """The configuration with a metric among those that runs record."""
    name = (metric or "").removeprefix("own_test.")
    recorded = config.run.metrics or []
    if name in ("", "accuracy", "loss", "msd_db", *(one.rpartition(":")[2] for one in recorded)):
        return config
    find_metrics([name], "--metric")
    return with_keys(config, "run", metrics=[*recorded, name])


def make_variant(config: Config, label: str, variants: Sequence[str]) -> Config:
    """The configuration with the algorithm and the options of a label such as "lppa+fresh=true".

    An algorithm that keeps no guarantee runs without [privacy]. Options of the configuration carry
    over to algorithms that have them. An option that neither the configuration's own algorithm nor
    any of the `variants` has is an error.
    """
    name, *settings = split_outside_brackets(label, "+")
    own = _option_names(config.algorithm.name)
    for key in unused_options(config, variants):
        if key not in own:
            raise Misuse(
                f"algorithm.{key} is an option of none of {', '.join(variants)}.", "Remove it."
            )
    known = _option_names(name)
    options = {key: value for key, value in config.algorithm.options.items() if key in known}
    for setting in settings:
        (option, *rest), value = parse_override(setting)
        if rest:
            hint = get_type_hints(algorithm_class(name, "--algorithms")).get(option)
            table, family = options.get(option), OPTION_FAMILIES.get(hint)
            if family is not None and isinstance(table, str):
                table = {family.selector: table}
            if not isinstance(table, dict) or len(rest) != 1:
                raise Misuse(
                    f"{setting!r} in --algorithms sets a key of something that is no table.",
                    f"Set {option} in the configuration.",
                )
            value = table | {rest[0]: value}
        if value is REMOVED:
            options.pop(option, None)
        else:
            options[option] = value
    plain = config.as_dict() | {"algorithm": {"name": name, **options}}
    if not algorithm_class(name, "--algorithms").keeps_guarantee:
        plain.pop("privacy", None)
    return make_config(plain)


def _check_promise(config: Config, variants: Sequence[Config]) -> None:
    if config.privacy is not None and all(variant.privacy is None for variant in variants):
        names = ", ".join(variant.algorithm.name for variant in variants)
        raise Misuse(
            f"[privacy] promises a guarantee, which none of {names} keeps.",
            "Add an algorithm that does (`tacit algorithms`), or remove the section.",
        )


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


def unused_options(config: Config, variants: Sequence[str]) -> list[str]:
    """Options of the configuration that none of the variants has."""
    names = (split_outside_brackets(label, "+")[0] for label in variants)
    known = {option for name in names for option in _option_names(name)}
    return [key for key in config.algorithm.options if key not in known]


def _option_names(algorithm: str) -> list[str]:
    return list(options_of(algorithm_class(algorithm, "--algorithms")))


def make_row(
    label: str, runs: list[dict[str, Any]], first: list[dict[str, Any]], metric: str = "accuracy"
) -> ComparisonRow:
    """The row of a variant from the summaries of its runs, and from those of the first variant.

    Raises:
        Misuse: If the runs do not have the metric.
    """
    accuracy, msd, loss = (_values(runs, name) for name in ("accuracy", "msd_db", "loss"))
    if not _values(runs, metric) and metric not in ("accuracy", "msd_db"):
        known = ["accuracy", "loss", *_further(runs)]
        raise unknown_name(f"--metric {metric}: the runs of {label} have none.", metric, known)
    differences = {} if runs is first else _differences(runs, first)
    baselines = [run["baseline"] for run in runs if run.get("baseline") is not None]
    return ComparisonRow(
        label,
        mean_and_deviation(accuracy) if accuracy else None,
        differences.get(metric),
        mean_and_deviation(loss) if loss else None,
        statistics.fmean(run["bytes_sent"] for run in runs),
        sum("diverged" in run for run in runs),
        mean_and_deviation(msd) if msd else None,
        _epsilon(runs),
        statistics.fmean(baselines) if baselines else None,
        {name: mean_and_deviation(_values(runs, name)) for name in _further(runs)},
        sum(bool(run.get("alerts")) for run in runs),
        differences,
    )


def _differences(
    runs: list[dict[str, Any]], first: list[dict[str, Any]]
) -> dict[str, tuple[float, float]]:
    """The differences of all metrics that both variants have, paired by seed."""
    found = {}
    for name in ("accuracy", "msd_db", "loss", *_further(runs)):
        values, base = _values(runs, name), _values(first, name)
        if values and len(values) == len(base):
            found[name] = mean_and_deviation([a - b for a, b in zip(values, base, strict=True)])
    return found


def _epsilon(runs: list[dict[str, Any]]) -> float | None:
    """The largest ε of the runs; None if one of them has no guarantee."""
    spent = [(run.get("privacy") or {}).get("spent") for run in runs]
    known = [epsilon for epsilon in spent if epsilon is not None]
    return max(known) if len(known) == len(spent) else None


def _usual_metric(variants: Iterable[list[dict[str, Any]]]) -> str:
    """The accuracy; if no run has one, the mean-square deviation if it is known."""
    runs = [run for variant in variants for run in variant]
    has_msd = any(run.get("msd") is not None for run in runs)
    return "msd_db" if has_msd and not _values(runs, "accuracy") else "accuracy"


def _further(runs: list[dict[str, Any]]) -> list[str]:
    """Metrics beside loss and accuracy that all runs have."""
    names = [
        [*run.get("metrics", {}), *(f"own_test.{name}" for name in run.get("own_test", {}))]
        for run in runs
    ]
    return [name for name in names[0] if all(name in others for others in names)]


def _values(runs: list[dict[str, Any]], metric: str) -> list[float]:
    """A metric of each run, the mean over its clients; empty if runs do not have it."""
    if metric == "msd_db":
        known = any(run.get("msd") is not None for run in runs)
        return [decibels(run.get("msd")) for run in runs] if known else []
    if metric in ("accuracy", "loss"):
        spreads = [run[metric] for run in runs]
    elif metric.startswith("own_test."):
        name = metric.removeprefix("own_test.")
        spreads = [run.get("own_test", {}).get(name) for run in runs]
    else:
        spreads = [run.get("metrics", {}).get(metric) for run in runs]
    return [_number(spread["mean"]) for spread in spreads if spread is not None]


def _plain_pair(pair: tuple[float, float] | None) -> dict[str, float | None] | None:
    if pair is None:
        return None
    mean, deviation = (value if math.isfinite(value) else None for value in pair)
    return {"mean": mean, "deviation": deviation}


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; NaN for the deviation of one value."""
    # statistics.stdev fails on values that are not finite.
    defined = len(values) > 1 and all(map(math.isfinite, values))
    return statistics.fmean(values), statistics.stdev(values) if defined else math.nan


def _number(value: float | None) -> float:
    return math.nan if value is None else value
