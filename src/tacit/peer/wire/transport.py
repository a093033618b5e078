"""gRPC channels and servers with mutual TLS 1.3."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from tacit.core.errors import NotReady
from tacit.peer.federation.certificates import Credentials, server_name

SERVICE = "tacit.peer.v1.Peer"
MAX_REQUEST_BYTES = 1 << 14  # of all requests but manifests
MAX_MANIFEST_BYTES = 1 << 24
MAX_DIGEST_BYTES = 1 << 20  # of lists of digests
MAX_CONNECTIONS = 512  # of a server, unless it is told otherwise
KEEP_ALIVE = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
SERVER_OPTIONS = [
    *KEEP_ALIVE,
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.max_receive_message_length", MAX_MANIFEST_BYTES),
    ("grpc.max_concurrent_streams", 16),  # per connection
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),  # two nodes on one port are a mistake
]
CHANNEL_OPTIONS = [
    *KEEP_ALIVE,
    ("grpc.max_receive_message_length", MAX_MANIFEST_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name, the time limit for one attempt to connect.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    ("grpc.enable_retries", 0),  # the callers retry
    ("grpc.enable_http_proxy", 0),  # a proxy for the web does not reach nodes
]


def open_channel(address: str, name: str, federation: str, own: Credentials, ca: bytes) -> Any:
    """Open a channel to a node, which must show the certificate of its name.

    Args:
        address: host:port of the node, or unix:PATH.
        name: The node's name.
        federation: The federation's name.
        own: Certificate and key of the caller.
        ca: Certificate of the federation's authority, as PEM.
    """
    tls = grpc.ssl_channel_credentials(ca, own.key, own.certificate)
    options = [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", server_name(name, federation))]
    return grpc.secure_channel(address, tls, options)


def start_server(
    address: str,
    handlers: Iterable[Any],
    threads: int,
    own: Credentials,
    ca: bytes,
    connections: int = MAX_CONNECTIONS,
    renewed: Callable[[], Credentials] | None = None,
) -> tuple[Any, int]:
    """Start a server that accepts only certificates of the federation's authority.

    It does not limit the connections of one caller: see `tacit.peer.wire.gate`.

    Args:
        address: host:port to listen on; port 0 chooses a free one.
        handlers: Generic RPC handlers of gRPC.
        threads: Calls served at a time.
        own: Certificate and key of the node.
        ca: Certificate of the federation's authority, as PEM.
        connections: Connections at a time; further ones are closed.
        renewed: Asked before each handshake for the certificate and key to use.

    Returns:
        The server and its port.
    """
    server = grpc.server(
        ThreadPoolExecutor(threads, thread_name_prefix="serve"),
        options=[*SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", connections)],
        maximum_concurrent_rpcs=threads,
    )
    server.add_generic_rpc_handlers(tuple(handlers))
    tls = _server_credentials(own, ca, renewed or (lambda: own))
    try:
        port = server.add_secure_port(address, tls)
    except RuntimeError:
        port = 0
    if port == 0:
        raise NotReady(
            f"Cannot listen on {address}: another program uses the port, or this machine does not "
            "have the address.",
            "Give a free address of this machine with --listen host:port.",
        )
    server.start()
    return server, port


def _server_credentials(own: Credentials, ca: bytes, current: Callable[[], Credentials]) -> Any:
    """Credentials of a server that may change between two handshakes."""

    def configuration(used: Credentials) -> Any:
        return grpc.ssl_server_certificate_configuration([(used.key, used.certificate)], ca)

    used = own

    def fetch() -> Any:
        nonlocal used
        try:
            found = current()
        except Exception:  # keep those that work
            return None
        if found == used:
            return None
        used = found
        return configuration(found)

    return grpc.dynamic_ssl_server_credentials(configuration(own), fetch, True)


def caller_certificate(context: Any) -> bytes:
    """The certificate (PEM) of the caller, which TLS has verified; b"" if there is none."""
    return next(iter(context.auth_context().get("x509_pem_cert", ())), b"")
