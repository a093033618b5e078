"""The manifest of a federation: who takes part, who sends to whom, and what is trained; one text that all agree on."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tacit.config.options import prefix_errors
from tacit.config.loading import make_config
from tacit.config.sections import GRAPH_FILE_KEYS, Config
from tacit.config.toml import to_toml
from tacit.core.errors import Misuse, unknown_name
from tacit.graph import Graph
from tacit.peer.federation.manifest_toml import (
    REMEDY,
    get,
    keys,
    read_graph,
    read_member,
    refuse_others,
    roster_text,
    topology_text,
    whole,
)
from tacit.peer.federation.roster import Member, check_roster, next_number

__all__ = ["Manifest", "Member", "compose", "parse", "spelled_out"]

FORMAT = "tacit-federation-1"
HEAD = ["format", "federation", "generation", "previous", "numbers", "left"]
PARTS = ["member", "topology", "config"]
LARGEST = 16 * 2**20  # bytes
TITLE = "# A federation of tacit: who takes part, who sends to whom, what is trained. Signed: do not edit.\n"


@dataclass(frozen=True, eq=False)
class Manifest:
    """What the operator signed; `text` is what is hashed, and the rest is what it says."""

    federation: str  # "<name>-<8 random hexadecimal digits>"
    generation: int  # 1, 2, …: counted up by every change of the roster
    previous: str  # SHA-256 of the manifest before in hexadecimal, "" at first
    members: tuple[Member, ...]
    graph: Graph  # over positions in `members`
    config: Config
    numbers: int  # how many numbers were ever given to members: the next joiner gets this one
    left: tuple[
        str, ...
    ]  # names of those who left: never given again, because their certificates may still be valid
    text: bytes

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 of the text, 32 bytes."""
        return hashlib.sha256(self.text).digest()

    def sections(self) -> dict[str, str]:
        """A short digest of each part, by which two nodes find out where their manifests differ."""
        return dict(self._sections)

    @cached_property
    def _sections(self) -> dict[str, str]:
        settings = self.config.as_dict()
        made = settings.pop("graph")
        parts = {
            "roster": roster_text(self.members),
            "graph": topology_text(self.graph) + to_toml({"config.graph": made}),
        }
        parts |= {name: to_toml({name: values}) for name, values in settings.items()}
        return {
            name: hashlib.sha256(part.encode()).hexdigest()[:16] for name, part in parts.items()
        }

    def position(self, name: str) -> int | None:
        """The row of a member in the graph, None if there is no such member."""
        return next((at for at, member in enumerate(self.members) if member.name == name), None)

    def member(self, name: str) -> Member:
        """The member of a name."""
        return self.members[self._position(name)]

    def in_neighbours(self, name: str) -> list[Member]:
        """Those who send to a member."""
        edges = self.graph.edges
        return [self.members[at] for at in edges[edges[:, 1] == self._position(name), 0]]

    def out_neighbours(self, name: str) -> list[Member]:
        """Those to whom a member sends."""
        edges = self.graph.edges
        return [self.members[at] for at in edges[edges[:, 0] == self._position(name), 1]]

    def _position(self, name: str) -> int:
        at = self.position(name)
        if at is None:
            names = [member.name for member in self.members]
            raise unknown_name(f"{name!r} is not a member of {self.federation}.", name, names)
        return at

    def __repr__(self) -> str:
        return f"Manifest({self.federation}, generation {self.generation}, {len(self.members)} members)"


def compose(
    federation: str,
    generation: int,
    previous: str,
    members: Iterable[Member],
    graph: Graph,
    config: Config,
    numbers: int | None = None,
    left: Iterable[str] = (),
) -> Manifest:
    """The manifest that says all this; `numbers` and `left` are needed once somebody has left."""
    members = tuple(members)
    numbers = next_number(members) if numbers is None else numbers
    check_roster(federation, generation, previous, members, numbers)
    if graph.clients != len(members):
        raise Misuse(
            f"The graph is for {graph.clients} clients, and there are {len(members)} members.",
            "Give one client for each member.",
        )
    head = dict(
        zip(HEAD, (FORMAT, federation, generation, previous, numbers, list(left)), strict=True)
    )
    settings = {f"config.{name}": values for name, values in spelled_out(config).as_dict().items()}
    parts = [TITLE + keys(head), roster_text(members), topology_text(graph), to_toml(settings)]
    return parse("\n".join(parts).encode())  # so that what is signed is what the others will read


def spelled_out(config: Config) -> Config:
    """Without names of files, which mean nothing on another machine: [topology] has what was in them.

    A graph from a file becomes one of kind "edges"; so does one that was given by its edges, which are not said twice.
    """
    plain = config.as_dict()
    graph = plain["graph"]
    if graph["kind"] in ("matrix", "edge-file", "edges"):
        mixing = "matrix" if graph["kind"] == "matrix" else graph["mixing"]
        graph = graph | {"kind": "edges", "mixing": mixing}
        graph.pop("edges", None)
    plain["graph"] = {key: value for key, value in graph.items() if key not in GRAPH_FILE_KEYS}
    return make_config(plain)


def parse(text: bytes) -> Manifest:
    """The manifest that a text is, refused when it is not one to the last key."""
    if len(text) > LARGEST:
        raise Misuse(f"The manifest has {len(text)} bytes, more than {LARGEST}.", REMEDY)
    try:
        values = tomllib.loads(text.decode())
    except (
        ValueError,
        RecursionError,
    ) as problem:  # also of bytes, of long numbers, and of deep nesting
        raise Misuse(f"The manifest is not TOML: {problem}.", REMEDY) from None
    try:
        with prefix_errors("The manifest"):
            return _manifest(values, text)
    except RecursionError:
        raise Misuse("The manifest is nested too deeply.", REMEDY) from None


def _manifest(values: dict[str, Any], text: bytes) -> Manifest:
    if values.get("format") != FORMAT:
        raise Misuse(
            f"format = {values.get('format')!r:.80} is not {FORMAT!r}.",
            "Use the same version of tacit.",
        )
    refuse_others(values, HEAD + PARTS, "at the top")
    federation, previous = get(values, "federation", str), get(values, "previous", str)
    generation, numbers = whole(values, "generation"), whole(values, "numbers")
    members = tuple(read_member(table) for table in get(values, "member", list))
    left = tuple(get(values, "left", list))
    if bad := [
        name for name in left if not isinstance(name, str) or name in {one.name for one in members}
    ]:
        raise Misuse(f"left: {bad[0]!r:.80} is not the name of one who left.", REMEDY)
    check_roster(federation, generation, previous, members, numbers)
    graph = read_graph(get(values, "topology", dict), len(members))
    config = _config(get(values, "config", dict))
    return Manifest(federation, generation, previous, members, graph, config, numbers, left, text)


def _config(values: dict[str, Any]) -> Config:
    config = make_config(values, origin="[config]")
    named = [key for key in GRAPH_FILE_KEYS if getattr(config.graph, key, None) is not None]
    if named:
        raise Misuse(f"config.graph.{named[0]} names a file.", REMEDY)
    try:
        to_toml(config.as_dict())
    except TypeError as problem:  # TOML has dates, configurations have not
        raise Misuse(f"[config]: {problem}.", REMEDY) from None
    return config
