"""Both ends of TCP and TLS connections between two nodes, in one process."""

import functools
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor

from tacit.peer.federation.certificates import server_name
from tacit.peer.federation.signing import create_authority, issue_credentials
from tacit.peer.wire import tls

FEDERATION = "clinics-01234567"
TIMEOUT = 30


@functools.cache
def authority():
    return create_authority(FEDERATION)


@functools.cache
def credentials(name):
    return issue_credentials(authority(), name, FEDERATION)


def tcp_pair():
    """Two sockets that are connected over the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname(), TIMEOUT)
        other, _ = listening.accept()
    other.settimeout(TIMEOUT)
    return one, other


def handshake(client, server, name="b"):
    """Connect with two contexts, to the server of this name.

    Returns the two ends, or the error of each that has one. A client of TLS 1.3 learns only with
    its first read that the server refuses it, so this reads one byte.
    """
    to_server, to_client = tcp_pair()

    def accept():
        connection = server.wrap_socket(to_client, server_side=True)
        connection.sendall(b"!")
        return connection

    def connect():
        connection = client.wrap_socket(to_server, server_hostname=server_name(name, FEDERATION))
        if connection.recv(1) != b"!":
            raise ssl.SSLError("the server has closed the connection")
        return connection

    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(_result_or_error, end, raw) for end, raw in
                ((connect, to_server), (accept, to_client))]  # fmt: skip
    return [end.result() for end in ends]


def _result_or_error(function, raw):
    try:
        return function()
    except OSError as problem:
        raw.close()
        return problem


def tls_pair():
    """The ends of node a, the client, and of node b, the server."""
    ca = authority().certificate
    ends = handshake(
        tls.client_context(credentials("a"), ca), tls.server_context(credentials("b"), ca)
    )
    assert all(isinstance(end, ssl.SSLSocket) for end in ends), ends
    return ends
