"""The commands of the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.arguments import AllowCode, Json, Overrides, print_note
from tacit.cli.lazy_commands import Commands, lazy_group
from tacit.core.errors import Misuse
from tacit.core.plugins import Registry
from tacit.core.storage import require_writable


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report, new or empty.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train on bundled digits with four algorithms, and show what a neighbour learns."""
    from tacit.cli.progress import ProgressBars
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
    baseline = result.rows[0].summary["baseline"] or 0
    table = Table(
        caption=f"majority baseline of the accuracy: {baseline:.1f} %;\n"
        f"error: ‖γ⁰ − ∇L‖ / ‖∇L‖ of the message;\n{CAVEAT}"
    )
    for name in HEADER:
        table.add_column(name, justify="right" if name in HEADER[2:] else "left")
    for row in result.rows:
        table.add_row(*row.cells)
    Console().print(table)
    print(*result.audit, f"Report: {result.report}", sep="\n")


def audit(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG|FOLDER",
            help="TOML file of an experiment, or the folder of a run, a grid, a federation or a "
            "node.",
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
        list[str] | None,
        typer.Option(
            help="Client to attack, by name, or by number if no name is one (default: first, or "
            "the node whose folder it is; repeatable)."
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--iterations",
            min=1,
            help="Number of iterations to audit (default: 10, or all of a shorter run).",
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="δ of the privacy guarantee (default: the promised one, or 1e-5)."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="Time limit of one attack.")] = 60.0,
    restarts: Annotated[int, typer.Option(min=1, help="Restarts of each inversion.")] = 8,
    attacks: Annotated[
        bool | None,
        typer.Option(
            "--attacks/--no-attacks",
            help="Run attacks (default), or only prove and bound (default in a federation). Of a "
            "node with a transcript: reconstruct inputs from what it sent.",
        ),
    ] = None,
    canaries: Annotated[
        bool,
        typer.Option("--canaries", help="Measure lower bounds on ε also with --no-attacks."),
    ] = False,
    sample_canaries: Annotated[
        int,
        typer.Option(
            min=0,
            help="Train again with so many wrongly labelled samples, each among the victim's data "
            "by chance: a lower bound on ε for one sample, also with --no-attacks.",
        ),
    ] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for audit.json and the report.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder of the datasets (default: $TACIT_DATA); of a node with a transcript, the "
            "--data that it runs with.",
        ),
    ] = None,
    overrides: Overrides = None,
    as_json: Json = False,
    allow_code: AllowCode = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="Audit the configuration with each of these: names separated by commas, "
            "options by +, e.g. NAME,NAME+fresh=true."
        ),
    ] = None,
) -> None:
    """Find out who can learn what about the data: proved, bounded and measured."""
    from tacit.auditing.adversary import Adversary
    from tacit.auditing.options import AttackOptions
    from tacit.cli.audit_tables import print_audit, print_audits
    from tacit.cli.progress import ProgressBar
    from tacit.config.variants import split_outside_brackets
    from tacit.core.provenance import current_provenance
    from tacit.core.storage import read_json, write_json
    from tacit.experiment import auditing
    from tacit.report.finished_grid import is_grid, read_grid

    federation, sent, has_transcript, invert = None, None, False, False
    several = algorithms is not None
    against: Sequence[Adversary | str] | None = adversary
    if (source / "federation.toml").is_file():
        from tacit.peer.federation.audited import AuditedFederation

        has_transcript = any((source / "run" / "transcript").glob("segment-*.log"))
        if (
            (attacks and not has_transcript)
            or canaries or sample_canaries or algorithms or overrides
        ):  # fmt: skip
            raise Misuse(
                "Attacks, canaries, --algorithms and --set do not go with a federation: its data "
                "are at its members, and its manifest is signed.",
                "Leave them out, or audit a configuration with data of the same kind. A node that "
                "runs with --transcript can attack what it sent.",
            )
        federation, invert, attacks = AuditedFederation.load(source), bool(attacks), False
        victims = federation.victims(victim or [])
        against = adversary or federation.adversaries(victims[0])
        subjects = {"": federation.subject(allow_code or ())}
    elif is_grid(source) and algorithms is None:
        several = True
        subjects = auditing.load_grid(read_grid(source), overrides or [], data)
    elif algorithms is None:
        subjects = {"": auditing.load_subject(source, overrides or [], data, note=print_note)}
    else:
        labels = [part.strip() for part in split_outside_brackets(algorithms, ",")]
        subjects = auditing.load_variants(
            source, list(filter(None, labels)), overrides or [], data, print_note
        )
    if federation is not None:
        folder = out or source / "audit"
    else:
        folder = out or (source if source.is_dir() else _unused_folder(Path("runs/audit")))
        names = next(iter(subjects.values())).experiment.task.names
        victims = [_client_number(client, names) for client in victim or []] or [0]
    # Before the attacks, which take minutes.
    require_writable(folder)
    audits, files = {}, {}
    for label, subject in subjects.items():
        keys = subject.experiment.config.run
        options = AttackOptions(
            restarts, seconds, keys.seed, keys.device, sample_canaries=sample_canaries
        )
        # Without attacks, only the canaries that are asked for.
        alone = replace(options, canary_trials=options.canary_trials if canaries else 0)
        with ProgressBar(Console(stderr=True)) as progress:
            audits[label] = auditing.audit(
                subject,
                against,
                victims,
                iterations=iterations,
                delta=delta,
                attacks=attacks is not False and options,
                canaries=alone if canaries or sample_canaries else None,
                progress=progress,
            )
            # The runs of a grid have folders of their own.
            name = label if subject.folder is None or not several else subject.folder.path.name
            written, page = auditing.write_audit(
                audits[label], subject, folder / name, progress=progress
            )
            files[label] = written
    if federation is not None and federation.member is not None and has_transcript:
        from tacit.peer.federation.folders import NodeFolder
        from tacit.peer.node.sent_audit import audit_sent

        with ProgressBar(Console(stderr=True)) as progress:
            sent = audit_sent(
                NodeFolder(source),
                iterations=audits[""].iterations,
                data=None if data is None else str(data),
                attacks=options if invert else None,
                allowed_code=allow_code or (),
                progress=progress,
            )
        if sent is not None:
            write_json(folder / "sent.json", sent.as_dict())
    if is_grid(folder):
        from tacit.report.grid_page import write_grid_report

        # With the answers of the audits.
        write_grid_report(read_grid(folder), folder / "report.html", current_provenance())
    if as_json:
        plain = {label: read_json(file) for label, file in files.items()}
        if sent is not None:
            plain[""]["sent"] = sent.as_dict()
        print(json.dumps(plain if several else plain[""]))
    elif several:
        print_audits(audits, Console())
        print(f"Numbers and reports: {folder}")
    else:
        print_audit(audits[""], Console())
        if federation is not None:
            print(federation.describe())
        if sent is not None:
            print("\nWhat was really sent:", *sent.lines, "", sep="\n")
        elif has_transcript:
            print("The transcript has no complete iteration of this roster yet.")
        print(f"Numbers: {written}\nReport: {page}")


