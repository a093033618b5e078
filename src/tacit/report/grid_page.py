"""The page of a grid: the best setting, all of them as a picture and a table, and their runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from tacit.config.sections import OWN_DATA
from tacit.core.errors import Misuse
from tacit.report.figures import svg
from tacit.report.finished_grid import Grid, GridSetting, short_keys
from tacit.report.groups import RunGroup
from tacit.report.numbers import format_pair
from tacit.report.page import Card, Cell, Table, show
from tacit.report.parallel_coordinates import Line, parallel_figure
from tacit.report.rendering import render
from tacit.report.report import groups_page, write_page
from tacit.report.tables import overview_columns, overview_title

# Settings whose curves and details a page shows: the best ones.
MAX_DETAILED = 12


def write_grid_report(grid: Grid, out: Path, made: Mapping[str, str] | None = None) -> Path:
    """Write a self-contained page about a grid; `made` says when and how the page was made.

    Raises:
        Misuse: If the page cannot be written, or no run has ended.
    """
    if not grid.groups:
        problem = f"No run of the grid in {grid.folder} has ended: {grid.settings[0].failures[0]}"
        raise Misuse(problem, "Correct the configuration, and run it with --resume.")
    detailed = detailed_groups(grid)
    table = _table(grid, detailed)
    page = groups_page(
        detailed,
        title=_title(grid),
        lead=_lead(grid, detailed),
        first={
            "Best": _best(grid),
            "All settings": show([_picture(grid)] if len(grid.settings) > 1 else []),
            "Result": render("grid_table.html.jinja", table=table, settings=grid.settings),
        },
        notes=render("grid_spent.html.jinja", spent=grid.spent),
        made=made,
    )
    return write_page(page, out)


def detailed_groups(grid: Grid) -> list[RunGroup]:
    """The settings that are drawn, in their order: the best, and what others are compared with."""
    best = [setting.label for setting in grid.ranked if setting.runs][:MAX_DETAILED]
    return [setting for setting in grid.groups if setting is grid.base or setting.label in best]


def _title(grid: Grid) -> str:
    """With what the first run trains on, if the settings do not differ in that."""
    settings = grid.runs[0].settings
    name = settings.get("task.name") or settings.get("data.name")
    if name is None or {"data", "task"} & {key.partition(".")[0] for key in grid.stored.keys}:
        return "Grid"
    return f"Grid on {'own data' if name == OWN_DATA else name}"


def _lead(grid: Grid, detailed: list[RunGroup]) -> str:
    stored, count = grid.stored, len(grid.settings)
    many = f"{count} settings" if count > 1 else "One setting"
    seeds = len(stored.seeds)
    each = f"{seeds} seeds each" if seeds > 1 else "one seed each"
    text = f"{many} of {', '.join(stored.keys)}; {each}, judged by {stored.metric} on "
    text += f"{stored.judged_on}."
    if (more := len(grid.groups) - len(detailed)) > 0:
        text += f" Curves and details are of the best; {more} more are in the table and grid.csv."
    return text


def _best(grid: Grid) -> Markup:
    """What the best setting is."""
    best = grid.best
    if best is None or best.score is None:
        return Markup()
    pair = format_pair(best.score.mean, best.score.deviation, grid.measure.form)
    mean, _, deviation = pair.partition(" ± ")
    score = {"metric": grid.measure.title, "mean": mean, "deviation": deviation}
    return render("grid_best.html.jinja", values=best.values, **score)


def _picture(grid: Grid) -> Card:
    keys, metric = grid.stored.keys, grid.measure.title
    lines = [Line(tuple(setting.values.values()), setting.mean) for setting in grid.settings]
    figure = parallel_figure(keys, lines, metric, less_is_better=grid.less_is_better)
    caption = (
        "A line per setting, coloured by the metric; the thick one is the best. Dotted lines "
        "failed."
    )
    drawing = svg(figure, f"{metric} by {', '.join(keys)}", caption)
    return Card("Parallel coordinates", drawing, caption, "full")


def _table(grid: Grid, detailed: list[RunGroup]) -> Table:
    """A row per setting, the best first."""
    series = {group.label: number for number, group in enumerate(detailed)}
    columns = overview_columns(grid.groups, grid.measure)
    rows: list[list[Cell]] = []
    for rank, setting in enumerate(grid.ranked, 1):
        numbers = [column(setting) if setting.runs else "" for column in columns.values()]
        links = render("grid_links.html.jinja", runs=setting.runs)
        rows.append([_rank(setting, rank), *setting.values.values(), *numbers, links])
    title = overview_title(grid.groups)
    if grid.base is not None and "Difference" in columns:
        title += f"; differences to {grid.base.label}, paired by seed"
    header = ["Rank", *short_keys(grid.stored.keys), *columns, "Runs"]
    return Table(header, rows, title, [series.get(setting.label) for setting in grid.ranked])


def _rank(setting: GridSetting, rank: int) -> str:
    if setting.failures:
        return "failed"
    return f"{rank} ({setting.diverged} diverged)" if setting.diverged else str(rank)
