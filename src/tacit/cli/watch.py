"""`tacit report --watch`: the report of runs on the loopback interface, made anew at every load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.provenance import current_provenance
from tacit.experiment.signals import stop_requests
from tacit.peer.monitoring.http_server import PLAIN, Pages, Request, Response, serve_pages
from tacit.report.report import report_page

REFRESH = 5  # seconds after which a page of a run that has not ended loads again
HTML = "text/html; charset=utf-8"


def serve_report(find_runs: Callable[[], list[Path]], port: int) -> None:
    """Serve the report of these runs until Ctrl-C, SIGINT or SIGTERM."""
    # Errors appear before the server starts.
    watched_page(find_runs())
    # A shell starts background jobs with SIGINT ignored, so it needs a handler of its own.
    with (
        stop_requests(second_kills=True) as stop,
        serve_pages(port, report_pages(find_runs)) as bound,
    ):
        print(f"Report: http://127.0.0.1:{bound}/ (Ctrl-C ends this)", flush=True)
        stop.wait()


def report_pages(find_runs: Callable[[], list[Path]]) -> Pages:
    """The page at /, from the files as they are when it is asked for."""
    lock = threading.Lock()

    def show(request: Request) -> Response:
        try:
            # matplotlib is not made for several threads.
            with lock:
                return Response(HTTPStatus.OK, HTML, watched_page(find_runs()))
        except Misuse as problem:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, f"{problem}\n")

    return {"/": show}


def watched_page(runs: list[Path]) -> str:
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    return report_page(runs, title=title, made=current_provenance(), refresh=REFRESH)
