"""`tacit run` and `tacit report`: an experiment, and reports of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tacit.cli.arguments import (
    AllowCode,
    ConfigFile,
    Data,
    Json,
    Out,
    Overrides,
    Resume,
    print_note,
)
from tacit.cli.metric_tables import (
    print_alerts,
    print_metrics,
)
from tacit.cli.progress import ProgressBars
from tacit.core.errors import Misuse


class FigureFormat(StrEnum):
    pdf = "pdf"
    svg = "svg"
    png = "png"


def run(
    config: ConfigFile,
    out: Out = Path("runs/latest"),
    data: Data = None,
    overrides: Overrides = None,
    resume: Resume = False,
    secret_noise: Annotated[
        bool,
        typer.Option("--secret-noise", help="Samples and noise from a secret key, not the seed."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one experiment; write its history, checkpoints, summary and report."""
    from tacit.config.loading import load_config
    from tacit.core.provenance import current_provenance
    from tacit.engines.torchrun import join_process_group
    from tacit.experiment.run import run as run_config
    from tacit.record.history import decibels
    from tacit.report.report import write_report

    secret = ["run.secret_noise=true"] if secret_noise else []
    experiment = load_config(config, [*(overrides or []), *secret], print_note)
    with join_process_group(experiment.run.device) as group:
        if group.rank != 0:
            run_config(experiment, out, data_folder=data, resume=resume, group=group)
            return
        with ProgressBars(Console(stderr=True)) as bars:
            listener = bars.listener_for(experiment.algorithm.name, experiment.run.seed)
            summary = run_config(
                experiment, out, data_folder=data, resume=resume, listener=listener, group=group
            ).summary
    title = f"{experiment.algorithm.name} on {experiment.task_name}"
    report = write_report([out], out / "report.html", title=title, made=current_provenance())
    if as_json:
        print(json.dumps(summary))
        return
    print_metrics(summary)
    if summary["msd"] is not None:
        print(f"mean-square deviation {decibels(summary['msd']):.1f} dB")
    print(f"loss {_loss_text(summary['loss'])}, {summary['bytes_sent']:,} bytes sent")
    for sentence in privacy_sentences(summary):
        print(f"privacy: {sentence}")
    if "diverged" in summary:
        print(f"diverged: {summary['diverged']}")
    if "stopped" in summary:
        print(f"stopped early, after round {summary['rounds']}: {summary['stopped']}")
    print_alerts(summary)
    print(f"Report: {report}")


def _loss_text(loss: dict[str, float | None] | None) -> str:
    if loss is None:
        return "not recorded (the guarantee does not cover that of training data)"
    return "not finite" if loss["mean"] is None else f"{loss['mean']:.4g}"


def privacy_sentences(summary: dict[str, Any]) -> list[str]:
    """What a run has spent of its guarantee; nothing if it promised none."""
    from tacit.report.spending import Spending

    if summary["privacy"] is None:
        return []
    return Spending.of(summary["privacy"], summary["steps"], summary["clients"]).sentences()


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders, the folder of a grid or another that contains some, or that of a "
            "node."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The page (default: report.html in the folder).")
    ] = None,
    allow_code: AllowCode = None,
    data: Annotated[
        str | None,
        typer.Option(help="--data of the node, to compare what it sent with the truth."),
    ] = None,
    csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Also write runs, means over seeds and paired differences as CSV."
        ),
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Also write a LaTeX table.")] = False,
    figures: Annotated[
        FigureFormat | None, typer.Option(help="Also write every figure, in this format.")
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Serve the page on this machine, new at every load, until Ctrl-C; it reloads "
            "itself while a run has not ended.",
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of --watch (default: any free one).")
    ] = 0,
) -> None:
    """Write the report of one run, of several side by side, or of a node."""
    if len(folders) == 1 and (folders[0] / "node.pem").exists():
        if csv or latex or figures:
            raise Misuse(
                "--csv, --latex and --figures are for runs, not for nodes.", "Leave them out."
            )
        from tacit.peer.node.node_report import write_node_report

        if watch:
            raise Misuse(
                "--watch is for runs.", "`tacit federation dashboard` shows nodes while they train."
            )
        page = out or folders[0] / "report.html"
        write_node_report(folders[0], page, allow_code or (), data)
        print(f"Report: {page}")
        return
    from tacit.core.provenance import current_provenance
    from tacit.report.finished_grid import is_grid, read_grid
    from tacit.report.finished_run import read_run
    from tacit.report.grid_page import write_grid_report
    from tacit.report.groups import RunGroup, group_runs
    from tacit.report.paper_files import write_paper_files
    from tacit.report.report import write_report

    if watch:
        from tacit.cli.watch import serve_report

        if out is not None:
            raise Misuse("--watch writes no file.", "Leave out --out, or leave out --watch.")
        serve_report(lambda: [run for folder in folders for run in _runs_in(folder)], port)
        return
    page, made = out or folders[0] / "report.html", current_provenance()
    if len(folders) == 1 and is_grid(folders[0]):
        grid = read_grid(folders[0])
        write_grid_report(grid, page, made)
        groups: Sequence[RunGroup] = grid.groups
    else:
        runs = [run for folder in folders for run in _runs_in(folder)]
        title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
        write_report(runs, page, title=title, made=made)
        groups = group_runs([read_run(run) for run in dict.fromkeys(run.resolve() for run in runs)])
    print(f"Report: {page}")
    form = figures.value if figures else None
    for path in write_paper_files(groups, page, csv=csv, latex=latex, figures=form):
        print(path)


def _runs_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run, or else the runs directly in it."""
    if (folder / "history.jsonl").exists() or not folder.is_dir():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/history.jsonl")) or [folder]
