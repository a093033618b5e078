"""Run all nodes of a federation as processes on this machine, for trials and tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tacit.peer.federation.folders import FederationFolder

STOP_TIMEOUT = 15.0  # seconds to save and end before a node is killed


@dataclass(frozen=True, eq=False)
class LocalNode:
    """The process of a node and its log file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def last_error(self) -> str:
        """The last error in the log, or its last line that is not JSON; "" if there is none."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        for line in reversed(lines):
            try:
                entry = json.loads(line)
            except ValueError:
                if line.strip():
                    return line.strip()
                continue
            if isinstance(entry, dict) and entry.get("level") == "error":
                return str(entry.get("why") or entry.get("event"))
        return ""


@dataclass(eq=False)
class LocalFederation:
    """The nodes of a federation as a context manager: started together, stopped together.

    The options are those of `tacit node`: {name} in `data` stands for a node's name, and `listen`
    has addresses by name.
    """

    folder: FederationFolder
    data: str | None = None
    save_seconds: float | None = None
    listen: Mapping[str, str] = field(default_factory=dict)
    allowed_code: Sequence[str] = ()
    transcript: str | None = None
    nodes: dict[str, LocalNode] = field(default_factory=dict, init=False)

    def __enter__(self) -> LocalFederation:
        try:
            for member in self.folder.members:
                self.start(member.name)
        except BaseException:
            # __exit__ is not called, so stop the nodes that have started.
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str) -> LocalNode:
        """Start one node, or restart one that has ended."""
        node = self.folder.node(name)
        node.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        # All nodes belong to the user who starts them.
        command = [sys.executable, "-m", "tacit", "node", str(node.path), "--share-scores"]
        # The pipe to the node is never written. It ends with this process, even if that is killed.
        command += ["--stop-at-eof"]
        if self.data is not None:
            command += ["--data", self.data.replace("{name}", name)]
        if self.save_seconds is not None:
            command += ["--save-every", str(self.save_seconds)]
        if name in self.listen:
            command += ["--listen", self.listen[name]]
        for code in self.allowed_code:
            command += ["--allow-code", code]
        if self.transcript is not None:
            command += ["--transcript", self.transcript]
        log = node.run / "log.jsonl"
        with log.open("ab") as stream:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                # More threads than cores would slow each other down by spinning.
                env={"OMP_NUM_THREADS": "1", **os.environ},
                start_new_session=True,
            )
        self.nodes[name] = LocalNode(name, process, log)
        return self.nodes[name]

    def failed(self) -> list[LocalNode]:
        """Nodes that ended with an error."""
        return [node for node in self.nodes.values() if node.process.poll() not in (None, 0)]

    @property
    def running(self) -> list[LocalNode]:
        return [node for node in self.nodes.values() if node.process.poll() is None]

    def wait(self, seconds: float) -> bool:
        """Wait until all nodes have ended or one has failed; return whether all succeeded."""
        deadline = time.monotonic() + seconds
        while self.running and not self.failed() and time.monotonic() < deadline:
            time.sleep(0.1)
        return not self.running and not self.failed()

    def stop(self) -> None:
        """Let all nodes save and end."""
        for node in self.running:
            node.process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT
        for node in self.nodes.values():
            try:
                node.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
            if node.process.stdin is not None:
                node.process.stdin.close()
