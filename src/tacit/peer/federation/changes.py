"""Changing a federation: a node joins, a node leaves. Each change is a new generation, signed by the operator.

The one moment that counts is when the operator's federation.toml is replaced: before it nothing has changed, after
it the nodes' copies follow, now or with the next command. (Were the nodes' copies first, a crash in between could lead
to two rosters of one generation, both signed.)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, write_private
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.graph import check_plan, next_graph
from tacit.peer.federation.identity import (
    Credentials,
    check_days,
    issue,
    mask_public,
    new_mask_key,
    request,
)
from tacit.peer.federation.manifest import Manifest, Member, compose
from tacit.peer.federation.roster import check_address, check_name


def add(
    folder: Path,
    name: str,
    address: str,
    *,
    edges: Sequence[str] | None = None,
    days: int = 365,
    authority: Credentials | None = None,
) -> Manifest:
    """Let a node join: a new folder for it, and a new roster for all.

    `edges` such as "a:b" are needed where the graph is not of a kind that is made for any number of nodes.
    `authority` is needed where it is somebody else's; without it, a request for a certificate is written.
    """
    home = FederationFolder(folder)
    check_name(name)
    check_address(address)
    check_days(days)
    with file_lock(_existing(folder)):
        home.distribute()
        before, signer = home.manifest(), home.signer(authority)
        if before.position(name) is not None:
            raise Misuse(f"{name} is a member already.", "Choose another name, or remove it first.")
        if name in before.left:
            raise Misuse(
                f"{name} was a member before, and whoever has its certificate would pass for the new one.",
                f"Choose another name, e.g. {name}-2.",
            )
        secret = new_mask_key()
        joiner = Member(name, address, before.numbers, mask_public(secret), before.generation + 1)
        after = _following(before, (*before.members, joiner), edges, name)
        shutil.rmtree(
            home.node(name).path, ignore_errors=True
        )  # left by a crash: nobody has had this name
        equip(home, name, secret, before.federation, signer, days)
        home.publish(after)
    return after


def remove(folder: Path, name: str, *, edges: Sequence[str] | None = None) -> Manifest:
    """Let a node go: a new roster without it. Its folder stays, and is told too."""
    home = FederationFolder(folder)
    with file_lock(_existing(folder)):
        home.distribute()
        before = home.manifest()
        gone = before.member(name)
        stay = [member for member in before.members if member != gone]
        after = _following(before, stay, edges, name, left=(*before.left, name))
        home.publish(after)
    return after


def _following(
    before: Manifest,
    members: Sequence[Member],
    edges: Sequence[str] | None,
    changed: str,
    left: Sequence[str] | None = None,
) -> Manifest:
    """The manifest of the next generation, refused when its graph does not suit the algorithm."""
    if len(members) < 2:
        raise Misuse(
            f"Without {changed} one node is left, and cannot learn together.", "Add another first."
        )
    graph, config = next_graph(before, [member.name for member in members], edges)
    check_plan(config, graph)
    numbers = max(before.numbers, *(member.number + 1 for member in members))
    generation, previous = before.generation + 1, before.hash.hex()
    left = before.left if left is None else left
    return compose(before.federation, generation, previous, members, graph, config, numbers, left)


def equip(
    home: FederationFolder,
    name: str,
    mask_secret: bytes,
    federation: str,
    authority: Credentials | None,
    days: int,
) -> None:
    """Make the folder to hand out to a node, all but the manifest; it appears in one step."""
    place = home.node(name).path
    aside = place.with_name(f".{name}.new")
    shutil.rmtree(aside, ignore_errors=True)  # left by a crash; nobody has seen those keys
    aside.mkdir(mode=0o700, parents=True)
    write_private(aside / "mask.key", f"{mask_secret.hex()}\n".encode())
    write_identity(aside, "node", name, federation, authority, days)
    (aside / "ca.pem").write_bytes(home.ca())
    operator = home.path / "operator" / "operator.pem"
    if operator.exists():
        (aside / "operator.pem").write_bytes(operator.read_bytes())
    os.rename(aside, place)


def write_identity(
    place: Path, file: str, name: str, federation: str, authority: Credentials | None, days: int
) -> None:
    """A new key with its certificate; without an authority's key, with a request for one."""
    if authority is not None:
        made = issue(authority, name, federation, days)
        (place / f"{file}.pem").write_bytes(made.certificate)
        write_private(place / f"{file}.key", made.key)
    else:
        asked, key = request(name, federation)
        (place / f"{file}.csr").write_bytes(asked)
        write_private(place / f"{file}.key", key)


def _existing(folder: Path) -> Path:
    if not (folder / "federation.toml").is_file():
        raise Misuse(
            f"{folder} is not the folder of a federation.", "Make one: tacit federation create."
        )
    return folder
