import socket

import pytest

from tacit.peer.federation.signing import create_authority, issue_credentials
from tacit.peer.wire.transport import SERVICE, grpc, open_channel

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
