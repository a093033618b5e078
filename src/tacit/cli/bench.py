"""`tacit bench`: measurements for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.progress import ProgressBar

if TYPE_CHECKING:
    from tacit.bench.machine import Machine
    from tacit.bench.benchmark import BenchResult


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAMES", help="Benches (default: all that run here), or `list`."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(help="Only these, with commas between, e.g. W1,W2; see `tacit bench list`."),
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Turns that are timed.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer turns, smaller sizes: to see it work.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON list, and nothing else.")
    ] = False,
) -> None:
    """Measure speed: ratios to what is possible, timed in turns within one run."""
    if names == ["list"]:
        _list(as_json)
        return
    from tacit.bench import measure
    from tacit.bench.machine import Machine
    from tacit.bench.benchmark import BenchOptions
    from tacit.core.devices import check_device
    from tacit.core.errors import Misuse

    errors = Console(stderr=True)
    place = check_device(device, "--device")
    machine = Machine.current(place)
    wanted = tuple(name.strip() for name in (workload or "").split(",") if name.strip())

    def skipped(name: str, problem: Misuse) -> None:
        errors.print(
            f"{name} is left out: {problem}", highlight=False, markup=False, soft_wrap=True
        )

    with ProgressBar(errors) as progress:
        asked = BenchOptions(wanted, place, repeats, quick, progress)
        results = list(measure(names or [], asked, skipped))
    if as_json:
        print(
            json.dumps(
                [
                    result.as_dict() | {"quick": quick, "machine": machine.as_dict()}
                    for result in results
                ]
            )
        )
        return
    _print(results, machine, Console())


def _list(as_json: bool) -> None:
    """What can be measured."""
    from tacit.bench import NAMES
    from tacit.bench import bench as module_of

    known = [(name, module_of(name)) for name in NAMES]
    if as_json:
        rows = [
            {"bench": name, "summary": each.SUMMARY, "workloads": each.WORKLOADS}
            for name, each in known
        ]
        print(json.dumps(rows))
        return
    table = Table(show_lines=True)
    for column in ("bench", "ratio", "workloads"):
        table.add_column(column, overflow="fold")
    for name, each in known:
        table.add_row(name, each.SUMMARY, ", ".join(each.WORKLOADS))
    Console().print(table)


def _print(results: Sequence[BenchResult], machine: Machine, console: Console) -> None:
    table = Table(
        caption="ratios: median over the turns, and quartiles; scaling: exponent ± standard error"
    )
    for column in ("bench", "workload"):
        table.add_column(column, no_wrap=True)
    for column in ("ratio", "quartiles", "ours", "other"):
        table.add_column(column, justify="right", no_wrap=True)
    for result in results:
        spread = f"{_number(result.ratio.low)} to {_number(result.ratio.high)}"
        seconds = (_seconds(result.ours_seconds), _seconds(result.limit_seconds))
        table.add_row(result.bench, result.workload, _number(result.ratio.median), spread, *seconds)
    console.print(table)

    def say(line: str, style: str | None = None) -> None:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)

    meanings = (f"{each.bench}: {each.meaning} ({each.better} is better)" for each in results)
    for meaning in dict.fromkeys(meanings):
        say(meaning)
    for result in results:
        say(f"{result.bench} {result.workload}: per {', '.join([result.unit, *_details(result)])}")
    gpu = f", {machine.gpu}" if machine.gpu else ""
    say(
        f"{machine.processor}{gpu}; {machine.available_cores} cores, {machine.threads} threads, torch {machine.torch_version}, "
        f"load {machine.load}"
    )
    if machine.caution:
        say(f"Caution: {machine.caution}.", style="bold yellow")


def _details(result: BenchResult) -> Iterator[str]:
    """What else was found, in words."""
    for name, value in result.details.items():
        if isinstance(value, float | int | str):
            yield f"{name.replace('_', ' ')} {_number(value) if isinstance(value, float) else value}"


def _number(value: float) -> str:
    """With three digits or more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def _seconds(value: float | None) -> str:
    """In a fitting unit."""
    if value is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{1e9 * value:.3g} ns"
