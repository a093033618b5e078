"""The table of a comparison for the terminal."""

from __future__ import annotations

import math

from rich.table import Table

from tacit.experiment.compare import Comparison
from tacit.report.page import amount


def comparison_table(comparison: Comparison) -> Table:
    """Mean ± deviation over the seeds; differences are paired by seed.

    The chief metric is accuracy or, for tasks whose optimum is known, the mean-square deviation from it.
    """
    count = len(comparison.seeds)
    deviations = all(row.accuracy is None for row in comparison.rows) and any(
        row.msd_db is not None for row in comparison.rows
    )
    seeds = f"mean ± deviation over {count} seeds" if count > 1 else "one seed"
    table = Table(caption=f"{seeds}; differences to {comparison.rows[0].label}, paired by seed")
    table.add_column("algorithm", overflow="fold")
    for name in ("MSD, dB" if deviations else "accuracy, %", "difference", "loss", "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in comparison.rows:
        label = f"{row.label} ({row.diverged} diverged)" if row.diverged else row.label
        table.add_row(
            label,
            _spread(row.msd_db, ".1f") if deviations else _spread(row.accuracy, ".2f"),
            _spread(row.difference, "+.2f"),
            _spread(row.loss, ".4f"),
            amount(row.bytes_sent),
        )
    return table


def _spread(pair: tuple[float, float] | None, form: str) -> str:
    if pair is None:
        return ""
    mean, deviation = pair
    return (
        f"{mean:{form}}"
        if math.isnan(deviation)
        else f"{mean:{form}} ± {deviation:{form.lstrip('+')}}"
    )
