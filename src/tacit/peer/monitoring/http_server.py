"""HTTP server on the loopback interface only: metrics, health, status and dashboards."""

from __future__ import annotations

import errno
import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from tacit.core.errors import Misuse, NotReady
from tacit.core.missing_numbers import without_nan

ADDRESS = "127.0.0.1"
LOCAL_HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.ASCII | re.IGNORECASE)
REQUEST_LINE = re.compile(r"(?P<method>[A-Z]+) (?P<path>/[^ ?]*)(\?(?P<query>[^ ]*))? HTTP/1\.[01]")
HEADER_END = b"\r\n\r\n"
MAX_HEADER = 8_192  # bytes of the request line and headers
TIMEOUT = 5.0  # seconds to receive a request, and to send the response
SLOW_AFTER = 0.25  # seconds after which an incomplete request may be closed to free its thread
MAX_THREADS = 16
PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True)
class Request:
    """What a page may know of a request."""

    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # by name in lower case


@dataclass(frozen=True)
class Response:
    status: HTTPStatus
    content_type: str
    text: str
    headers: tuple[tuple[str, str], ...] = ()  # beside those that all responses have


Pages = Mapping[str, Callable[[Request], Response]]  # by path


@contextmanager
def serve_pages(port: int, pages: Pages) -> Iterator[int]:
    """Answer GET requests for these paths while the block runs; yield the port.

    `port` 0 means any free one.
    """
    try:
        server = _Server(port, pages)
    except (OSError, OverflowError, TypeError) as problem:
        is_taken = isinstance(problem, OSError) and problem.errno == errno.EADDRINUSE
        raise (NotReady if is_taken else Misuse)(
            f"The monitoring server cannot listen on port {port!r} of {ADDRESS}: {problem}.",
            "Choose another port, or 0 for any free one.",
        ) from None
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A bounded number of threads; slow requests are closed when others need their threads."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, pages: Pages) -> None:
        self.pages = pages
        self._free_threads = threading.Semaphore(MAX_THREADS)
        self._lock = threading.Lock()
        # When each connection whose request is still incomplete was accepted.
        self._incomplete: dict[socket.socket, float] = {}
        super().__init__((ADDRESS, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._acquire_thread():
            return self.shutdown_request(request)
        with self._lock:
            self._incomplete[request] = time.monotonic()
        try:
            return super().process_request(request, client_address)
        except BaseException:
            self.mark_complete(request)
            self._free_threads.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.mark_complete(request)
            self._free_threads.release()

    def mark_complete(self, request: socket.socket) -> None:
        """Note that the whole request has arrived."""
        with self._lock:
            self._incomplete.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: malformed requests must not fill the log."""

    def _acquire_thread(self) -> bool:
        """Wait for a free thread, closing connections whose requests are slow to arrive."""
        deadline = time.monotonic() + TIMEOUT
        while not self._free_threads.acquire(timeout=SLOW_AFTER):
            now = time.monotonic()
            if now > deadline:
                return False
            with self._lock:
                for request, since in self._incomplete.items():
                    if now - since > SLOW_AFTER:
                        with suppress(OSError):
                            request.shutdown(socket.SHUT_RDWR)
        return True


class _Handler(socketserver.BaseRequestHandler):
    """One request per connection."""

    server: _Server
    request: socket.socket

    def handle(self) -> None:
        try:
            header = _read_header(self.request)
        finally:
            self.server.mark_complete(self.request)
        if header:
            self.request.settimeout(TIMEOUT)
            self.request.sendall(respond(header, self.server.pages))


def _read_header(connection: socket.socket) -> bytes:
    """Read up to the empty line or MAX_HEADER bytes; return nothing if they do not come in time."""
    # One deadline for the whole header, so that a trickle of bytes does not extend it.
    deadline = time.monotonic() + TIMEOUT
    header = b""
    while HEADER_END not in header and len(header) < MAX_HEADER:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return b""
        connection.settimeout(remaining)
        if not (received := connection.recv(MAX_HEADER - len(header))):
            return b""
        header += received
    return header


def respond(header: bytes, pages: Pages) -> bytes:
    """The response to a request header. It repeats nothing from the request."""
    first, *lines = header.partition(HEADER_END)[0].decode("latin-1").split("\r\n")
    request = REQUEST_LINE.fullmatch(first)
    fields = [(name.lower(), value.strip()) for name, _, value in (x.partition(":") for x in lines)]
    hosts = [value for name, value in fields if name == "host"]
    if HEADER_END not in header:
        response = error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    elif request is None:
        response = error(HTTPStatus.BAD_REQUEST)
    elif len(hosts) != 1 or not LOCAL_HOSTS.fullmatch(hosts[0]):
        # DNS rebinding: a web page may resolve its own name to this address to read the response.
        response = error(HTTPStatus.FORBIDDEN)
    elif request["method"] not in ("GET", "HEAD"):
        response = error(HTTPStatus.METHOD_NOT_ALLOWED)
    elif (page := pages.get(request["path"])) is None:
        response = error(HTTPStatus.NOT_FOUND)
    else:
        try:
            response = page(Request(request["query"] or "", dict(fields)))
        except Exception:
            response = error(HTTPStatus.INTERNAL_SERVER_ERROR)
    body = response.text.encode("utf-8", "replace")
    headers = [
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(body)}",
        "Allow: GET, HEAD",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    header_only = request is not None and request["method"] == "HEAD"
    return "\r\n".join(headers).encode("ascii") + HEADER_END + (b"" if header_only else body)


def error(status: HTTPStatus) -> Response:
    """A response that says nothing but the name of the status."""
    return Response(status, PLAIN, f"{status.phrase}\n")


def to_json(value: Any) -> str:
    """JSON text with null for NaN and infinity."""
    return json.dumps(without_nan(value), default=str, allow_nan=False) + "\n"
