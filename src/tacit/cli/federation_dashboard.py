"""`tacit federation dashboard`: a page on this machine that shows a federation."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.storage import read_json
from tacit.peer.dashboard.federation_watch import FederationWatch, watching
from tacit.peer.dashboard.page import dashboard_pages, link
from tacit.peer.monitoring.access import TOKEN_FILE, Access, load_access
from tacit.peer.monitoring.http_server import serve_pages


def serve_dashboard(folder: Path, port: int, seconds: float, browser: bool) -> None:
    """Serve the page until Ctrl-C."""
    watch, access = FederationWatch(folder), Access()
    pages = dashboard_pages(access, watch.board)
    with watching(watch, seconds), serve_pages(port, pages) as port:
        print("Open this link on this machine. It holds a token: do not pass it on.")
        print(f"  {link(port, access)}", flush=True)
        if own := own_link(folder):
            print(f"This node's own page, with its loss, accuracy and log:\n  {own}", flush=True)
        print("Ctrl-C ends the dashboard; the nodes go on.", flush=True)
        if browser:
            webbrowser.open(link(port, access))
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


def own_link(folder: Path) -> str | None:
    """The link to the page that a running node serves itself, if this is its folder."""
    run = folder / "run"
    if (access := load_access(run / TOKEN_FILE)) is None:
        return None
    try:
        return link(int(read_json(run / "ports.json")["metrics"]), access)
    except (Misuse, KeyError, TypeError, ValueError):
        return None