def _client_number(text: str, names: tuple[str, ...]) -> int:
    from tacit.auditing.client_names import client_position

    if names:
        return client_position(text, names)
    if text.isdecimal():
        return int(text)
    raise Misuse(f"--victim {text} is not the number of a client.", "Give a number, such as 0.")


def algorithms(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One of them, with its options.")
    ] = None,
    parameters: Annotated[
        int,
        typer.Option("-p", "--parameters", min=1, max=10**12, help="Model size for the bytes."),
    ] = 100_000,
    as_json: Json = False,
) -> None:
    """List the algorithms: what they send, need and protect; or describe one of them."""
    from tacit.algorithms import ALGORITHMS
    from tacit.cli.listing import (
        algorithm_facts,
        algorithm_rows,
        algorithm_table,
        print_algorithm,
    )

    if name is not None:
        facts = algorithm_facts(name, parameters)
        if as_json:
            print(json.dumps(facts))
        else:
            print_algorithm(facts, Console(soft_wrap=True))
        return
    if as_json:
        print(json.dumps(algorithm_rows(parameters)))
    else:
        Console().print(algorithm_table(parameters))
    for problem in ALGORITHMS.loadable()[1]:
        print(f"Left out: {problem}", file=sys.stderr)


def _unused_folder(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, … that does not exist."""
    others = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(path for path in chain([folder], others) if not path.exists())


# In the order of `tacit --help` and of the README; other packages can add commands.
COMMANDS: Commands = Registry(
    "tacit.commands",
    "command",
    {
        "demo": demo,
        "run": "tacit.cli.runs:run",
        "grid": "tacit.cli.grid:grid",
        "compare": "tacit.cli.moved:compare",
        "sweep": "tacit.cli.moved:sweep",
        "audit": audit,
        "privacy": "tacit.cli.privacy:privacy",
        "report": "tacit.cli.runs:report",
        "export": "tacit.cli.export:export",
        "algorithms": algorithms,
        "data": "tacit.cli.data:app",
        "federation": "tacit.cli.federation_changes:app",
        "member": "tacit.cli.member:app",
        "node": "tacit.cli.node:node",
        "relay": "tacit.cli.relay:relay",
    },
)

app = typer.Typer(
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Train together, tell nothing: privacy-preserving decentralized federated learning.",
)


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
