"""How a node is watched: metrics, health and status over HTTP, from this computer only."""

from __future__ import annotations

import json
import math
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from tacit.core.errors import Misuse
from tacit.peer.monitoring.metrics import Metrics

Answer = tuple[HTTPStatus, str, str]  # status, content type, text

ADDRESS = "127.0.0.1"
HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.ASCII | re.IGNORECASE)
REQUEST = re.compile(r"(?P<method>[A-Z]+) (?P<path>/[^ ?]*)(\?[^ ]*)? HTTP/1\.[01]")
END = b"\r\n\r\n"  # of a request's head
HEAD = 8_192  # bytes of a request's first line and headers
SECONDS = 5.0  # for a request to arrive, and for its answer to be taken
PATIENCE = 0.25  # seconds that others wait for who has not asked yet
THREADS = 16
PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Monitor:
    """Answers GET /metrics, /health and /status on a port of the loopback interface (0: any that is free)."""

    def __init__(
        self,
        port: int,
        status: Callable[[], dict[str, Any]],
        healthy: Callable[[], tuple[bool, str]],
        measures: Metrics,
    ) -> None:
        self._port = port
        self._pages: dict[str, Callable[[], Answer]] = {
            "/metrics": lambda: (HTTPStatus.OK, METRICS, measures.text()),
            "/status": lambda: (HTTPStatus.OK, JSON, _json(status())),
            "/health": lambda: _health(healthy),
        }
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Listen, and return the port."""
        try:
            server = _Server(self._port, self._pages)
        except (OSError, OverflowError, TypeError) as problem:
            raise Misuse(
                f"The monitor cannot listen on port {self._port!r} of {ADDRESS}: {problem}.",
                "Give it another port, or 0 for any that is free.",
            ) from None
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="monitor", daemon=True
        )
        self._thread.start()
        return int(server.server_address[1])

    def stop(self) -> None:
        """Listen no more."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is not None and thread is not None:
            server.shutdown()
            server.server_close()
            thread.join()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A thread for each request, few at a time: who is slow to ask makes room for those who come later."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, pages: dict[str, Callable[[], Answer]]) -> None:
        self.pages = pages
        self._free = threading.Semaphore(THREADS)
        self._lock = threading.Lock()
        self._asking: dict[
            socket.socket, float
        ] = {}  # connections without a whole request yet, and since when
        super().__init__((ADDRESS, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request in a thread of its own as soon as there is one."""
        if not self._found_room():
            return self.shutdown_request(request)
        with self._lock:
            self._asking[request] = time.monotonic()
        try:
            return super().process_request(request, client_address)
        except BaseException:
            self.asked(request)
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.asked(request)
            self._free.release()

    def asked(self, request: socket.socket) -> None:
        """The whole request is here."""
        with self._lock:
            self._asking.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whoever asks wrongly must not fill the log."""

    def _found_room(self) -> bool:
        """Wait for a free thread; who has been asking for long meanwhile is hung up on."""
        deadline = time.monotonic() + SECONDS
        while not self._free.acquire(timeout=PATIENCE):
            now = time.monotonic()
            if now > deadline:
                return False
            with self._lock:
                slow = [
                    request for request, since in self._asking.items() if now - since > PATIENCE
                ]
                for request in slow:
                    with suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)
        return True


class _Handler(socketserver.BaseRequestHandler):
    """One request per connection."""

    server: _Server
    request: socket.socket

    def handle(self) -> None:
        """Answer the request, if a whole one comes in time."""
        try:
            head = _read_head(self.request)
        finally:
            self.server.asked(self.request)
        if head:
            self.request.settimeout(SECONDS)
            self.request.sendall(respond(head, self.server.pages))


def _read_head(connection: socket.socket) -> bytes:
    """All bytes until an empty line, or the first HEAD of them; nothing if they do not come in time."""
    deadline = time.monotonic() + SECONDS
    head = b""
    while END not in head and len(head) < HEAD:
        left = (
            deadline - time.monotonic()
        )  # of the whole head: a byte now and then does not prolong it
        if left <= 0:
            return b""
        connection.settimeout(left)
        if not (piece := connection.recv(HEAD - len(head))):
            return b""
        head += piece
    return head


def respond(head: bytes, pages: dict[str, Callable[[], Answer]]) -> bytes:
    """The whole response to a request's head; no word of the request is in it."""
    lines = head.partition(END)[0].decode("latin-1").split("\r\n")
    asked = REQUEST.fullmatch(lines[0])
    hosts = [line[len("host:") :].strip() for line in lines[1:] if line.lower().startswith("host:")]
    if END not in head:
        answer = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    elif asked is None:
        answer = _refusal(HTTPStatus.BAD_REQUEST)
    elif len(hosts) != 1 or not HOSTS.fullmatch(hosts[0]):
        # A page of the web may have led its own name to this address; it must not read what is here.
        answer = _refusal(HTTPStatus.FORBIDDEN)
    elif asked["method"] not in ("GET", "HEAD"):
        answer = _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
    elif (page := pages.get(asked["path"])) is None:
        answer = _refusal(HTTPStatus.NOT_FOUND)
    else:
        answer = _page(page)
    status, kind, text = answer
    body = text.encode("utf-8", "replace")
    start = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Allow: GET, HEAD",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    without = asked is not None and asked["method"] == "HEAD"
    return "\r\n".join(start).encode("ascii") + END + (b"" if without else body)


def _page(page: Callable[[], Answer]) -> Answer:
    try:
        return page()
    except Exception:  # whatever the node's own words raise: a monitor goes on
        return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)


def _refusal(status: HTTPStatus) -> Answer:
    return status, PLAIN, f"{status.phrase}\n"


def _health(healthy: Callable[[], tuple[bool, str]]) -> Answer:
    try:
        well, reason = healthy()
    except Exception as problem:  # a node that cannot tell is not well
        well, reason = False, f"{type(problem).__name__} when it was asked"
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return status, JSON, _json({"healthy": well, "reason": reason})


def _json(value: Any) -> str:
    return json.dumps(_finite(value), default=str, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not know."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list | tuple) else value
