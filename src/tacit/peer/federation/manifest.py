"""The manifest of a federation: members, graph and configuration in one signed text."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tacit.config.earlier import from_earlier
from tacit.config.loading import make_config
from tacit.config.sections import GRAPH_FILE_KEYS, Config
from tacit.core.errors import Misuse, prefix_errors, unknown_name
from tacit.core.toml import to_toml
from tacit.peer.federation import roster
from tacit.peer.federation.absence import WAIT_FOREVER, AbsenceRules, roster_number
from tacit.peer.federation.graph_table import GraphTable, format_graph, graph_table, parse_graph
from tacit.peer.federation.roster import REMEDY, Member

if TYPE_CHECKING:
    from tacit.graph import Graph

FORMAT = "tacit-federation-1"
HEADER = {
    "format": str,
    "federation": str,
    "generation": int,
    "previous": str,
    "numbers": int,
    "left": list,
}
TABLES = {"member": list, "topology": dict, "config": dict}
ABSENCE = {"patience": str, "min_neighbours": int}
FEDERATION = re.compile(r"[a-z0-9][a-z0-9-]{0,31}-[0-9a-f]{8}")
DIGEST = re.compile(r"[0-9a-f]{64}")
MAX_BYTES = 16 * 2**20
TITLE = "# Manifest of a Tacit federation: members, graph, configuration. Signed: do not edit.\n"


@dataclass(frozen=True, eq=False)
class Manifest:
    """What the operator signed: `text`, and its parsed contents."""

    federation: str  # "<name>-<8 random hexadecimal digits>"
    generation: int  # 1, 2, …: one more for each change of the roster
    previous: str  # SHA-256 of the previous manifest in hexadecimal, "" for generation 1
    members: tuple[Member, ...]
    topology: GraphTable  # over positions in `members`
    config: Config
    next_number: int  # the number of the next node to join
    # Names of removed nodes. Their certificates may still be valid, so a name is reused only after
    # a revocation.
    former_members: tuple[str, ...]
    text: bytes
    absence: AbsenceRules = WAIT_FOREVER
    # Below: only of rosters that members agreed on. See tacit.peer.agreement.
    base: bytes = b""  # SHA-256 of the operator's manifest
    epoch: int = 0  # agreements since the operator's roster
    suspended: tuple[tuple[str, int], ...] = ()  # names and Unix times
    # Epochs in which suspended members came back; their models were older than those of the others.
    returned: tuple[tuple[str, int], ...] = ()

    @property
    def operator_hash(self) -> bytes:
        """SHA-256 of the manifest that the operator signed, on which members may have agreed."""
        return self.base or self.hash

    @property
    def number(self) -> int:
        """Identifies the roster within the federation; see `roster_order` for what is newer."""
        return roster_number(self.generation, self.epoch)

    @cached_property
    def graph(self) -> Graph:
        """The graph for computations; only reading a manifest does not import NumPy."""
        return self.topology.to_graph()

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 of the text, 32 bytes."""
        return hashlib.sha256(self.text).digest()

    @cached_property
    def sections(self) -> dict[str, str]:
        """A short digest of each section; it shows where the manifests of two nodes differ."""
        settings = self.config.as_dict()
        graph = settings.pop("graph")
        parts = {
            "roster": roster.format_members(self.members),
            "graph": format_graph(self.topology) + to_toml({"config.graph": graph}),
        }
        parts |= {name: to_toml({name: values}) for name, values in settings.items()}
        return {key: hashlib.sha256(part.encode()).hexdigest()[:16] for key, part in parts.items()}

    @cached_property
    def names(self) -> list[str]:
        """The members' names, in the order of their rows in the graph."""
        return [member.name for member in self.members]

    def position(self, name: str) -> int:
        """The row of a member in the graph."""
        if name not in self.names:
            raise unknown_name(f"{name!r} is not a member of {self.federation}.", name, self.names)
        return self.names.index(name)

    def member(self, name: str) -> Member:
        return self.members[self.position(name)]

    def in_neighbours(self, name: str) -> list[Member]:
        """Members that send to this one."""
        return [self.members[at] for at in self.topology.sources[self.position(name)]]

    def out_neighbours(self, name: str) -> list[Member]:
        """Members that this one sends to."""
        return [self.members[at] for at in self.topology.targets[self.position(name)]]

    def __repr__(self) -> str:
        return f"Manifest({self.federation}, generation {self.generation}, {self.names})"


