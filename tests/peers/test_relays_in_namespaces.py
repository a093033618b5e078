"""Members in network namespaces of their own, each behind a router with address translation.

Every member has a private network with a router that translates addresses (NAT): it can open
connections to the network where the relay is, and nothing from there can open one to it. The
members have no route to each other.

    member ─ router (NAT) ─┐
    member ─ router (NAT) ─┼─ bridge ─ relay
    member ─ router (NAT) ─┘
"""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import torch
from chaos import FRESH, LONG, run_in_threads
from federations import free_ports, models, plan, twin
from relays import relayed_federation

from tacit.peer.federation.membership import change_address

NAMES = ["n0", "n1", "n2"]
RELAY = "198.18.0.1"
PORT = 7400


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=check)


def inside(space, *command):
    return ["ip", "netns", "exec", space, *command]


def run_inside(space, *command):
    return subprocess.run(inside(space, *command), capture_output=True, text=True, check=True)


class Networks:
    """The namespaces: one for the bridge and the relay, and two for each member."""

    def __init__(self):
        prefix = f"tacit{os.getpid()}"
        self.relay = f"{prefix}-relay"
        self.members = {name: f"{prefix}-{name}" for name in NAMES}
        self._routers = {name: f"{prefix}-{name}-nat" for name in NAMES}

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        for space in self._all():
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        ip("-n", self.relay, "link", "add", "br0", "type", "bridge")
        ip("-n", self.relay, "address", "add", f"{RELAY}/24", "dev", "br0")
        ip("-n", self.relay, "link", "set", "br0", "up")
        for number, name in enumerate(NAMES):
            self._connect(name, number)

    def _connect(self, name, number):
        member, router = self.members[name], self._routers[name]
        # Cables: member ─ router, and router ─ bridge.
        add = ("link", "add", "up0", "netns", member, "type", "veth", "peer", "name", "in0")
        ip(*add, "netns", router)
        port = f"port{number}"
        add = ("link", "add", "up0", "netns", router, "type", "veth", "peer", "name", port)
        ip(*add, "netns", self.relay)
        ip("-n", self.relay, "link", "set", port, "master", "br0", "up")
        # Each private network has the same addresses, as behind routers at home.
        for space, device, address in (
            (member, "up0", "192.168.1.2/24"),
            (router, "in0", "192.168.1.1/24"),
            (router, "up0", f"198.18.0.{10 + number}/24"),
        ):
            ip("-n", space, "address", "add", address, "dev", device)
            ip("-n", space, "link", "set", device, "up")
        ip("-n", member, "route", "add", "default", "via", "192.168.1.1")
        run_inside(router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        nat = "iptables -t nat -A POSTROUTING -o up0 -j MASQUERADE"
        new = "iptables -A FORWARD -i up0 -m conntrack --ctstate NEW -j DROP"
        only = f"iptables -A FORWARD -i in0 ! -d {RELAY} -j DROP"
        for rule in (nat, new, only):
            run_inside(router, *rule.split())

    def __exit__(self, *_):
        for space in self._all():
            ip("netns", "delete", space, check=False)

    def _all(self):
        return [self.relay, *self.members.values(), *self._routers.values()]


@pytest.fixture(scope="module")
def networks():
    """The networks, or the reason why this machine does not allow them."""
    for tool in ("ip", "iptables", "sysctl"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    try:
        with Networks() as found:
            yield found
    except subprocess.CalledProcessError as problem:
        pytest.skip(f"network namespaces are not allowed here: {problem.stderr.strip()}")


def reaches(space, address, port):
    """Whether a TCP connection can be opened from a namespace."""
    code = f"import socket; socket.create_connection(({address!r}, {port}), 1.0)"
    done = subprocess.run(
        inside(space, sys.executable, "-c", code), capture_output=True, check=False
    )
    return done.returncode == 0


@pytest.mark.slow
def test_members_behind_nat_train_to_the_end(networks, tmp_path):
    config = plan(FRESH, rounds=3, iterations=10, hidden=4, clients=3)
    home = relayed_federation(tmp_path / "home", config, NAMES)
    direct = twin(home, tmp_path / "direct")
    change_address(home.path, "r1", f"{RELAY}:{PORT}")
    processes = {}

    def start(space, name, *arguments):
        log = (tmp_path / f"{name}.log").open("wb")
        command = inside(space, sys.executable, "-m", "tacit", *map(str, arguments))
        processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.PIPE)

    try:
        start(networks.relay, "r1", "relay", home.path / "relays" / "r1", "--stop-at-eof")
        for number, name in enumerate(NAMES[:2]):
            start(networks.members[name], name, "node", home.node(name).path, "--stop-at-eof")
            # No one gets in, by the public address or by the private one.
            assert not reaches(networks.relay, f"198.18.0.{10 + number}", PORT)
            assert not reaches(networks.relay, "192.168.1.2", PORT)
        deadline = time.monotonic() + LONG
        while not reaches(networks.members["n0"], RELAY, PORT):
            assert time.monotonic() < deadline
        # The relay is all that a member can reach.
        assert not reaches(networks.members["n0"], "198.18.0.11", PORT)
        # Those that wait for the third can be queried.
        status = inside(networks.relay, sys.executable, "-m", "tacit", "federation", "status")
        command, told = [*status, home.path], ""
        while told.count("reached through the relay r1") < 2:
            assert time.monotonic() < deadline, told
            told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        start(networks.members["n2"], "n2", "node", home.node("n2").path, "--stop-at-eof")
        for name in NAMES:
            assert processes[name].wait(LONG) == 0, (tmp_path / f"{name}.log").read_text()[-2000:]
    finally:
        for process in processes.values():
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
    # The same as on one network, to the bit.
    for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True):
        change_address(direct.path, name, f"127.0.0.1:{port}")
    run_in_threads(direct)
    assert torch.equal(models(home), models(direct))
