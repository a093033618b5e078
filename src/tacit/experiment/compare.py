"""Comparing algorithms on the same experiment: same data, graph and first weights, paired by seed."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from tacit.config.build import build
from tacit.config.options import OPTION_FAMILIES, algorithm_class
from tacit.config.sections import Config, with_keys, make_config, parse_override
from tacit.core.errors import Diverged, Interrupted, Misuse
from tacit.core.storage import read_json, write_json
from tacit.data import Dataset
from tacit.experiment.folder import RunFolder, fingerprint
from tacit.experiment.run import ProgressListener, run
from tacit.record.history import decibels


@dataclass(frozen=True)
class ComparisonRow:
    """One algorithm over all seeds: mean ± standard deviation, and the paired difference to the first row.

    The difference is that of the accuracies or, where there are none, of the mean-square deviations in decibels.
    """

    label: str
    accuracy: tuple[float, float] | None
    difference: tuple[float, float] | None
    loss: tuple[float, float]
    bytes_sent: float
    diverged: int  # how many of its runs
    msd_db: tuple[float, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, None where a number is not finite."""
        plain = dataclasses.asdict(self)
        for key in ("accuracy", "difference", "loss", "msd_db"):
            pair = getattr(self, key)
            plain[key] = (
                None if pair is None else {"mean": _finite(pair[0]), "deviation": _finite(pair[1])}
            )
        return plain


@dataclass(frozen=True)
class Comparison:
    """The rows of the table, and the folders of the runs behind them."""

    rows: list[ComparisonRow]
    folders: list[Path]
    seeds: list[int]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"seeds": self.seeds, "rows": [row.as_dict() for row in self.rows]}


def compare(
    config: Config,
    variants: Sequence[str],
    seeds: int,
    out: Path,
    *,
    data_folder: Path | None = None,
    resume: bool = False,
    watch: Callable[[str, int], ProgressListener] = lambda label, seed: ProgressListener(),
) -> Comparison:
    """Run each variant ("lppa", "lppa+fresh=true") with each of `seeds` seeds, starting from the run's own.

    Runs that ended are not run again with `resume`. Every variant is built once, with the run's own seed, before
    the first run begins.
    """
    if seeds < 1:
        raise Misuse(f"--seeds is {seeds}.", "Give at least 1.")
    if not variants:
        raise Misuse("--algorithms names none.", "Give at least one; see `tacit algorithms`.")
    if not resume:
        RunFolder(out).refuse_if_taken()
    numbers = [config.run.seed + k for k in range(seeds)]
    configs = {label: make_variant(config, label, variants) for label in dict.fromkeys(variants)}
    dataset: Dataset | None = None
    for one in configs.values():
        dataset = build(one, data_folder, dataset).dataset
    planned = {
        (label, seed): (with_keys(one, "run", seed=seed), RunFolder(out / f"{label}-seed{seed}"))
        for label, one in configs.items()
        for seed in numbers
    }
    for seeded, folder in planned.values():
        _refuse_another(folder, seeded)
    summaries: dict[str, list[dict[str, Any]]] = {}
    for (label, seed), (seeded, folder) in planned.items():
        summary = _ended(folder, seeded)
        if summary is None:
            with _named(f"{label}, seed {seed}"):
                watcher = watch(label, seed)
                summary = run(
                    seeded, folder.path, dataset=dataset, resume=resume, watcher=watcher
                ).summary
        summaries.setdefault(label, []).append(summary)
    first = next(iter(summaries.values()))
    rows = [_row(label, runs, first) for label, runs in summaries.items()]
    comparison = Comparison(rows, [folder.path for _, folder in planned.values()], numbers)
    write_json(out / "compare.json", comparison.as_dict())
    return comparison