def make_manifest(
    federation: str,
    generation: int,
    previous: str,
    members: Iterable[Member],
    graph: Graph,
    config: Config,
    next_number: int = 0,
    former_members: Iterable[str] = (),
    absence: AbsenceRules = WAIT_FOREVER,
) -> Manifest:
    """Write the text of a manifest and parse it, so that every reader sees the same contents.

    Args:
        federation: Name of the federation, with its digits.
        generation: Version of the roster, from 1.
        previous: SHA-256 of the previous manifest in hexadecimal, "" for generation 1.
        members: The members in the order of their numbers.
        graph: Mixing weights with one client per member.
        config: What the federation trains. Names of files are dropped, see `without_files`.
        next_number: The number of the next node to join, if it is above those of the members.
        former_members: Names of removed nodes.
        absence: What members do without others.
    """
    members = tuple(members)
    next_number = max([next_number, *(member.number + 1 for member in members)])
    roster.check_roster(members, generation, next_number)
    if graph.clients != len(members):
        problem = f"The graph has {graph.clients} clients, but there are {len(members)} members."
        raise Misuse(problem, "Use a graph with one client per member.")
    header = (FORMAT, federation, generation, previous, next_number, list(former_members))
    settings = without_files(config).as_dict()
    parts = [
        TITLE + roster.format_keys(dict(zip(HEADER, header, strict=True))),
        roster.format_members(members),
        f"[absence]\n{roster.format_keys(absence.as_dict())}",
        format_graph(graph_table(graph)),
        to_toml({f"config.{name}": values for name, values in settings.items()}),
    ]
    return parse_manifest("\n".join(parts).encode())


def without_files(config: Config) -> Config:
    """Drop names of files, which other machines do not have: [topology] holds their contents.

    A graph from a file becomes one of kind "edges". Edges in the configuration are dropped too,
    because [topology] has them.
    """
    values = config.as_dict()
    graph = values["graph"]
    if graph["kind"] in ("matrix", "edge-file", "edges"):
        mixing = "matrix" if graph["kind"] == "matrix" else graph["mixing"]
        graph = graph | {"kind": "edges", "mixing": mixing}
        graph.pop("edges", None)
    values["graph"] = {key: value for key, value in graph.items() if key not in GRAPH_FILE_KEYS}
    return make_config(values)


def with_addresses(manifest: Manifest, addresses: Mapping[str, str]) -> Manifest:
    """The manifest with other addresses of some members; its text and hash stay as signed."""
    if not addresses:
        return manifest
    members = tuple(
        replace(member, address=addresses.get(member.name, member.address))
        for member in manifest.members
    )
    roster.check_roster(members, manifest.generation, manifest.next_number)
    return replace(manifest, members=members)


def parse_manifest(text: bytes) -> Manifest:
    """Parse a manifest strictly; raise Misuse for any text that is not one."""
    if len(text) > MAX_BYTES:
        raise Misuse(f"The manifest has {len(text)} bytes, more than {MAX_BYTES}.", REMEDY)
    try:
        values = tomllib.loads(text.decode())
    # ValueError also for invalid UTF-8 and for numbers that are too long.
    except (ValueError, RecursionError) as problem:
        raise Misuse(f"The manifest is not TOML: {problem}.", REMEDY) from None
    try:
        with prefix_errors("The manifest"):
            return _from_values(values, text)
    except RecursionError:
        raise Misuse("The manifest is nested too deeply.", REMEDY) from None


def _from_values(values: dict[str, Any], text: bytes) -> Manifest:
    if values.get("format") != FORMAT:
        problem = f"format = {values.get('format')!r:.80} is not {FORMAT!r}."
        raise Misuse(problem, "Use the same version of tacit on all nodes.")
    # Manifests of earlier versions do not have it.
    absence = _parse_absence(values.pop("absence", WAIT_FOREVER.as_dict()))
    _, federation, generation, previous, next_number, former, tables, topology, settings = (
        roster.read_table(values, HEADER | TABLES, "at the top")
    )
    if not FEDERATION.fullmatch(federation):
        raise Misuse(f"federation = {federation!r} does not end in 8 hexadecimal digits.", REMEDY)
    is_digest = DIGEST.fullmatch(previous) is not None
    if generation < 1 or (previous if generation == 1 else not is_digest):
        raise Misuse(
            f"generation = {generation} does not go with previous = {previous!r}.",
            "Generation 1 has no previous manifest; later ones name it by its SHA-256.",
        )
    members = tuple(roster.parse_member(table) for table in tables)
    names = [member.name for member in members]
    if bad := [name for name in former if not isinstance(name, str) or name in names]:
        raise Misuse(f"left: {bad[0]!r:.80} is not the name of a removed node.", REMEDY)
    roster.check_roster(members, generation, next_number)
    graph, config = parse_graph(topology, len(members)), _parse_config(settings)
    return Manifest(
        federation,
        generation,
        previous,
        members,
        graph,
        config,
        next_number,
        tuple(former),
        text,
        absence,
    )


def _parse_absence(table: Any) -> AbsenceRules:
    return AbsenceRules(*roster.read_table(table, ABSENCE, "in [absence]"))


def _parse_config(values: dict[str, Any]) -> Config:
    config = make_config(from_earlier(values), origin="[config]")
    for key in GRAPH_FILE_KEYS:
        if getattr(config.graph, key, None) is not None:
            raise Misuse(f"config.graph.{key} names a file.", REMEDY)
    try:
        to_toml(config.as_dict())
    # TOML has dates, which configurations do not allow.
    except TypeError as problem:
        raise Misuse(f"[config]: {problem}.", REMEDY) from None
    return config
