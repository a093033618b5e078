"""`tacit bench`: measurements for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from tacit.cli.progress import ProgressBar

if TYPE_CHECKING:
    from tacit_benches.benchmark import BenchResult
    from tacit_benches.machine import Machine


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAMES", help="Benchmarks (default: all), or `list`."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(help="Workloads, separated by commas: W1,W2. See `tacit bench list`."),
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Number of timed repeats.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer repeats and smaller sizes, to try it out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Measure speed as ratios to what is possible, timed in turn within one run."""
    if names == ["list"]:
        _list(as_json)
        return
    from tacit.core.devices import check_device
    from tacit.core.errors import Misuse
    from tacit_benches.benchmark import BenchOptions
    from tacit_benches.machine import Machine
    from tacit_benches.selection import measure

    errors = Console(stderr=True)
    checked_device = check_device(device, "--device")
    machine = Machine.current(checked_device)
    workloads = tuple(name.strip() for name in (workload or "").split(",") if name.strip())

    def report_skipped(name: str, problem: Misuse) -> None:
        errors.print(f"{name} is skipped: {problem}", highlight=False, markup=False, soft_wrap=True)

    with ProgressBar(errors) as progress:
        options = BenchOptions(workloads, checked_device, repeats, quick, progress)
        results = list(measure(names or [], options, report_skipped))
    if as_json:
        run = {"quick": quick, "machine": machine.as_dict()}
        print(json.dumps([result.as_dict() | run for result in results]))
        return
    _print(results, machine, Console())


def _list(as_json: bool) -> None:
    from tacit_benches.selection import NAMES, load_benchmark

    benchmarks = {name: load_benchmark(name) for name in NAMES}
    if as_json:
        rows = [
            {"bench": name, "summary": each.SUMMARY, "workloads": each.WORKLOADS}
            for name, each in benchmarks.items()
        ]
        print(json.dumps(rows))
        return
    columns = (Column(name, overflow="fold") for name in ("bench", "ratio", "workloads"))
    table = Table(*columns, show_lines=True)
    for name, each in benchmarks.items():
        table.add_row(name, each.SUMMARY, ", ".join(each.WORKLOADS))
    Console().print(table)


def _print(results: Sequence[BenchResult], machine: Machine, console: Console) -> None:
    table = Table(
        caption="ratios: median and quartiles of the repeats; scaling: exponent ± standard error"
    )
    for column in ("bench", "workload"):
        table.add_column(column, no_wrap=True)
    # Some workloads are compared with a second limit.
    second = [result.details.get("one_batch_ratio") for result in results]
    columns = ["ratio", "quartiles", "ours", "other"]
    for column in [*columns, "one batch"] if any(second) else columns:
        table.add_column(column, justify="right", no_wrap=True)
    for result in results:
        spread = f"{_number(result.ratio.low)} to {_number(result.ratio.high)}"
        seconds = (_seconds(result.ours_seconds), _seconds(result.limit_seconds))
        ratios = (_number(result.ratio.median), spread)
        table.add_row(result.bench, result.workload, *ratios, *seconds, *_one_batch(result.details))
    console.print(table)

    def print_line(line: str, style: str | None = None) -> None:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)

    meanings = (f"{each.bench}: {each.meaning} ({each.better} is better)" for each in results)
    for meaning in dict.fromkeys(meanings):
        print_line(meaning)
    for result in results:
        details = [result.unit]
        for name, value in result.details.items():
            if isinstance(value, float | int | str):
                text = _number(value) if isinstance(value, float) else value
                details.append(f"{name.replace('_', ' ')} {text}")
        print_line(f"{result.bench} {result.workload}: per {', '.join(details)}")
    gpu = f", {machine.gpu}" if machine.gpu else ""
    print_line(
        f"{machine.processor}{gpu}; {machine.cores} cores, {machine.threads} threads, "
        f"torch {machine.torch_version}, load {machine.load}"
    )
    if machine.caution:
        print_line(f"Caution: {machine.caution}.", style="bold yellow")


def _one_batch(details: Mapping[str, Any]) -> list[str]:
    """The ratio to the second limit and its time, in one column, if there are any."""
    if "one_batch_ratio" not in details:
        return []
    return [f"{_number(details['one_batch_ratio'])} × {_seconds(details['one_batch_seconds'])}"]


def _number(value: float) -> str:
    """At least three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{1e9 * value:.3g} ns"
