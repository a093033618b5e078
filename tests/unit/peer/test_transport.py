import socket

import pytest

from tacit.peer.federation.signing import create_authority, issue_credentials
from tacit.peer.wire.transport import SERVICE, grpc, open_channel, start_server

FEDERATION = "hospitals-3f9a21bc"


def test_the_first_bytes_of_a_connection_hold_no_names():
    ca = create_authority(FEDERATION)
    own = issue_credentials(ca, "berlin", FEDERATION)
    with socket.create_server(("127.0.0.1", 0)) as observer:
        address = f"127.0.0.1:{observer.getsockname()[1]}"
        channel = open_channel(address, "paris", FEDERATION, own, ca.certificate)
        call = channel.unary_unary(f"/{SERVICE}/Hello").future(b"", timeout=30)
        observer.settimeout(30)
        connection, _ = observer.accept()
        with connection:
            hello = connection.recv(65536)
        call.cancel()
        channel.close()
        with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
            call.result()
    assert b".tacit" in hello  # the server's name, which cannot be encrypted
    for name in (b"paris", b"berlin", b"hospitals", b"3f9a21bc"):
        assert name not in hello


def ask(address, own, roots):
    """The answer of a server, or why there is none."""
    channel = open_channel(address, "paris", FEDERATION, own, roots)
    try:
        return channel.unary_unary("/test/Ask")(b"", timeout=60)
    except grpc.RpcError as problem:
        return problem.details()
    finally:
        channel.close()


def test_a_server_shows_the_newest_certificate_to_new_connections():
    ca = create_authority(FEDERATION)
    berlin = issue_credentials(ca, "berlin", FEDERATION)
    old, new = (issue_credentials(ca, "paris", FEDERATION) for _ in range(2))
    current = old
    handler = grpc.unary_unary_rpc_method_handler(lambda raw, context: b"yes")
    handlers = [grpc.method_handlers_generic_handler("test", {"Ask": handler})]
    server, port = start_server(
        "127.0.0.1:0", handlers, 2, old, ca.certificate, renewed=lambda: current
    )
    address = f"127.0.0.1:{port}"
    try:
        # With its certificate as the only trusted one, a server needs exactly that.
        assert ask(address, berlin, old.certificate) == b"yes"
        assert "CERTIFICATE_VERIFY_FAILED" in ask(address, berlin, new.certificate)
        open_before = open_channel(address, "paris", FEDERATION, berlin, old.certificate)
        call = open_before.unary_unary("/test/Ask")
        assert call(b"", timeout=60) == b"yes"
        current = new
        assert ask(address, berlin, new.certificate) == b"yes"
        assert "CERTIFICATE_VERIFY_FAILED" in ask(address, berlin, old.certificate)
        assert ask(address, berlin, ca.certificate) == b"yes"
        assert call(b"", timeout=60) == b"yes"  # it stays open
        open_before.close()
    finally:
        server.stop(0).wait()
