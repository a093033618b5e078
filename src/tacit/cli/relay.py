"""`tacit relay`: run a relay, which forwards connections to members behind firewalls."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def relay(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The relay's folder, from the operator.")
    ],
    listen: Annotated[
        str | None, typer.Option(help="host:port to listen on (default: the relay's address).")
    ] = None,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for metrics on 127.0.0.1; 0: any.")
    ] = 0,
    stop_at_eof: Annotated[
        bool, typer.Option("--stop-at-eof", help="Stop when standard input ends.")
    ] = False,
) -> None:
    """Run a relay: others reach members without an open port here. It cannot read what they say.

    The log is lines of JSON.
    """
    from tacit.cli.node import stop_at_end_of_input, stop_on_signals
    from tacit.core.errors import TacitError
    from tacit.peer.federation.relays import RelayFolder
    from tacit.peer.monitoring.event_log import EventLog
    from tacit.peer.relay.relay import RelayProcess

    # Only the owner may read the files of a relay.
    os.umask(0o077)
    place = RelayFolder(folder)
    event_log = EventLog(sys.stderr, place.name)
    try:
        process = RelayProcess(place, event_log, listen, metrics_port)
        stop_on_signals(process.stop)
        if stop_at_eof:
            stop_at_end_of_input(process.stop)
        process.run()
    except (TacitError, OSError) as problem:
        event_log.write("failed", "error", why=str(problem))
        raise typer.Exit(getattr(problem, "exit_code", 1)) from None
