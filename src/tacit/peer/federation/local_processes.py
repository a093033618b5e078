"""All nodes of a federation as processes of this machine: for trying out, and for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tacit.peer.federation.operator import FederationFolder, NodeFolder

GRACE = 15.0  # seconds to save and end in, before a node is killed


@dataclass(frozen=True, eq=False)
class LocalNode:
    """A node that runs here, and where its log goes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def last_words(self) -> str:
        """What it logged last that was no routine."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        for line in reversed(lines):
            try:
                said = json.loads(line)
            except ValueError:
                if line.strip():
                    return line.strip()
                continue
            if isinstance(said, dict) and said.get("level") == "error":
                return str(said.get("why") or said.get("event"))
        return ""


class LocalFederation:
    """The nodes of a federation, started together and stopped together."""

    def __init__(
        self,
        folder: FederationFolder,
        data: str | None = None,
        save_seconds: float | None = None,
        listen: Mapping[str, str] | None = None,
    ) -> None:
        """`data` is the option of each node, {name} standing for its name; `listen` says where nodes listen.

        Only nodes that are to be reached at another address than the one in the roster need `listen`.
        """
        self._folder, self._data, self._save_seconds = folder, data, save_seconds
        self._listen = listen or {}
        self.nodes: dict[str, LocalNode] = {}

    def __enter__(self) -> LocalFederation:
        try:
            for member in self._folder.manifest().members:
                self.start(member.name)
        except BaseException:
            self.stop()  # those that were started: nobody else would
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, name: str, environment: Mapping[str, str] | None = None) -> LocalNode:
        """Start one node, anew if it had ended."""
        node: NodeFolder = self._folder.node(name)
        node.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tacit", "node", str(node.path)]
        if self._data is not None:
            command += ["--data", self._data.replace("{name}", name)]
        if self._save_seconds is not None:
            command += ["--save-every", str(self._save_seconds)]
        if name in self._listen:
            command += ["--listen", self._listen[name]]
        log = node.run / "log.jsonl"
        # Several processes on a few cores: threads that wait for each other by spinning would slow all of them down.
        own = {"OMP_NUM_THREADS": "1", **os.environ, **(environment or {})}
        with log.open("ab") as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=own,
                start_new_session=True,
            )
        self.nodes[name] = LocalNode(name, process, log)
        return self.nodes[name]

    def failed(self) -> list[LocalNode]:
        """Nodes that ended with an error."""
        return [node for node in self.nodes.values() if node.process.poll() not in (None, 0)]

    @property
    def running(self) -> list[LocalNode]:
        """Nodes that have not ended."""
        return [node for node in self.nodes.values() if node.process.poll() is None]

    def wait(self, seconds: float) -> bool:
        """Wait until all have ended, or one has failed; whether all ended well."""
        limit = time.monotonic() + seconds
        while self.running and not self.failed() and time.monotonic() < limit:
            time.sleep(0.1)
        return not self.running and not self.failed()

    def stop(self) -> None:
        """Let all save and end."""
        for node in self.running:
            node.process.terminate()
        limit = time.monotonic() + GRACE
        for node in self.nodes.values():
            try:
                node.process.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
