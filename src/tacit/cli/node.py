"""`tacit node`: one peer of a federation."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

NodePath = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder that the operator handed out.")
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="This node's own data: a .npz or .safetensors file with x and y, package.module:function, or, for "
        "trials with a dataset that tacit knows, the folder of the datasets.",
    ),
]
Listen = Annotated[
    str | None, typer.Option(help="host:port to listen on, if not the address in the roster.")
]
Metrics = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of health and metrics on 127.0.0.1; 0: any.")
]
SaveEvery = Annotated[
    float, typer.Option(min=0, help="Seconds between checkpoints, at most; 0: every iteration.")
]


def node(
    folder: NodePath,
    data: Data = None,
    listen: Listen = None,
    metrics_port: Metrics = 0,
    save_every: SaveEvery = 10.0,
) -> None:
    """Run one peer: train with its neighbours on its own data, with no server. Logs lines of JSON."""
    from tacit.core.errors import TacitError
    from tacit.peer.federation.operator import NodeFolder
    from tacit.peer.monitoring.event_log import EventLog
    from tacit.peer.node.node import Node, Options, Removed

    os.umask(0o077)  # what a node writes is nobody else's
    place = NodeFolder(folder)
    event_log = EventLog(sys.stderr, place.name)
    try:
        peer = Node(place, Options(data, listen, metrics_port, save_every), event_log)
        _stop_on_signals(peer.stop)
        peer.run()
    except Removed as notice:
        event_log.write("removed", why=str(notice))
    except TacitError as problem:
        event_log.write("failed", "error", why=str(problem))
        raise typer.Exit(problem.exit_code) from None
    except (
        OSError
    ) as problem:  # no room to begin with, or no right to write: what comes later is waited for
        event_log.write("failed", "error", why=str(problem))
        raise typer.Exit(1) from None


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """The first SIGTERM or Ctrl-C asks the node to save and end; the second ends the process at once.

    A handler would run in the middle of whatever the main thread does, locks held, so that a thread of its own does the
    work: Python writes the number of each signal into a pipe, whichever thread it reaches.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        os.read(reading, 1)
        stop()
        os.read(reading, 1)
        os._exit(130)

    threading.Thread(target=watch, name="signals", daemon=True).start()
