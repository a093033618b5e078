"""Harm for tests: connections that break, processes that are left alone, and how to see what nodes make of it."""

import asyncio
import http.client
import io
import json
import multiprocessing
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager, suppress

import torch
from federations import models

from tacit.cli import main
from tacit.peer.federation.local_processes import LocalFederation, LocalNode
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node import Node, NodeOptions

NAMES = ["n0", "n1", "n2", "n3", "n4"]
FRESH = {
    "name": "lppa",
    "lr": 0.05,
    "fresh": True,
}  # new masks at every iteration: one missed, and all is noise

PIECE = 1 << 16  # bytes that a proxy passes on at a time
RESET = struct.pack("ii", 1, 0)  # close at once: whoever is at the other end hears of a reset
LONG = 240  # seconds: nothing takes so long unless it hangs


class Proxies:
    """A TCP proxy in front of each node, which harms what passes by seeded chance, or as it is told."""

    def __init__(self, ways, seed):
        """`ways` has for each name the port to listen on and the port to pass on to."""
        self.counts = Counter()
        self.harmful = False
        self._ways, self._chance = ways, random.Random(seed)
        self._refused = set()
        self._links = {name: set() for name in ways}
        self._loop = asyncio.new_event_loop()
        self._passing = {name: asyncio.Event() for name in ways}
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self):
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, *problem):
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self, names):
        """Let no byte to or from these nodes pass, with connections as they are: as if packets were lost."""
        self._do(self._hold(names))

    def refuse(self, names):
        """Reset all connections to these nodes, and all new ones at once."""
        self._do(self._refuse(names))

    def heal(self):
        """Let everything pass again."""
        self._do(self._heal())

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LONG)

    async def _listen(self):
        self._servers = [
            await asyncio.start_server(self._accepter(name), "127.0.0.1", front)
            for name, (front, _) in self._ways.items()
        ]
        await self._heal()

    async def _end(self):
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _hold(self, names):
        for name in names:
            self._passing[name].clear()

    async def _refuse(self, names):
        self._refused |= set(names)
        for link in [link for name in names for link in self._links[name]]:
            link.end("refused", reset=True)

    async def _heal(self):
        self._refused.clear()
        for passing in self._passing.values():
            passing.set()

    def _accepter(self, name):
        async def accept(reader, writer):
            try:
                if name in self._refused:
                    raise ConnectionRefusedError
                there = await asyncio.open_connection("127.0.0.1", self._ways[name][1])
            except OSError:
                self.counts["refused"] += 1
                _close(writer, reset=True)
                return
            link = Link(self, name, (reader, writer), there, self._chance)
            self._links[name].add(link)
            with suppress(OSError):
                await link.run()
            self._links[name].discard(link)
            link.end("ended", reset=False)

        return accept

    async def passed(self, name):
        """Come back when bytes pass, perhaps late."""
        await self._passing[name].wait()
        if self.harmful and self._chance.random() < 0.03:
            self.counts["delayed"] += 1
            await asyncio.sleep(self._chance.uniform(0.005, 0.05))


class Link:
    """One connection through a proxy: it lives for so many bytes of harmful times, then it is reset or cut off."""

    def __init__(self, proxies, name, here, there, chance):
        self._proxies, self._name, self._here, self._there = proxies, name, here, there
        self._left = int(
            10 ** chance.uniform(3.3, 6.0)
        )  # in the handshake of TLS, or many letters later
        self._reset = chance.random() < 0.5
        self._over = False

    async def run(self):
        """Pass bytes on in both directions until one of them ends."""
        pumps = [
            asyncio.ensure_future(self._pump(self._here[0], self._there[1])),
            asyncio.ensure_future(self._pump(self._there[0], self._here[1])),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, source, sink):
        while data := await source.read(PIECE):
            await self._proxies.passed(self._name)
            if self._proxies.harmful and len(data) >= self._left:
                sink.write(data[: self._left])
                await sink.drain()
                return self.end("reset" if self._reset else "truncated", self._reset)
            if self._proxies.harmful:
                self._left -= len(data)
            sink.write(data)
            await sink.drain()
        return None

    def end(self, how, reset):
        """Close both ends, once."""
        if not self._over:
            self._over = True
            self._proxies.counts[how] += 1
            for _, writer in (self._here, self._there):
                _close(writer, reset)


