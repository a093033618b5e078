"""The commands of the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.arguments import Data, Json, Overrides
from tacit.cli.bench import bench
from tacit.cli.data import app as data_app
from tacit.cli.federation import app as federation_app
from tacit.cli.federation_changes import address, log, revoke
from tacit.cli.member import app as member_app
from tacit.cli.node import node
from tacit.cli.privacy import privacy
from tacit.cli.progress import ProgressBar, ProgressBars
from tacit.cli.runs import compare, report, run
from tacit.core.errors import Misuse
from tacit.core.plugins import Registry

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train together, tell nothing: privacy-preserving decentralized federated learning.",
)
COMMANDS: Registry[Callable[..., None] | typer.Typer] = Registry("tacit.commands", "command", {})


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    several = "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"
    if several and context.invoked_subcommand not in ("run", None):
        raise Misuse(
            f"torchrun would start `tacit {context.invoked_subcommand}` once in every process.",
            "Only `tacit run` uses several processes: start the others without torchrun.",
        )
    if show:
        from tacit.core.version import __version__

        print(f"tacit {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report, new or empty.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train on bundled digits with four algorithms, and show what a neighbour learns."""
    from tacit.experiment.demo import CAVEAT, HEADER, run_demo

    folder = out or _unused_folder(Path("tacit-demo"))
    console = Console(stderr=True)
    if not as_json:
        console.print(
            "Five clients on a ring, 800 handwritten digits each, no server, four algorithms:"
        )
    with ProgressBars(console, runs=4) as bars:
        result = run_demo(folder, bars.listener_for)
    if as_json:
        rows = [row.as_dict() for row in result.rows]
        values = {"algorithms": rows, "audit": result.audit, "report": str(result.report)}
        print(json.dumps(values))
        return
    table = Table(caption=f"error: ‖γ⁰ − ∇L‖ / ‖∇L‖ of the message;\n{CAVEAT}")
    for name in HEADER:
        table.add_column(name, justify="right" if name in HEADER[2:] else "left")
    for row in result.rows:
        table.add_row(*row.cells)
    Console().print(table)
    print(*result.audit, f"Report: {result.report}", sep="\n")


app.command()(run)
app.command()(compare)


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
        typer.Option(
            help='E.g. "curious(1,4)+eavesdropper" or "malicious(1):echo"; "+theta0" if known '
            "(repeatable)."
        ),
    ] = None,
    victim: Annotated[
        list[int] | None, typer.Option(help="Client to attack (default: 0; repeatable).")
    ] = None,
    iterations: Annotated[
        int, typer.Option("-n", "--iterations", min=1, help="Number of iterations to audit.")
    ] = 10,
    delta: Annotated[float, typer.Option(help="δ of the privacy guarantee.")] = 1e-5,
    seconds: Annotated[float, typer.Option(min=1.0, help="Time limit of one attack.")] = 60.0,
    restarts: Annotated[int, typer.Option(min=1, help="Restarts of each inversion.")] = 8,
    attacks: Annotated[bool, typer.Option(help="Run attacks, or only prove and bound.")] = True,
    canaries: Annotated[
        bool,
        typer.Option("--canaries", help="Measure lower bounds on ε also with --no-attacks."),
    ] = False,
    sample_canaries: Annotated[
        int,
        typer.Option(
            min=0,
            help="Train again with so many wrongly labelled samples, each among the victim's data "
            "by chance: a lower bound on ε for one sample.",
        ),
    ] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for audit.json and the report.")
    ] = None,
    data: Data = None,
    overrides: Overrides = None,
    as_json: Json = False,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="Audit the configuration with each of these: names separated by commas, "
            "options by +, e.g. NAME,NAME+fresh=true."
        ),
    ] = None,
) -> None:
    """Find out who can learn what about the data: proved, bounded and measured."""
    from tacit.auditing.attacks.reconstruction_attacks import AttackOptions
    from tacit.cli.audit import print_audit, print_audits
    from tacit.experiment import auditing
    from tacit.experiment.compare import split_outside_brackets

    if algorithms is None:
        subjects = {"": auditing.load_subject(source, overrides or [], data)}
    else:
        labels = [part.strip() for part in split_outside_brackets(algorithms, ",")]
        subjects = auditing.load_variants(source, list(filter(None, labels)), overrides or [], data)
    folder = out or (source if source.is_dir() else _unused_folder(Path("runs/audit")))
    found = {}
    for label, subject in subjects.items():
        keys = subject.experiment.config.run
        options = AttackOptions(
            restarts, seconds, keys.seed, keys.device, sample_canaries=sample_canaries
        )
        with ProgressBar(Console(stderr=True)) as progress:
            found[label] = auditing.audit(
                subject,
                adversary,
                victim or [0],
                iterations=iterations,
                delta=delta,
                attacks=attacks and options,
                canaries=options if canaries else None,
                progress=progress,
            )
        written, page = auditing.write_audit(found[label], subject, folder / label)
    if as_json:
        plain = {label: one.as_dict() for label, one in found.items()}
        print(json.dumps(plain if algorithms is not None else plain[""]))
    elif algorithms is not None:
        print_audits(found, Console())
        print(f"Numbers and reports: {folder}")
    else:
        print_audit(found[""], Console())
        print(f"Numbers: {written}\nReport: {page}")


app.command()(privacy)
app.command()(report)


@app.command()
def algorithms(
    parameters: Annotated[
        int, typer.Option("-p", "--parameters", min=1, help="Model size for the bytes.")
    ] = 100_000,
    as_json: Json = False,
) -> None:
    """List the algorithms: what they send, need and protect."""
    from tacit.algorithms import ALGORITHMS
    from tacit.cli.listing import algorithm_rows, algorithm_table

    if as_json:
        print(json.dumps(algorithm_rows(parameters)))
    else:
        Console().print(algorithm_table(parameters))
    for problem in ALGORITHMS.loadable()[1]:
        print(f"Left out: {problem}", file=sys.stderr)


app.command()(bench)
app.command()(node)
app.add_typer(data_app, name="data")
for change in (revoke, address, log):
    federation_app.command()(change)
app.add_typer(federation_app, name="federation")
app.add_typer(member_app, name="member")


def add_plugin_commands() -> None:
    """Add the commands that other packages register; a broken one fails only when it is used."""
    for name in COMMANDS:
        try:
            command = COMMANDS[name]
        except Misuse as problem:
            command = _broken_command(problem)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


def _broken_command(problem: Misuse) -> Callable[..., None]:
    def command() -> None:
        raise problem

    command.__doc__ = f"Not available: {problem.problem}"
    return command


def _unused_folder(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, … that does not exist."""
    others = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(path for path in chain([folder], others) if not path.exists())


add_plugin_commands()
