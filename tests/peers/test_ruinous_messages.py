"""One member that sends ruinous numbers: its neighbours keep their state and name it."""

import hashlib
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from chaos import ForkedFederation
from federations import federation, free_ports, log_of, plan
from hostile import TIMEOUT, frame
from mitm import MitmProxy

from tacit.core.storage import read_json

FROM = 4  # the iteration of the first ruinous message


def ruined(caller, header, content):
    """A message, from iteration FROM on with every number at ±3e38."""
    if header.exchange.tick < FROM:
        return frame(header=header) + content, False
    changed = bytearray(content)
    start = 8 + int.from_bytes(changed[:8], "little")
    numbers = np.frombuffer(content, dtype=np.float32, offset=start)
    changed[start:] = np.copysign(np.float32(3e38), numbers).tobytes()
    header.sha256 = hashlib.sha256(changed).digest()
    return frame(header=header) + bytes(changed), False


def wait_for(home, name, event, count=1):
    """The lines about an event in a node's log, as soon as there are so many."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        lines = log_of(home, name) if (home.node(name).run / "log.jsonl").exists() else []
        if len(found := [line for line in lines if line["event"] == event]) >= count:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{name} logged no {event!r}, but {[one['event'] for one in lines]}")


def health(home, name):
    """The reason in /health, which must be 503."""
    port = read_json(home.node(name).run / "ports.json")["metrics"]
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=TIMEOUT)
    assert answer.value.code == 503
    return answer.value.read().decode()


def test_ruinous_numbers_are_refused_and_their_sender_is_named(tmp_path):
    config = plan({"name": "dsgt", "lr": 0.05}, clients=3)
    home = federation(tmp_path / "f", config, clients=3)
    address, backend = home.manifest().member("n1").address, f"127.0.0.1:{free_ports(1)[0]}"
    with (
        MitmProxy(home, "n1", address, backend, ruined),
        ForkedFederation(home, listen={"n1": backend}, save_seconds=0.0) as local,
    ):
        for name in ("n0", "n2"):
            (line,) = wait_for(home, name, "message refused")
            assert (line["level"], line["sender"]) == ("error", "n1")
            # A slow node knows the digest of what n1 really sent before it reads the message.
            why = {"too large": "holds 3e+38", "equivocation": "sent something else"}
            assert why[line["reason"]] in line["why"]
            assert f"{name} refuses a message of n1" in health(home, name)
        # The same after a restart, from an undamaged state.
        local.nodes["n0"].process.terminate()
        assert local.nodes["n0"].process.wait(TIMEOUT) == 0
        local.start("n0")
        _, again = wait_for(home, "n0", "message refused", 2)
        assert again["sender"] == "n1"
        assert [line["step"] for line in log_of(home, "n0") if line["event"] == "resumed"] == [
            FROM - 1
        ]
        assert not local.failed()
