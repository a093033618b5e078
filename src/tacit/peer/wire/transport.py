"""Channels and servers with mutual TLS 1.3."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from tacit.core.errors import Misuse
from tacit.peer.federation.identity import Credentials, describe, server_name

SERVICE = "tacit.peer.v1.Peer"
CHUNK = 1 << 20  # bytes of a letter per message
SMALL = 1 << 14  # bytes that a request may have, but for a manifest
MANIFEST = 1 << 24
KEEP_ALIVE = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
SERVING = [
    *KEEP_ALIVE,
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.max_receive_message_length", MANIFEST),
    ("grpc.max_concurrent_streams", 16),  # per connection
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),  # two nodes on one port are a mistake
]
CALLING = [
    *KEEP_ALIVE,
    ("grpc.max_receive_message_length", MANIFEST),
    ("grpc.initial_reconnect_backoff_ms", 100),
    (
        "grpc.min_reconnect_backoff_ms",
        10_000,
    ),  # in truth the time that a connection may take to come about
    ("grpc.max_reconnect_backoff_ms", 3_000),
    ("grpc.enable_retries", 0),  # we retry ourselves
]


def channel(address: str, name: str, federation: str, own: Credentials, ca: bytes) -> Any:
    """A channel to the node `name`: whoever answers at the address must hold that node's certificate."""
    tls = grpc.ssl_channel_credentials(ca, own.key, own.certificate)
    options = [*CALLING, ("grpc.ssl_target_name_override", server_name(name, federation))]
    return grpc.secure_channel(address, tls, options)


def listen(
    address: str, handlers: Iterable[Any], threads: int, own: Credentials, ca: bytes
) -> tuple[Any, int]:
    """A started server that only talks to holders of a certificate of `ca`, and its port."""
    server = grpc.server(
        ThreadPoolExecutor(threads, thread_name_prefix="serve"),
        options=SERVING,
        maximum_concurrent_rpcs=threads,
    )
    server.add_generic_rpc_handlers(tuple(handlers))
    tls = grpc.ssl_server_credentials([(own.key, own.certificate)], ca, require_client_auth=True)
    try:
        port = server.add_secure_port(address, tls)
    except RuntimeError:
        port = 0
    if port == 0:
        raise Misuse(
            f"Cannot listen on {address}.",
            "Is the port taken, or the address another machine's? Give one of this machine's with --listen.",
        )
    server.start()
    return server, port


def caller_of(context: Any, federation: str) -> str | None:
    """The name in the certificate of who is calling, if it is one of this federation.

    Only DNS names count, and exactly one of the federation: what else a certificate says may be its holder's choice.
    """
    suffix = server_name("", federation)
    for pem in context.auth_context().get("x509_pem_cert", ()):
        names = [name for name in describe(pem).server_names if name.endswith(suffix)]
        return names[0].removesuffix(suffix) if len(names) == 1 else None
    return None
