"""`tacit run`, `tacit compare` and `tacit report`: experiments and their reports."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.arguments import (
    AllowCode,
    ConfigFile,
    Data,
    Jobs,
    Json,
    Out,
    Overrides,
    Resume,
    Seeds,
    print_note,
)
from tacit.cli.metric_tables import (
    further_metrics,
    metric_form,
    metric_header,
    pair_cell,
    print_alerts,
    print_metrics,
)
from tacit.cli.progress import ProgressBars
from tacit.core.errors import Misuse

if TYPE_CHECKING:
    from tacit.experiment.compare import Comparison


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


def compare(
    config: ConfigFile,
    algorithms: Annotated[
        str,
        typer.Option(help="Names separated by commas, options by +, e.g. NAME,NAME+fresh=true."),
    ],
    seeds: Seeds = 3,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric of the differences, e.g. auc or own_test.f1; default: accuracy."),
    ] = None,
    jobs: Jobs = 1,
    out: Out = Path("runs/compare"),
    data: Data = None,
    overrides: Overrides = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Run several algorithms on one experiment, paired by seed, and report mean ± deviation."""
    from tacit.config.loading import load_config
    from tacit.core.provenance import current_provenance
    from tacit.experiment import compare as comparing
    from tacit.report.report import write_report

    experiment = load_config(config, overrides or [], print_note)
    names = comparing.split_outside_brackets(algorithms, ",")
    variants = [name.strip() for name in names if name.strip()]
    with ProgressBars(Console(stderr=True), runs=len(variants) * seeds) as bars:
        comparison = comparing.compare(
            experiment,
            variants,
            seeds,
            out,
            data_folder=data,
            metric=metric,
            jobs=jobs,
            resume=resume,
            listener_for=bars.listener_for,
        )
    if unused := comparing.unused_options(experiment, variants):
        keys = ", ".join(f"algorithm.{key}" for key in unused)
        print(f"Not used, because none of these algorithms has it: {keys}", file=sys.stderr)
    title = f"Comparison on {experiment.task_name}"
    page, made = out / "report.html", current_provenance()
    report = write_report(comparison.folders, page, title=title, made=made)
    if as_json:
        print(json.dumps(comparison.as_dict()))
        return
    Console().print(comparison_table(comparison))
    if (further := further_metrics(comparison)).rows:
        Console().print(further)
    print_alerts({"alerts": comparison.alerts})
    print(f"Report: {report}")


def comparison_table(comparison: Comparison) -> Table:
    """Mean ± deviation over the seeds; differences are paired by seed.

    The first metric is the comparison's; below accuracies is a row of the majority baseline. If
    some algorithms kept a guarantee, a column has the ε of each.
    """
    from tacit.report.numbers import format_bytes
    from tacit.report.spending import guarantee_text

    rows, count, metric = comparison.rows, len(comparison.seeds), comparison.metric
    seeds = f"mean ± deviation over {count} seeds" if count > 1 else "one seed"
    table = Table(caption=f"{seeds}; differences to {rows[0].label}, paired by seed")
    table.add_column("algorithm", overflow="fold")
    form = metric_form(metric)
    # Metrics with many digits leave no room for the loss: it is among the further metrics.
    loss = ["loss"] * (not form.endswith("g"))
    epsilon = ["ε"] * comparison.has_guarantees
    for name in (metric_header(metric), "difference", *epsilon, *loss, "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.label} ({row.diverged} diverged)" if row.diverged else row.label,
            pair_cell(row.value(metric), form),
            pair_cell(row.difference, "+.2g" if form.endswith("g") else f"+{form}"),
            *([guarantee_text(row.epsilon)] * len(epsilon)),
            *([pair_cell(row.loss, ".4g")] * len(loss)),
            format_bytes(row.bytes_sent),
        )
    known = [row.baseline for row in rows if row.baseline is not None]
    if known and metric == "accuracy":
        table.add_section()
        table.add_row("majority baseline", f"{sum(known) / len(known):.2f}")
    return table


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Run folders, a folder that contains some, or the folder of a node."),
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
    from tacit.report.report import write_report

    if watch:
        from tacit.cli.watch import serve_report

        if out is not None:
            raise Misuse("--watch writes no file.", "Leave out --out, or leave out --watch.")
        serve_report(lambda: [run for folder in folders for run in _runs_in(folder)], port)
        return
    runs = [run for folder in folders for run in _runs_in(folder)]
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    page = write_report(
        runs, out or folders[0] / "report.html", title=title, made=current_provenance()
    )
    print(f"Report: {page}")
    if csv or latex or figures:
        from tacit.report.paper_files import write_paper_files

        form = figures.value if figures else None
        for path in write_paper_files(runs, page, csv=csv, latex=latex, figures=form):
            print(path)


def _runs_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run, or else the runs directly in it.

    Runs of a comparison stay in its order, and so keep their colours.
    """
    if (folder / "history.jsonl").exists() or not folder.is_dir():
        return [folder]
    found = sorted(path.parent for path in folder.glob("*/history.jsonl"))
    order = {name: place for place, name in enumerate(_compared(folder / "compare.json"))}
    return sorted(found, key=lambda path: order.get(path.name, len(order))) or [folder]


def _compared(path: Path) -> list[str]:
    """The names of the runs in a compare.json, in order; [] if there is none."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        labels, seeds = [row["label"] for row in table["rows"]], table["seeds"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [f"{label}-seed{seed}" for label in labels for seed in seeds]
