"""Metrics of a run in the terminal: accuracy never without its baseline."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

# More clients are in summary.json and in the report.
MAX_CLIENT_ROWS = 20


def print_metrics(summary: dict[str, Any]) -> None:
    """Print the metrics of a summary, and a table of the clients if they have own test sets."""
    from tacit.report.measures import metric_unit
    from tacit.report.numbers import format_number

    if (accuracy := summary["accuracy"]) is not None:
        print(
            "accuracy {mean:.2f} % (clients {min:.2f} to {max:.2f}, "
            "average model {average_model:.2f})".format(**accuracy)
        )
    if (baseline := summary["baseline"]) is not None:
        print(f"majority baseline {baseline:.2f} %: the most frequent class for every sample")
    for name, spread in summary.get("metrics", {}).items():
        mean = format_number(spread["mean"], unit=metric_unit(name))
        ends = (spread[key] for key in ("min", "max", "average_model"))
        low, high, average = map(format_number, ends)
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
    from tacit.report.measures import axis_label

    columns, client_names = summary["per_client"], summary.get("names") or ()
    table = Table(title="Each client's model: on all test samples / on its own")
    table.add_column("client", justify="right")
    names = [name.removeprefix("own_test.") for name in columns if name not in ("client", "loss")]
    names = [name for name in dict.fromkeys(names) if name != "loss"] or ["loss"]
    names.sort(key=lambda name: ("accuracy", "baseline", name).index(name))
    for name in names:
        table.add_column(axis_label(name), justify="right")
    for row, client in enumerate(columns["client"][:MAX_CLIENT_ROWS]):
        who = client_names[client] if client < len(client_names) else str(client)
        table.add_row(who, *(_both(summary, name, row) for name in names))
    Console().print(table)
    if (more := len(columns["client"]) - MAX_CLIENT_ROWS) > 0:
        print(f"{more} more clients are in summary.json.")


def _both(summary: dict[str, Any], name: str, row: int) -> str:
    """A metric of one client on the common test set and on its own."""
    from tacit.report.measures import metric_unit
    from tacit.report.numbers import format_number

    columns = summary["per_client"]
    common = columns[name][row] if name in columns else summary.get(name)
    of_own = columns[f"own_test.{name}"][row]
    form = ".1f" if metric_unit(name) else ".3g"
    return " / ".join(format_number(value, form) for value in (common, of_own))
