"""A loopback forwarder in front of each node that can divide the network."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

PIECE = 1 << 16  # bytes forwarded at a time
SECONDS = 60


class DividedNetwork:
    """Forwards connections between nodes of one side, and resets all others.

    Every node connects from this machine, so the kernel's tables say which process it is.
    """

    def __init__(self, ports):
        """`ports` has for each name the port to listen on and the port to forward to."""
        self.pids = {}  # of the nodes, by name; set them when they have started
        self._ports, self._sides = ports, [set(ports)]
        self._links = {}  # (source, target) → writers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self):
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_):
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def divide(self, *sides):
        """Cut all connections between these sides, the operator's too."""
        self._run(self._divide([set(side) for side in sides]))

    def heal(self):
        self.divide(self._ports)

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS)

    async def _listen(self):
        self._servers = [
            await asyncio.start_server(self._accepter(name), "127.0.0.1", front)
            for name, (front, _) in self._ports.items()
        ]

    async def _end(self):
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _divide(self, sides):
        self._sides = sides
        for (source, target), writers in list(self._links.items()):
            if not self._may_talk(source, target):
                for writer in writers:
                    writer.transport.abort()

    def _may_talk(self, source, target):
        return any(source in side and target in side for side in self._sides)

    def _accepter(self, name):
        async def accept(reader, writer):
            port = writer.get_extra_info("peername")[1]
            source = self._owner(port)
            if not self._may_talk(source, name):
                writer.transport.abort()
                return
            try:
                back = await asyncio.open_connection("127.0.0.1", self._ports[name][1])
            except OSError:
                writer.transport.abort()
                return
            links = self._links.setdefault((source, name), set())
            links |= {writer, back[1]}
            # The network may have been divided while this connection was made.
            if not self._may_talk(source, name):
                for end in (writer, back[1]):
                    end.transport.abort()
            await asyncio.gather(_pump(reader, back[1]), _pump(back[0], writer))
            links -= {writer, back[1]}

        return accept

    def _owner(self, port):
        """The node whose process has a connection from this port; None if it is no node."""
        sockets = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with suppress(OSError):
                for line in Path(table).read_text().splitlines()[1:]:
                    fields = line.split()
                    if int(fields[1].rpartition(":")[2], 16) == port:
                        sockets.add(f"socket:[{fields[9]}]")
        for name, pid in self.pids.items():
            with suppress(OSError):
                for file in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):
                        if str(file.readlink()) in sockets:
                            return name
        return None


async def _pump(source, sink):
    with suppress(OSError):
        while data := await source.read(PIECE):
            sink.write(data)
            await sink.drain()
    sink.transport.abort()