def _close(writer, reset):
    """End a connection: what was written before goes out first, unless it is reset."""
    if reset:
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
    else:
        writer.close()


class ForkedFederation(LocalFederation):
    """The same processes, forked from one that has imported everything: they start at once."""

    def start(self, name, environment=None):
        """Start one node by the command line, anew if it had ended."""
        node = self._folder.node(name)
        node.run.mkdir(parents=True, exist_ok=True)
        words = ["node", str(node.path)]
        words += [] if self._data is None else ["--data", self._data.replace("{name}", name)]
        words += [] if self._save_seconds is None else ["--save-every", str(self._save_seconds)]
        words += ["--listen", self._listen[name]] if name in self._listen else []
        log = node.run / "log.jsonl"
        self.nodes[name] = LocalNode(name, Forked(words, log), log)
        return self.nodes[name]


class Forked:
    """A forked process that can be handled like one of subprocess."""

    def __init__(self, words, log):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tacit.peer.node.node", "tacit.cli.app", "chaos"])
        self._process = context.Process(target=_be_command, args=(words, str(log)))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        """How it has ended, if it has."""
        return self._process.exitcode

    def poll(self):
        """How it has ended, if it has."""
        return self._process.exitcode

    def wait(self, seconds=None):
        """Wait until it has ended, and how."""
        self._process.join(seconds)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("tacit", seconds)
        return self.returncode

    def send_signal(self, number):
        """Send it a signal, if it still runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self):
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _be_command(words, log):
    """What `tacit` with these words does, with its output in a file."""
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    sys.argv = ["tacit", *words]
    main()


def threads(home, clock=time.time):
    """Run all nodes of a federation as threads of this process; what they logged, by name."""
    logs = {member.name: io.StringIO() for member in home.manifest().members}
    nodes = [
        Node(home.node(name), NodeOptions(), EventLog(log, name, clock)) for name, log in logs.items()
    ]

    def live(node):
        torch.set_num_threads(1)  # of this thread: as in the processes that this is compared with
        node.run()

    lives = [threading.Thread(target=live, args=(node,), daemon=True) for node in nodes]
    for node, life in zip(nodes, lives, strict=True):
        life.start()
        # One after the other: a first model is drawn from a stream of torch that all threads of a process share.
        _until_begun(node, life)
    until(lambda: not any(life.is_alive() for life in lives), "all nodes have ended")
    return {name: log.getvalue() for name, log in logs.items()}


def _until_begun(node, life):
    until(lambda: node.state is not None or not life.is_alive(), f"{node.name} has a model")


def undisturbed(home):
    """The models [N, P] that a federation ends with when all goes well."""
    threads(home)
    return models(home)


@contextmanager
def frozen(node):
    """A process that does nothing at all meanwhile, with its connections as they are."""
    node.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.process.send_signal(signal.SIGCONT)


def until(condition, what):
    """Wait until a condition holds, and return what it returned; give up when that takes very long."""
    limit = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < limit, f"waited too long until {what}"
        time.sleep(0.02)
    return found


def asked(home, name, page="status"):
    """What the monitor of a node says on a page; None if the node does not run."""
    try:
        port = json.loads((home.node(name).run / "ports.json").read_text())["metrics"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
            text = answer.read()
    except urllib.error.HTTPError as answer:  # health says 503 when there is a problem
        text = answer.read()
    except (OSError, ValueError, http.client.HTTPException):
        return None
    said = text.decode() if page == "metrics" else json.loads(text)
    # After a crash the port in the file may be that of another node by now.
    return said if page != "status" or said["name"] == name else None


def step_of(home, name):
    """How many iterations a node has done; −1 if it does not run."""
    said = asked(home, name)
    return -1 if said is None else said["step"]


def until_step(home, step, names=NAMES):
    """Wait until nodes have done so many iterations."""
    until(
        lambda: all(step_of(home, name) >= step for name in names),
        f"{names} are at iteration {step}",
    )


def logged(home, name, event):
    """The lines of a node's log about an event."""
    found = []
    for line in (home.node(name).run / "log.jsonl").read_text(errors="replace").splitlines():
        with suppress(ValueError):
            said = json.loads(line)
            found += [said] if said.get("event") == event else []
    return found


def metric(home, name, series):
    """The number that the monitor of a node gives for a series without labels; 0 if there is none."""
    lines = (asked(home, name, "metrics") or "").splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{series} ")), 0.0)