def make_variant(config: Config, label: str, variants: Sequence[str]) -> Config:
    """The configuration with another algorithm: options it does not have are left out, further ones set."""
    name, *settings = split_outside_brackets(label, "+")
    known = _options_of(name)
    own = _options_of(config.algorithm.name)
    for key in unused_options(config, variants):
        if key not in own:
            raise Misuse(
                f"algorithm.{key} is an option of none of {', '.join(variants)}.", "Remove it."
            )
    options: dict[str, Any] = {
        key: value for key, value in config.algorithm.options.items() if key in known
    }
    for setting in settings:
        path, value = parse_override(setting)
        head, *rest = path
        if rest:
            inner = _as_table(name, head, options.get(head))
            if not isinstance(inner, dict) or len(rest) != 1:
                raise Misuse(
                    f"{setting!r} in --algorithms has no table to go into.",
                    f"Set {head} in the config.",
                )
            value = inner | {rest[0]: value}
        options[head] = value
    return make_config(config.as_dict() | {"algorithm": {"name": name, **options}})


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """The parts of a text, where a separator between brackets does not count: "a+b={x=[1,2]},c" has two by commas."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "{[") - (sign in "}]")
        if sign == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _as_table(name: str, option: str, value: Any) -> Any:
    """A value that is the name of one of a family, as the table it stands for; others as they are."""
    hint = get_type_hints(algorithm_class(name, "--algorithms")).get(option)
    family = OPTION_FAMILIES.get(hint)
    return {family.chooser: value} if family is not None and isinstance(value, str) else value


def unused_options(config: Config, variants: Sequence[str]) -> list[str]:
    """Options in the configuration that none of the variants has, and that are therefore left out."""
    names = (split_outside_brackets(label, "+")[0] for label in variants)
    had = {option for name in names for option in _options_of(name)}
    return [key for key in config.algorithm.options if key not in had]


def _options_of(name: str) -> list[str]:
    return [field.name for field in dataclasses.fields(algorithm_class(name, "--algorithms"))]


def _refuse_another(folder: RunFolder, config: Config) -> None:
    """Refuse to go on with a run that was begun with another configuration."""
    if folder.config.exists() and fingerprint(folder.read_config()) != fingerprint(config):
        raise Misuse(
            f"The run in {folder.path} has another configuration.",
            "Choose another --out, or resume with the configuration of that comparison.",
        )


def _ended(folder: RunFolder, config: Config) -> dict[str, Any] | None:
    """The summary of a run that went to its end before; one that diverged on the way did not."""
    if not folder.summary.exists():
        return None
    summary = read_json(folder.summary)
    return summary if summary.get("rounds") == config.run.rounds else None


@contextmanager
def _named(which: str) -> Iterator[None]:
    """Say of a run that failed or was stopped which of the comparison it was."""
    try:
        yield
    except Diverged as problem:
        raise Diverged(f"{which}: {problem}", problem.history) from None
    except Interrupted:
        raise Interrupted(
            f"Stopped in {which}. Continue with the same command and --resume."
        ) from None


def _row(label: str, runs: list[dict[str, Any]], first: list[dict[str, Any]]) -> ComparisonRow:
    accuracy, deviation = _accuracies(runs), _deviations(runs)
    chief, base = (accuracy, _accuracies(first)) if accuracy else (deviation, _deviations(first))
    return ComparisonRow(
        label,
        _mean_and_deviation(accuracy) if accuracy else None,
        _mean_and_deviation([a - b for a, b in zip(chief, base, strict=True)])
        if runs is not first and chief and base
        else None,
        _mean_and_deviation([_number(run["loss"]["mean"]) for run in runs]),
        statistics.fmean(run["bytes_sent"] for run in runs),
        sum("diverged" in run for run in runs),
        _mean_and_deviation(deviation) if deviation else None,
    )


def _accuracies(runs: list[dict[str, Any]]) -> list[float]:
    return [_number(run["accuracy"]["mean"]) for run in runs if run["accuracy"] is not None]


def _deviations(runs: list[dict[str, Any]]) -> list[float]:
    """Mean-square deviations in decibels; none where the optimum is not known."""
    known = any(run.get("msd") is not None for run in runs)
    return [decibels(run.get("msd")) for run in runs] if known else []


def _mean_and_deviation(values: list[float]) -> tuple[float, float]:
    several = len(values) > 1 and all(map(math.isfinite, values))  # stdev fails on NaN
    return statistics.fmean(values), statistics.stdev(values) if several else math.nan


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
