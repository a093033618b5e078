import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from tls_pairs import FEDERATION, authority, credentials, handshake, tcp_pair, tls_pair

from tacit.peer.federation import signing
from tacit.peer.federation.certificates import (
    certificate_info,
    certified_name,
    load_key,
    server_name,
)
from tacit.peer.federation.signing import issue_credentials
from tacit.peer.wire import tls
from tacit.peer.wire.transport import SERVICE, grpc, open_channel, start_server


def contexts(client="a", server="b", roots=None):
    """Contexts of the client and the server, for nodes of these names or with credentials."""
    client, server = (credentials(one) if isinstance(one, str) else one for one in (client, server))
    ca = authority().certificate
    return tls.client_context(client, roots or ca), tls.server_context(server, ca)


def expired(monkeypatch, name):
    ended = datetime.now(UTC) - timedelta(minutes=1)
    monkeypatch.setattr(signing, "_end", lambda days: ended)
    return issue_credentials(authority(), name, FEDERATION)


def test_two_nodes_of_a_federation_connect_and_know_each_other():
    client, server = handshake(*contexts())
    with client, server:
        assert (client.version(), server.version()) == ("TLSv1.3", "TLSv1.3")
        assert client.selected_alpn_protocol() == server.selected_alpn_protocol() == tls.MESSAGES
        found = [tls.peer_certificate(end) for end in (server, client)]
        names = [certified_name(certificate_info(one), FEDERATION) for one in found]
        assert names == ["a", "b"]
        expected = [certificate_info(credentials(name).certificate).fingerprint for name in "ab"]
        assert [certificate_info(one).fingerprint for one in found] == expected


@pytest.mark.parametrize("old_side", ["client", "server"])
def test_tls_1_2_is_refused(old_side):
    ours = dict(zip(("client", "server"), contexts(), strict=True))
    side = {"client": ssl.PROTOCOL_TLS_CLIENT, "server": ssl.PROTOCOL_TLS_SERVER}[old_side]
    old = tls._context(side, credentials("c"), authority().certificate, tls.MESSAGES)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    client, server = handshake(**(ours | {old_side: old}))
    assert isinstance(client, ssl.SSLError)
    assert isinstance(server, ssl.SSLError)
    assert "VERSION" in f"{client} {server}".upper()


@pytest.mark.parametrize("pinned", [False, True])
def test_an_expired_server_is_refused_and_named(monkeypatch, pinned):
    own = expired(monkeypatch, "b")
    client, _ = handshake(*contexts(server=own, roots=own.certificate if pinned else None))
    assert "CERTIFICATE_VERIFY_FAILED" in str(client)
    assert "expired" in str(client)


def test_the_same_name_in_another_federation_is_another_server():
    elsewhere = issue_credentials(authority(), "b", "banks-01234567")
    client, _ = handshake(*contexts(server=elsewhere))
    assert "ostname mismatch" in str(client)


def test_a_pinned_certificate_is_the_only_one_that_is_accepted():
    """After a revocation, clients trust the new certificate alone, not the authority."""
    new = issue_credentials(authority(), "b", FEDERATION)
    client, server = handshake(*contexts(server=new, roots=new.certificate))
    with client, server:
        assert server.getpeercert(binary_form=True)
    client, _ = handshake(*contexts(server="b", roots=new.certificate))
    assert isinstance(client, ssl.SSLCertVerificationError)
    both = new.certificate + credentials("b").certificate
    client, server = handshake(*contexts(server="b", roots=both))
    with client, server:
        assert client.getpeercert(binary_form=True)


def test_a_pinned_certificate_is_no_authority(monkeypatch):
    """What its owner signs with its key is refused."""
    monkeypatch.setattr(signing, "check_authority", lambda own: load_key(own.key))
    forged = issue_credentials(credentials("c"), "b", FEDERATION)
    client, _ = handshake(*contexts(server=forged, roots=credentials("c").certificate))
    assert isinstance(client, ssl.SSLCertVerificationError)
    client, server = handshake(*contexts(client=forged))
    assert isinstance(client, OSError)
    assert isinstance(server, ssl.SSLCertVerificationError)


def test_no_session_can_be_resumed():
    client, server = handshake(*contexts())
    with client, server:
        assert not client.session.has_ticket


def test_the_private_key_is_left_in_no_file(monkeypatch, tmp_path):
    monkeypatch.setattr(tls.tempfile, "tempdir", str(tmp_path))
    for has_memory in (True, False):
        if not has_memory:
            monkeypatch.delattr(tls.os, "memfd_create", raising=False)
        with tls._as_file(b"secret") as path, open(path, "rb") as file:
            assert file.read() == b"secret"
            modes = [file.stat().st_mode & 0o077 for file in tmp_path.iterdir()]
            assert modes == ([] if has_memory and hasattr(tls.os, "memfd_create") else [0])
        assert list(tmp_path.iterdir()) == []


def client_hello(context, name="b"):
    """The first record that a client sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=server_name(name, FEDERATION))
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def test_only_our_clients_ask_for_messages():
    context = tls.client_context(credentials("a"), authority().certificate)
    hello = client_hello(context)
    assert hello[0] == tls.HANDSHAKE
    size = int.from_bytes(hello[3:5], "big")
    assert len(hello) == tls.RECORD_HEADER_BYTES + size <= tls.MAX_HELLO_BYTES
    assert tls.asks_for_messages(hello)
    for protocols in (
        [],
        ["h2"],
        ["tacit-message"],
        ["tacit-messagesz"],
        ["tacit-messages2", "h2"],
    ):
        other = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        other.set_alpn_protocols(protocols)
        assert not tls.asks_for_messages(client_hello(other))
    assert not tls.asks_for_messages(b"")


def test_the_first_bytes_of_a_stream_hold_no_names():
    own = issue_credentials(authority(), "berlin", FEDERATION)
    hello = client_hello(tls.client_context(own, authority().certificate), "paris")
    assert b".tacit" in hello
    for name in (b"paris", b"berlin", b"clinics", b"01234567"):
        assert name not in hello


def test_abort_wakes_a_thread_that_reads():
    client, server = tls_pair()
    with client, server:
        found, reading = [], threading.Event()

        def read():
            reading.set()
            found.append(client.recv(1))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        assert reading.wait(30)
        tls.abort(client)
        thread.join(30)
        assert found == [b""]
        with pytest.raises((BrokenPipeError, ssl.SSLError)):
            client.sendall(b"x")
        tls.abort(client)
    tls.abort(client)  # closed


def test_connections_are_checked_by_tcp_and_send_at_once():
    one, other = tcp_pair()
    with one, other:
        tls.keep_alive(one)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 20


# --- channels of gRPC -----------------------------------------------------------------------------


def test_the_first_bytes_of_a_connection_hold_no_names():
    ca = authority()
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
    for name in (b"paris", b"berlin", b"clinics", b"01234567"):
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
    ca = authority()
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
