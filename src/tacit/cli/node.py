"""`tacit node`: run one node of a federation."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.arguments import AllowCode, TranscriptSize

STOP_TIMEOUT = 15.0  # seconds to save and end after standard input has ended


def node(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The node's folder, from the operator.")
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="The node's own data: a table, a .npz or .safetensors file with x and y, the "
            "folder of its file, the URL of a database, package.module:function, or, for trials "
            "with a known dataset, the folder of datasets."
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="host:port to listen on (default: the node's address).")
    ] = None,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for metrics on 127.0.0.1; 0: any.")
    ] = 0,
    save_every: Annotated[
        float, typer.Option(min=0, help="Seconds between checkpoints, at most; 0: every iteration.")
    ] = 10.0,
    share_scores: Annotated[
        bool,
        typer.Option(
            "--share-scores",
            help="Let members and the operator query the loss and accuracy, which are computed "
            "from the node's data, if the manifest allows it (federation.share_metrics). No bound "
            "on what leaks accounts for them.",
        ),
    ] = False,
    allow_code: AllowCode = None,
    transcript: TranscriptSize = None,
    stop_at_eof: Annotated[
        bool,
        typer.Option(
            "--stop-at-eof",
            help="Stop when standard input ends, as a pipe does when the process behind it dies.",
        ),
    ] = False,
) -> None:
    """Run one node: train with its neighbours on its own data. The log is lines of JSON."""
    from tacit.core.errors import TacitError
    from tacit.peer.federation.folders import NodeFolder
    from tacit.peer.monitoring.event_log import EventLog
    from tacit.peer.node.node import Node, NodeOptions, RemovedFromRoster
    from tacit.peer.node.transcript_log import parse_size

    # Only the owner may read the files of a node.
    os.umask(0o077)
    place = NodeFolder(folder)
    event_log = EventLog(sys.stderr, place.name)
    try:
        allowed = tuple(allow_code or ())
        kept = None if transcript is None else parse_size(transcript)
        options = NodeOptions(data, listen, metrics_port, save_every, share_scores, allowed, kept)
        peer = Node(place, options, event_log)
        stop_on_signals(peer.stop)
        if stop_at_eof:
            stop_at_end_of_input(peer.stop)
        peer.run()
    except RemovedFromRoster as notice:
        event_log.write("removed", why=str(notice))
    # OSError: no room or no permission at the start. Later, the node waits for room.
    except (TacitError, OSError) as problem:
        event_log.write("failed", "error", why=str(problem))
        raise typer.Exit(getattr(problem, "exit_code", 1)) from None


def stop_at_end_of_input(stop: Callable[[], None]) -> None:
    """Call `stop` when standard input ends: the process that started this one has died.

    The system closes the other end of the pipe even if that process was killed.
    """

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        stop()
        # Unlike that process, no one kills a node that does not stop.
        time.sleep(STOP_TIMEOUT)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def stop_on_signals(stop: Callable[[], None]) -> None:
    """On SIGTERM or Ctrl-C call `stop`; on the second one end the process at once.

    A signal handler would interrupt the main thread while it may hold locks, so a separate thread
    calls `stop`. Python writes the number of each signal into a pipe, whichever thread gets it.
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
