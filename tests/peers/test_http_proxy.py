"""Nodes connect to each other directly, whatever proxy the environment names for the web."""

from contextlib import closing

from federations import federation, plan
from hostile import TIMEOUT, IdleNode

from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.message_stream import open_stream
from tacit.peer.wire.transport import SERVICE, open_channel


def test_a_proxy_in_the_environment_is_not_used(tmp_path, monkeypatch):
    home = federation(tmp_path / "f", plan({"name": "lppa", "lr": 0.05}, clients=2), clients=2)
    # Nothing listens on port 9, so a connection through this proxy fails.
    for variable in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for other in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(other, raising=False)
    caller = home.node("n1")
    with IdleNode(home.node("n0")).served() as port:
        channel = open_channel(
            f"127.0.0.1:{port}", "n0", home.manifest().federation, caller.credentials(), caller.ca()
        )
        try:
            call = channel.unary_unary(f"/{SERVICE}/GetStatus")
            status = wire.Status.FromString(call(b"", timeout=TIMEOUT))
        finally:
            channel.close()
        stream = open_stream(
            f"127.0.0.1:{port}", "n0", home.manifest().federation, caller.credentials(), caller.ca()
        )
        with closing(stream):
            # Of another generation: the answer is a notice.
            stream.send(wire.FetchRequest(exchange=wire.ExchangeId(generation=9)))
            answer = stream.receive(wire.StreamAnswer)
    assert status.name == "n0"
    assert answer.notice.generation == 1
