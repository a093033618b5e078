"""The tables and figures of a report as files for papers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from tacit.core.errors import Misuse
from tacit.core.storage import replacing, write_text
from tacit.report.drawings import can_draw, graph_figure, partition_figure
from tacit.report.groups import RunGroup
from tacit.report.paper_tables import differences_csv, latex_table, means_csv, runs_csv
from tacit.report.plots import Series
from tacit.report.report import metric_figures
from tacit.report.style import plot_style


def write_paper_files(
    groups: Sequence[RunGroup],
    beside: Path,
    *,
    csv: bool = False,
    latex: bool = False,
    figures: str | None = None,
) -> list[Path]:
    """Write tables and figures of these runs beside a report.

    Args:
        groups: The runs.
        beside: The report, after which the files are named.
        csv: Write the runs, means over seeds, and differences paired by seed.
        latex: Write a LaTeX table.
        figures: Write every figure in this format: "pdf", "svg" or "png".

    Returns:
        The files.

    Raises:
        Misuse: If a run cannot be read, or a file cannot be written.
    """
    texts = {}
    if csv:
        texts = {"runs.csv": runs_csv(groups), "means.csv": means_csv(groups)}
        if len(groups) > 1:
            texts["differences.csv"] = differences_csv(groups)
    if latex:
        texts["table.tex"] = latex_table(groups)
    written = []
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            written.append(beside.with_name(f"{beside.stem}-{name}"))
            write_text(written[-1], text)
        if figures is not None:
            folder = beside.with_name(f"{beside.stem}-figures")
            folder.mkdir(exist_ok=True)
            for name, figure in _figures(groups).items():
                written.append(folder / f"{name}.{figures}")
                _write_figure(figure, written[-1], figures)
    except OSError as problem:
        raise Misuse(f"Cannot write {written[-1]}: {problem}.", "Choose another --out.") from None
    return written


def _figures(groups: Sequence[RunGroup]) -> dict[str, Figure]:
    """Every figure by the name of its file."""
    series = [Series(group.label, tuple(run.history for run in group.runs)) for group in groups]
    drawn = {_file_name(name): draw(series) for name, draw, _ in metric_figures(series)}
    run = groups[0].runs[0]
    if can_draw(run.graph):
        drawn["graph"] = graph_figure(run.graph)
    if run.partition is not None and run.partition.classes and run.partition.counts:
        drawn["partition"] = partition_figure(run.partition)
    return drawn


def _write_figure(figure: Figure, path: Path, form: str) -> None:
    # Without a date, so that the same run gives the same file.
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[form]
    with replacing(path) as part, plot_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        # Publishers do not accept Type 3 fonts.
        matplotlib.rc("pdf", fonttype=42)
        figure.savefig(part, format=form, dpi=200, bbox_inches="tight", metadata=dates)


def _file_name(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
