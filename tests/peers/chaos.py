"""Fault injection for federations of real processes, and ways to observe them."""

import asyncio
import faulthandler
import http.client
import io
import json
import os
import random
import resource
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
from pathlib import Path

import torch
from federations import die_with_parent, forkserver, free_ports, models

from tacit.cli import main
from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.federation.local_processes import LocalFederation, LocalNode
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node import Node, NodeOptions

NAMES = ["n0", "n1", "n2", "n3", "n4"]
# New masks at every iteration: if a node missed one, its model would be noise.
FRESH = {"name": "lppa", "lr": 0.05, "fresh": True}
LONG = 240  # seconds: nothing takes this long unless it hangs

SHOW_THREADS = signal.SIGUSR2  # makes a forked node write what its threads do into its log
PROXY_BYTES = 1 << 16  # forwarded at a time
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a TCP reset


class Proxies:
    """A TCP proxy in front of each node that breaks connections at random, or on command.

    `counts` has the faults by kind, `forwarded` the bytes that went "to" or "from" each node.
    """

    def __init__(self, ports, seed):
        """`ports` has for each name the port to listen on and the port to forward to."""
        self.counts, self.forwarded = Counter(), Counter()
        self.harmful = False
        self._ports, self._random = ports, random.Random(seed)
        self._refused = set()
        self._links = {name: set() for name in ports}
        self._loop = asyncio.new_event_loop()
        self._flowing = {name: asyncio.Event() for name in ports}
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

    def hold(self, names):
        """Forward no bytes to or from these nodes, as if all packets were lost."""
        self._run(self._hold(names))

    def refuse(self, names):
        """Reset all connections to these nodes, and refuse new ones."""
        self._run(self._refuse(names))

    def heal(self):
        """Forward everything again."""
        self._run(self._heal())

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LONG)

    async def _listen(self):
        self._servers = [
            await asyncio.start_server(self._accepter(name), "127.0.0.1", front)
            for name, (front, _) in self._ports.items()
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
            self._flowing[name].clear()

    async def _refuse(self, names):
        self._refused |= set(names)
        for link in [link for name in names for link in self._links[name]]:
            link.end("refused", reset=True)

    async def _heal(self):
        self._refused.clear()
        for flowing in self._flowing.values():
            flowing.set()

    def _accepter(self, name):
        async def accept(reader, writer):
            try:
                if name in self._refused:
                    raise ConnectionRefusedError
                back = await asyncio.open_connection("127.0.0.1", self._ports[name][1])
            except OSError:
                self.counts["refused"] += 1
                _close(writer, reset=True)
                return
            link = Link(self, name, (reader, writer), back, self._random)
            self._links[name].add(link)
            with suppress(OSError):
                await link.run()
            self._links[name].discard(link)
            link.end("ended", reset=False)

        return accept

    async def wait_to_forward(self, name):
        """Return when bytes may be forwarded, sometimes with a delay."""
        await self._flowing[name].wait()
        if self.harmful and self._random.random() < 0.03:
            self.counts["delayed"] += 1
            await asyncio.sleep(self._random.uniform(0.005, 0.05))


def ports_behind_proxies(home):
    """For each node the port of its address and another one, where it listens behind a proxy.

    Returns:
        Ports for `Proxies`, and the addresses at which the nodes listen.
    """
    fronts = [int(member.address.rpartition(":")[2]) for member in home.members]
    backs = free_ports(len(fronts))
    names = [member.name for member in home.members]
    listen = {name: f"127.0.0.1:{port}" for name, port in zip(names, backs, strict=True)}
    return dict(zip(names, zip(fronts, backs, strict=True), strict=True)), listen


class Link:
    """One connection through a proxy; after a random number of bytes it is reset or truncated."""

    def __init__(self, proxies, name, front, back, rng):
        self._proxies, self._name, self._front, self._back = proxies, name, front, back
        # Some links break within the TLS handshake, others after many messages.
        self._left = int(10 ** rng.uniform(3.3, 6.0))
        self._reset = rng.random() < 0.5
        self._over = False

    async def run(self):
        """Forward bytes in both directions until one of them ends."""
        pumps = [
            asyncio.ensure_future(self._pump(self._front[0], self._back[1], "to")),
            asyncio.ensure_future(self._pump(self._back[0], self._front[1], "from")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, source, sink, direction):
        while data := await source.read(PROXY_BYTES):
            await self._proxies.wait_to_forward(self._name)
            if self._proxies.harmful and len(data) >= self._left:
                sink.write(data[: self._left])
                await sink.drain()
                return self.end("reset" if self._reset else "truncated", self._reset)
            if self._proxies.harmful:
                self._left -= len(data)
            self._proxies.forwarded[direction, self._name] += len(data)
            sink.write(data)
            await sink.drain()
        return None

    def end(self, how, reset):
        """Close both connections, once."""
        if not self._over:
            self._over = True
            self._proxies.counts[how] += 1
            for _, writer in (self._front, self._back):
                _close(writer, reset)


def _close(writer, reset):
    """Close a connection; a reset discards what was written before."""
    if reset:
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
    else:
        writer.close()


class ForkedFederation(LocalFederation):
    """The nodes are forked from a process that has imported everything, so they start at once."""

    def start(self, name):
        node = self.folder.node(name)
        node.run.mkdir(parents=True, exist_ok=True)
        arguments = ["node", str(node.path), "--share-scores"]
        arguments += [] if self.data is None else ["--data", self.data.replace("{name}", name)]
        arguments += [] if self.save_seconds is None else ["--save-every", str(self.save_seconds)]
        arguments += ["--listen", self.listen[name]] if name in self.listen else []
        arguments += [] if self.transcript is None else ["--transcript", self.transcript]
        log = node.run / "log.jsonl"
        self.nodes[name] = LocalNode(name, ForkedCommand(arguments, log), log)
        return self.nodes[name]

    def ends_of_logs(self, lines=60):
        """The last lines of every node's log, with what its threads do if it runs."""
        for node in self.nodes.values():
            node.process.send_signal(SHOW_THREADS)
        time.sleep(1)
        found = []
        for node in self.nodes.values():
            found += [f"--- {node.name}"]
            found += node.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(found)


class ForkedCommand:
    """`tacit` with arguments in a forked process, with the interface of subprocess.Popen.

    `files` limits how many files it may open.
    """

    stdin = None

    def __init__(self, arguments, log, files=None):
        self._process = forkserver().Process(
            target=_run_command, args=(arguments, str(log), files), daemon=True
        )
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, seconds=None):
        self._process.join(seconds)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("tacit", seconds)
        return self.returncode

    def send_signal(self, number):
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _run_command(arguments, log, files):
    die_with_parent()
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.register(SHOW_THREADS)
    torch.set_num_threads(1)
    sys.argv = ["tacit", *arguments]
    main()


def kill_tree(process):
    """Kill a process, if it runs, and all processes that it has started."""
    if process.poll() is not None:
        return
    pids = [process.pid]
    for pid in pids:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def run_in_threads(home, clock=time.time, data=None, transcript=None):
    """Run all nodes of a federation as threads of this process; return their logs by name.

    {name} in `data` stands for a node's name; `transcript` is the size of what they keep.
    """
    logs = {member.name: io.StringIO() for member in home.members}
    nodes = []
    for name, log in logs.items():
        own_data = None if data is None else data.replace("{name}", name)
        options = NodeOptions(own_data, transcript=transcript)
        nodes.append(Node(home.node(name), options, EventLog(log, name, clock)))
    lock = threading.Lock()

    def run(node):
        torch.set_num_threads(1)  # per thread, as in the processes that this is compared with
        start = node._start

        # One after the other: first models are drawn from torch's generator, which threads share.
        def start_alone(context):
            with lock:
                start(context)

        node._start = start_alone
        node.run()

    threads = [threading.Thread(target=run, args=(node,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    until(lambda: not any(thread.is_alive() for thread in threads), "all nodes have ended")
    return {name: log.getvalue() for name, log in logs.items()}


def undisturbed(home):
    """The final models [N, P] of a federation without faults."""
    run_in_threads(home)
    return models(home)


def kill(running, victims):
    """Kill nodes and restart them."""
    for name in victims:
        running.nodes[name].process.kill()
    for name in victims:
        code = running.nodes[name].process.wait()
        assert code == -signal.SIGKILL, "training ended before all were killed"
        running.start(name)


@contextmanager
def frozen(node):
    """Stop a process for the time of the block, with its connections open."""
    node.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.process.send_signal(signal.SIGCONT)


def announce(operator, manifest):
    """Send the operator's newest manifest and log to the members of a manifest."""
    client = FederationClient(manifest, operator.operator_credentials(), operator.ca())
    try:
        return client.announce(*operator.signed_update())
    finally:
        client.close()


def until_status(home, condition, running):
    """Wait until all members answer the operator and their statuses meet a condition."""
    client = FederationClient(home.manifest(), home.operator_credentials(), home.ca())

    def all_meet_it():
        assert not running.failed(), [node.last_error() for node in running.failed()]
        found = [report.status for report in client.status(2.0)]
        return all(status is not None and condition(status) for status in found)

    try:
        until(all_meet_it, "all members meet a condition")
    finally:
        client.close()


def until(condition, what):
    """Wait until a condition holds and return its value; fail after a long time."""
    deadline = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited too long until {what}"
        time.sleep(0.02)
    return found


def monitored(home, name, page="status"):
    """A page of a node's monitoring server; None if the node does not run."""
    try:
        port = json.loads((home.node(name).run / "ports.json").read_text())["metrics"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
            text = answer.read()
    except urllib.error.HTTPError as answer:  # /health answers 503 if there is a problem
        text = answer.read()
    except (OSError, ValueError, http.client.HTTPException):
        return None
    found = text.decode() if page == "metrics" else json.loads(text)
    # After a crash, another node may have the port in the file.
    return found if page != "status" or found["name"] == name else None


def step_of(home, name):
    """The iterations that a node has done; −1 if it does not run."""
    status = monitored(home, name)
    return -1 if status is None else status["step"]


def until_step(home, step, names=NAMES):
    """Wait until nodes have done this many iterations."""
    until(
        lambda: all(step_of(home, name) >= step for name in names),
        f"{names} are at iteration {step}",
    )


def logged(home, name, event):
    """The lines about an event in a node's log, which may have truncated lines."""
    found, log = [], home.node(name).run / "log.jsonl"
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        with suppress(ValueError):
            entry = json.loads(line)
            found += [entry] if entry.get("event") == event else []
    return found


def metric(home, name, series):
    """A metric without labels from a node's monitoring server; 0 if there is none."""
    lines = (monitored(home, name, "metrics") or "").splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{series} ")), 0.0)


def until_logged(home, name, event, count=1):
    """The lines about an event in a node's log, as soon as there are so many."""

    def enough():
        found = logged(home, name, event)
        return found if len(found) >= count else None

    return until(enough, f"{name} logs {event!r}")


def unhealthy(home, name):
    """The reason why a node reports that it is not healthy."""
    health = monitored(home, name, "health")
    assert not health["healthy"]
    return health["reason"]
