"""The verbs of the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.bench import bench
from tacit.cli.data import app as data_app
from tacit.cli.federation import app as federation_app
from tacit.cli.node import node
from tacit.cli.progress import ProgressBar, ProgressBars
from tacit.core.errors import Misuse
from tacit.core.plugins import Registry

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train together, tell nothing: privacy-preserving decentralized federated learning.",
)
app.add_typer(data_app, name="data")
app.add_typer(federation_app, name="federation")
app.command()(bench)
app.command()(node)
COMMANDS: Registry[Callable[..., None] | typer.Typer] = Registry("tacit.commands", "command", {})

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="TOML file of the experiment; see examples/.")
]
Out = Annotated[Path, typer.Option("--out", help="Folder for the results; new or empty.")]
Data = Annotated[
    Path | None, typer.Option("--data", help="Folder of the datasets (default: $TACIT_DATA).")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a key, e.g. --set algorithm.lr=0.05 (repeatable)."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue what is in the output folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Answer `tacit --version`; refuse under torchrun what is not for several processes."""
    many = "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"
    if many and context.invoked_subcommand not in ("run", None):
        raise Misuse(
            f"torchrun would do `tacit {context.invoked_subcommand}` once in every process.",
            "Only `tacit run` is for several processes: start the others without torchrun.",
        )
    if show:
        import tacit

        print(f"tacit {tacit.__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report; new or empty.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train five clients with three rules on real digits and see what a neighbour sees."""
    from tacit.experiment.demo import CAVEAT, run_demo, percent

    folder = out or _free_folder(Path("tacit-demo"))
    console = Console(stderr=True)
    if not as_json:
        console.print(
            "Five clients on a ring, 800 handwritten digits each, no server, three rules:"
        )
    with ProgressBars(console, runs=3) as progress:
        shown = run_demo(folder, progress.watch)
    if as_json:
        lines = [
            {
                **line.row.as_dict(),
                "protection": line.protection,
                "first_message_error": line.first_message_error,
            }
            for line in shown.lines
        ]
        print(json.dumps({"rules": lines, "audit": shown.audit, "report": str(shown.report)}))
        return
    what = "error: ‖γ⁰ − ∇L‖ / ‖∇L‖ of the message"
    table = Table(caption=f"{what};\n{CAVEAT}")
    for name in ("rule", "protection"):
        table.add_column(name)
    for name in ("accuracy", "error of the first gradient\na neighbour sees"):
        table.add_column(name, justify="right")
    for line in shown.lines:
        error = f"{100 * line.first_message_error:.0f} %"
        exposed = line.first_message_error == 0
        error = "0 %  (sees it all)" if exposed else error
        table.add_row(line.row.label, line.protection, percent(line.row), error)
    Console().print(table)
    for words in shown.audit:
        print(words)
    print(f"Report: {shown.report}")


@app.command()
def run(
    config: ConfigFile,
    out: Out = Path("runs/latest"),
    data: Data = None,
    overrides: Set = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Run one experiment into a folder: history, checkpoints, summary and report."""
    from tacit.config.sections import load_config
    from tacit.engines.torchrun import joined
    from tacit.experiment.run import run as run_config
    from tacit.record.history import decibels
    from tacit.report.report import write_report

    plan = load_config(config, overrides or [])
    with joined(plan.run.device) as group:
        if group.rank != 0:
            run_config(plan, out, data_folder=data, resume=resume, group=group)
            return
        with ProgressBars(Console(stderr=True)) as progress:
            watcher = progress.watch(plan.algorithm.name, plan.run.seed)
            outcome = run_config(
                plan, out, data_folder=data, resume=resume, watcher=watcher, group=group
            )
    title = f"{plan.algorithm.name} on {plan.subject}"
    report = write_report([out], out / "report.html", title=title)
    if as_json:
        print(json.dumps(outcome.summary))
        return
    accuracy, loss = outcome.summary["accuracy"], outcome.summary["loss"]
    if accuracy is not None:
        print(
            f"accuracy {accuracy['mean']:.2f} % (clients {accuracy['min']:.2f} to {accuracy['max']:.2f}, "
            f"average model {accuracy['average_model']:.2f})"
        )
    if outcome.summary["msd"] is not None:
        print(f"mean-square deviation {decibels(outcome.summary['msd']):.1f} dB")
    mean = "not finite" if loss["mean"] is None else f"{loss['mean']:.4f}"
    print(f"loss {mean}, {outcome.summary['bytes_sent']:,} bytes sent")
    if "diverged" in outcome.summary:
        print(f"diverged: {outcome.summary['diverged']}")
    print(f"Report: {report}")


@app.command()
def compare(
    config: ConfigFile,
    algorithms: Annotated[
        str,
        typer.Option(help="Names with commas between; options with +, e.g. NAME,NAME+fresh=true."),
    ],
    seeds: Annotated[
        int, typer.Option(min=1, help="How many seeds, counted up from the run's own.")
    ] = 3,
    out: Out = Path("runs/compare"),
    data: Data = None,
    overrides: Set = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Run several algorithms on the same experiment, paired by seed: mean ± deviation and a report."""
    from tacit.cli.comparison import comparison_table
    from tacit.config.sections import load_config
    from tacit.experiment.compare import compare as compare_configs
    from tacit.experiment.compare import unused_options, split_outside_brackets
    from tacit.report.report import write_report

    plan = load_config(config, overrides or [])
    names = [name.strip() for name in split_outside_brackets(algorithms, ",") if name.strip()]
    with ProgressBars(Console(stderr=True), runs=len(names) * seeds) as progress:
        comparison = compare_configs(
            plan, names, seeds, out, data_folder=data, resume=resume, watch=progress.watch
        )
    if unused := unused_options(plan, names):
        print(
            f"Left out, as none of these has it: algorithm.{', algorithm.'.join(unused)}",
            file=sys.stderr,
        )
    report = write_report(
        comparison.folders, out / "report.html", title=f"Comparison on {plan.subject}"
    )
    if as_json:
        print(json.dumps(comparison.as_dict()))
        return
    Console().print(comparison_table(comparison))
    print(f"Report: {report}")


@app.command()
def audit(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG|RUN", help="TOML file of an experiment, or the folder of a run."
        ),
    ],
    adversary: Annotated[
        list[str] | None,
        typer.Option(help='E.g. "curious(1,4)+eavesdropper"; add "+theta0" if known. Repeatable.'),
    ] = None,
    victim: Annotated[
        list[int] | None, typer.Option(help="Whose data is at stake (default: 0). Repeatable.")
    ] = None,
    iterations: Annotated[
        int, typer.Option("-n", "--iterations", min=1, help="How many are looked at.")
    ] = 10,
    delta: Annotated[float, typer.Option(help="δ of the privacy guarantee.")] = 1e-5,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="The most that one attack may take.")
    ] = 60.0,
    restarts: Annotated[int, typer.Option(min=1, help="Starts of each inversion.")] = 8,
    attacks: Annotated[bool, typer.Option(help="Also attack, or only prove and bound.")] = True,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for audit.json and the report.")
    ] = None,
    data: Data = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Find out what leaks to whom: what is proved, bounded and measured."""
    from tacit.auditing.attacks.reconstruction_attacks import AttackOptions
    from tacit.cli.audit import print_audit
    from tacit.experiment.auditing import audit_subject, load_subject, write_audit

    subject = load_subject(source, overrides or [], data)
    folder = out or (source if source.is_dir() else _free_folder(Path("runs/audit")))
    plan = subject.experiment.config.run
    with ProgressBar(Console(stderr=True)) as progress:
        found = audit_subject(
            subject,
            adversary,
            victims=victim or [0],
            iterations=iterations,
            delta=delta,
            effort=AttackOptions(restarts, seconds, plan.seed, plan.device),
            attacks=attacks,
            progress=progress,
        )
    written, page = write_audit(found, subject, folder)
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    print_audit(found, Console())
    print(f"Numbers: {written}")
    print(f"Report: {page}")


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Run folders, or one folder that holds several.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The page (default: report.html in the folder).")
    ] = None,
) -> None:
    """Write the report of one run, or of several beside each other."""
    from tacit.report.report import write_report

    found = [run for folder in folders for run in _runs_below(folder)]
    target = out or folders[0] / "report.html"
    title = found[0].name if len(found) == 1 else f"{len(found)} runs"
    print(f"Report: {write_report(found, target, title=title)}")


@app.command()
def algorithms(
    parameters: Annotated[
        int, typer.Option("-p", "--parameters", min=1, help="P, for the bytes.")
    ] = 100_000,
    as_json: Json = False,
) -> None:
    """List the algorithms: what they send, need and protect."""
    from tacit.cli.listing import algorithm_rows, algorithm_table

    if as_json:
        print(json.dumps(algorithm_rows(parameters)))
    else:
        Console().print(algorithm_table(parameters))


def _free_folder(wanted: Path) -> Path:
    """The wanted folder, or the first of wanted-2, wanted-3, … that does not exist."""
    candidate, number = wanted, 2
    while candidate.exists():
        candidate, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    return candidate


def _runs_below(folder: Path) -> list[Path]:
    """The folder itself if it is a run, else the runs directly in it."""
    if (folder / "history.jsonl").exists() or not folder.is_dir():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/history.jsonl")) or [folder]


def add_plugin_commands() -> None:
    """Add the commands that other packages register; a broken one only fails when it is used."""
    for name in COMMANDS:
        try:
            command = COMMANDS[name]
        except Misuse as problem:
            command = _broken(problem)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


def _broken(problem: Misuse) -> Callable[..., None]:
    def command() -> None:
        raise problem

    command.__doc__ = f"Not available: {problem.problem}"
    return command


add_plugin_commands()
