"""Federations with members behind relays, and relays that spy or change what they forward."""

import random
import threading
from contextlib import contextmanager

from federations import free_ports, with_salts

from tacit.peer.federation.operator import create
from tacit.peer.federation.relay_changes import add_relay
from tacit.peer.federation.relays import RelayFolder
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.relay import relay as relay_module
from tacit.peer.relay.forwarding import Connection
from tacit.peer.relay.relay import RelayProcess
from tacit.peer.relay.server import RelayServer


def relayed_federation(folder, config, names, direct=(), relays=1):
    """A federation with the relays r1, r2, …; members that are not `direct` are behind them.

    Its nodes have drawn their salts, so that copies of it compute the same.
    """
    ports = iter(free_ports(len(names) + relays))
    nodes = {name: f"127.0.0.1:{next(ports)}" if name in direct else "outgoing" for name in names}
    home = create(folder, "clinics", nodes, config, min_neighbours=1)
    for number in range(1, relays + 1):
        add_relay(home.path, f"r{number}", f"127.0.0.1:{next(ports)}")
    return with_salts(home)


@contextmanager
def relay_in_thread(home, name="r1", server=RelayServer):
    """A relay as a thread of this process, with another kind of server."""
    folder = RelayFolder(home.path / "relays" / name)
    before, relay_module.RelayServer = relay_module.RelayServer, server
    log = (home.path / f"{name}.jsonl").open("a", encoding="utf-8")
    process = RelayProcess(folder, EventLog(log, name))
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        yield process
    finally:
        process.stop()
        thread.join()
        log.close()
        relay_module.RelayServer = before


class SpyingServer(RelayServer):
    """Shows everything that it forwards to a function, which may return something else."""

    def __init__(self, *arguments, show):
        super().__init__(*arguments)
        self._show = show

    async def _forward(self, tunnel, name):
        tunnel.caller = self._tapped(tunnel.caller)
        tunnel.member = self._tapped(tunnel.member)
        await super()._forward(tunnel, name)

    def _tapped(self, connection):
        return Connection(Tap(connection.reader, self._show), connection.writer)


class Tap:
    """A reader whose bytes go through a function."""

    def __init__(self, reader, show):
        self._reader, self._show = reader, show

    async def read(self, size):
        data = await self._reader.read(size)
        return self._show(data) if data else data


class Harm:
    """Changes some of the bytes that it sees, each time in another way.

    It does not make records of TLS longer or shorter: their receiver would wait for the rest, as
    for one that is late.
    """

    def __init__(self, seed, share):
        self._random, self._earlier = random.Random(seed), []
        self._ways = [self._flip, self._reorder, self._replay, self._inject]
        self.counts = dict.fromkeys((way.__name__ for way in self._ways), 0)
        self.share = share  # of the chunks

    def __call__(self, data):
        if len(data) < 100 or self._random.random() > self.share:
            self._earlier = [*self._earlier[-20:], data]
            return data
        way = self._ways[sum(self.counts.values()) % len(self._ways)]
        self.counts[way.__name__] += 1
        return way(data)

    def _flip(self, data):
        at = self._random.randrange(5, len(data))
        return data[:at] + bytes([data[at] ^ 1 << self._random.randrange(8)]) + data[at + 1 :]

    def _reorder(self, data):
        middle = len(data) // 2
        return data[middle:] + data[:middle]

    def _replay(self, data):
        return data + data

    def _inject(self, data):
        """Bytes of another moment, and maybe of another connection."""
        return self._random.choice(self._earlier or [data[::-1]]) + data
