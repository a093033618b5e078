"""Metrics of a run in the terminal: accuracy never without its baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from tacit.experiment.compare import Comparison

# More clients are in summary.json and in the report.
MAX_CLIENT_ROWS = 20


def print_metrics(summary: dict[str, Any]) -> None:
    """Print the metrics of a summary, and a table of the clients if they have own test sets."""
    from tacit.tasks.metrics.metric import describe_metric

    if (accuracy := summary["accuracy"]) is not None:
        print(
            "accuracy {mean:.2f} % (clients {min:.2f} to {max:.2f}, "
            "average model {average_model:.2f})".format(**accuracy)
        )
    if (baseline := summary["baseline"]) is not None:
        print(f"majority baseline {baseline:.2f} %: the most frequent class for every sample")
    for name, spread in summary.get("metrics", {}).items():
        unit = describe_metric(name).unit
        low, high, average = (_number(spread[key]) for key in ("min", "max", "average_model"))
        mean = _number(spread["mean"], unit)
        print(f"{name} {mean} (clients {low} to {high}, average model {average})")
    if "own_test" in summary:
        print_client_table(summary)


def print_alerts(summary: dict[str, Any]) -> None:
    """Print why the accuracy misleads, if it does."""
    for alert in summary.get("alerts", ()):
        console = Console()
        console.print(f"WARNING: {alert}", style="bold red", highlight=False, markup=False)


def print_client_table(summary: dict[str, Any]) -> None:
    """Print each client's metrics on the common test set and on its own."""
    columns, client_names = summary["per_client"], summary.get("names") or ()
    table = Table(title="Each client's model: on all test samples / on its own")
    table.add_column("client", justify="right")
    names = [name.removeprefix("own_test.") for name in columns if name not in ("client", "loss")]
    names = [name for name in dict.fromkeys(names) if name != "loss"] or ["loss"]
    names.sort(key=lambda name: ("accuracy", "baseline", name).index(name))
    for name in names:
        table.add_column(metric_header(name), justify="right")
    for place, client in enumerate(columns["client"][:MAX_CLIENT_ROWS]):
        who = client_names[client] if client < len(client_names) else str(client)
        table.add_row(who, *(_both(summary, name, place) for name in names))
    Console().print(table)
    if (more := len(columns["client"]) - MAX_CLIENT_ROWS) > 0:
        print(f"{more} more clients are in summary.json.")


def _both(summary: dict[str, Any], name: str, place: int) -> str:
    """A metric of one client on the common test set and on its own."""
    columns = summary["per_client"]
    common = columns[name][place] if name in columns else summary.get(name)
    own = columns[f"own_test.{name}"][place]
    form = ".1f" if metric_header(name).endswith("%") else ".3g"
    return " / ".join("–" if value is None else f"{value:{form}}" for value in (common, own))


def further_metrics(comparison: Comparison) -> Table:
    """The metrics that the table of a comparison does not have, a row for each algorithm."""
    table = Table(title="Further metrics", title_justify="left")
    table.add_column("metric")
    table.add_column("algorithm", overflow="fold")
    for name in ("value", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    names = dict.fromkeys(name for row in comparison.rows for name in ("accuracy", *row.metrics))
    if metric_form(comparison.metric).endswith("g"):
        names["loss"] = None
    for name in names:
        for row in comparison.rows:
            value = row.value(name)
            if name != comparison.metric and value is not None:
                form = metric_form(name)
                cells = pair_cell(value, form), pair_cell(row.differences.get(name), f"+{form}")
                table.add_row(metric_header(name), row.label, *cells)
        known = [row.baseline for row in comparison.rows if row.baseline is not None]
        if name == "accuracy" != comparison.metric and known:
            table.add_row("", "majority baseline", f"{sum(known) / len(known):.2f}")
        table.add_section()
    return table


def metric_header(name: str) -> str:
    """The name of a metric with its unit."""
    from tacit.tasks.metrics.metric import describe_metric

    if name == "msd_db":
        return "MSD, dB"
    unit = describe_metric(name.removeprefix("own_test.")).unit or _unit(name)
    return f"{name}{',' if unit else ''}{unit}"


def metric_form(name: str) -> str:
    """The format of a metric's numbers."""
    if name == "msd_db":
        return ".1f"
    return ".2f" if metric_header(name).endswith("%") else ".4g"


def pair_cell(pair: tuple[float, float] | None, form: str) -> str:
    """A mean and its deviation, if they are known."""
    from tacit.report.numbers import format_pair

    return "" if pair is None else format_pair(*pair, form)


def _unit(key: str) -> str:
    return " %" if key.endswith("baseline") else ""


def _number(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:.4g}{unit}"
