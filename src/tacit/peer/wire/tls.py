"""Mutual TLS 1.3 of the standard library, for streams of messages and relays."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache

from tacit.peer.federation.certificates import Credentials

# What a client asks for in the clear when it connects; gRPC asks for "h2".
MESSAGES = "tacit-messages"
RELAY = "tacit-relay"
RECORD_HEADER_BYTES = 5
HANDSHAKE = 0x16  # the first byte of a TLS connection
MAX_HELLO_BYTES = 1 << 14  # a handshake record holds no more
KEEP_ALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # seconds, and probes


@lru_cache(maxsize=4)
def server_context(own: Credentials, ca: bytes, protocol: str = MESSAGES) -> ssl.SSLContext:
    """Accepts certificates of the federation's authority only."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, own, ca, protocol)
    context.verify_mode = ssl.CERT_REQUIRED
    # Connections last for the whole run; without tickets every one has a handshake.
    context.num_tickets = 0
    return context


@lru_cache(maxsize=64)
def client_context(own: Credentials, roots: bytes, protocol: str = MESSAGES) -> ssl.SSLContext:
    """Accepts the certificates in `roots` (PEM), or what they have signed."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, own, roots, protocol)
    context.check_hostname = True
    # A root may be the certificate of the server itself: the only one that is not revoked.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _context(side: int, own: Credentials, roots: bytes, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([protocol])
    context.load_verify_locations(cadata=roots.decode("ascii"))
    with _as_file(own.certificate + own.key) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A file with a private key, which only this process can read; in memory where possible."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("key"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(content)
            named.flush()
            yield named.name


def keep_alive(connection: socket.socket) -> None:
    """Find out within a minute if the other end is gone, and send small messages at once."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return  # within this machine
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def peer_certificate(connection: ssl.SSLSocket) -> bytes:
    """The certificate (PEM) that the other end has shown and proved to own."""
    der = connection.getpeercert(binary_form=True)
    return b"" if der is None else ssl.DER_cert_to_PEM_cert(der).encode("ascii")


def abort(connection: socket.socket) -> None:
    """Make every use of a connection fail; any thread may call this while another uses it."""
    with suppress(OSError):
        # Not that of ssl.SSLSocket, which would continue without encryption.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def asks_for_messages(hello: bytes) -> bool:
    """Whether the first record of a connection asks for a stream of messages.

    This finds the right server within a node; whether the caller may use it is checked there.
    """
    name = MESSAGES.encode("ascii")
    return bytes([len(name)]) + name in hello
