"""The dashboard's page and its data over HTTP, for whoever has the token.

The page is one response: HTML, style and script. Its policy lets it run this script only, and load
nothing but its data from the server that it came from.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from pathlib import Path
from string import Template
from typing import Any

from tacit.peer.monitoring.access import Access, refuse
from tacit.peer.monitoring.http_server import JSON, Pages, Request, Response, to_json

PATH = "/dashboard"
DATA_PATH = "/dashboard/data"
HTML = "text/html; charset=utf-8"
# In this order, as they use each other.
SCRIPTS = ("dom.js", "graph.js", "chart.js", "panels.js", "main.js")
PRIVATE = (
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
)


def dashboard_pages(access: Access, board: Callable[[], dict[str, Any]]) -> Pages:
    """The page and its data, by path; both only with the token."""

    def show(request: Request) -> Response:
        if (entered := access.enter(request, PATH)) is not None:
            return entered
        if not access.allows(request):
            return refuse()
        text, policy = page()
        headers = (("Content-Security-Policy", policy), *PRIVATE)
        return Response(HTTPStatus.OK, HTML, text, headers)

    def data(request: Request) -> Response:
        if not access.allows(request):
            return refuse()
        return Response(HTTPStatus.OK, JSON, to_json(board()), PRIVATE)

    return {PATH: show, DATA_PATH: data}


def link(port: int, access: Access) -> str:
    """The address of the page with the token."""
    return f"http://127.0.0.1:{port}{PATH}?token={access.token}"


@cache
def page() -> tuple[str, str]:
    """The text of the page and its content security policy."""
    style, script = _read("style.css"), "".join(_read(name) for name in SCRIPTS)
    text = Template(_read("page.html")).substitute(style=style, script=script)
    policy = {
        "default-src": "'none'",
        "script-src": _digest(script),
        "style-src": _digest(style),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return text, "; ".join(f"{name} {value}" for name, value in policy.items())


def _digest(text: str) -> str:
    """How a policy names one inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
