"""What the operator does: create a federation, add nodes and remove nodes.

Each change is a new generation of the roster with a signed manifest. A change takes effect when
federation.toml in the operator's folder is replaced. The nodes' copies follow, at once or with the
next command. (If the nodes' copies came first, a crash in between could lead to two signed rosters
of one generation.)
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, write_private
from tacit.peer.federation import signing
from tacit.peer.federation.absence import FOREVER, AbsenceRules, check_neighbours
from tacit.peer.federation.agreed_settings import (
    absence_rules,
    check_runnable,
    initial_graph,
    updated_graph,
    with_sampling_rate,
    without_folders,
)
from tacit.peer.federation.certificates import (
    OPERATOR,
    Credentials,
    check_authority,
    check_authority_certificate,
)
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.manifest import Manifest, make_manifest
from tacit.peer.federation.member_bundle import write_bundle
from tacit.peer.federation.member_request import MemberRequest, certify
from tacit.peer.federation.roster import (
    NAME,
    NAME_REMEDY,
    Member,
    check_address,
    check_name,
    check_roster,
)


def create(
    path: Path,
    name: str,
    nodes: Mapping[str, str],
    config: Config,
    *,
    requests: Sequence[MemberRequest] = (),
    days: int = 365,
    authority: Credentials | None = None,
    ca_certificate: bytes | None = None,
    patience: str = FOREVER,
    min_neighbours: int | None = None,
) -> FederationFolder:
    """Create a federation in a new or empty folder.

    Without `authority` and `ca_certificate`, the federation gets an authority of its own.

    Args:
        path: The operator's folder.
        name: Name of the federation; random digits are appended.
        nodes: Name → address (host:port) of each node whose keys are made here.
        requests: Requests of members that made their keys themselves.
        config: What the federation trains.
        days: How long certificates are valid.
        authority: An external authority that issues the certificates. Its key is not stored.
        ca_certificate: The certificate (PEM) of an external authority whose key is not available.
            Certificate requests (node.csr, operator.csr) are written instead of certificates; see
            `install_certificate`.
        patience: How long a member may be silent before the others go on without it, e.g. "10m".
        min_neighbours: A node with fewer neighbours does not train. None: as many as the algorithm
            needs for its protection, if the graph allows that.
    """
    if not NAME.fullmatch(name):
        raise Misuse(f"{name!r} cannot be the name of a federation.", NAME_REMEDY)
    if authority is not None:
        check_authority(authority)
        ca_certificate = authority.certificate
    elif ca_certificate is not None:
        check_authority_certificate(ca_certificate)
    signing.check_days(days)
    # With random digits, certificates of two federations of one name are for different names.
    federation = f"{name}-{secrets.token_hex(4)}"
    mask_keys = {node: signing.generate_mask_key() for node in nodes}
    joining = [
        *(
            (node, address, signing.mask_public_key(mask_keys[node]))
            for node, address in nodes.items()
        ),
        *((request.name, request.address, request.mask_key) for request in requests),
    ]
    members = [
        Member(node, address, number, mask_key, since=1)
        for number, (node, address, mask_key) in enumerate(joining)
    ]
    check_roster(members, 1, len(members))
    if requests and ca_certificate is not None and authority is None:
        certify(None, requests[0], federation, days)  # raises before anything is written
    graph, config = initial_graph(without_folders(config), [member.name for member in members])
    check_runnable(config, graph)
    config = with_sampling_rate(config, len(members))
    absence = absence_rules(config, graph, patience, min_neighbours)
    check_neighbours(graph, [member.name for member in members], absence)
    manifest = make_manifest(federation, 1, "", members, graph, config, absence=absence)
    return write_federation(
        path, manifest, mask_keys, days, authority, ca_certificate, requests=requests
    )


def write_federation(
    path: Path,
    manifest: Manifest,
    mask_keys: Mapping[str, bytes],
    days: int = 365,
    authority: Credentials | None = None,
    ca_certificate: bytes | None = None,
    *,
    requests: Sequence[MemberRequest] = (),
) -> FederationFolder:
    """Write the folder of a federation and those of its nodes; see `create`.

    Args:
        path: The operator's folder, new or empty.
        manifest: The first manifest.
        mask_keys: The private mask keys of the nodes by name, but of those with a request.
        days: How long certificates are valid.
        authority: See `create`.
        ca_certificate: See `create`.
        requests: See `create`.
    """
    federation, folder = manifest.federation, FederationFolder(path)
    _make_empty_folder(path)
    with file_lock(path):
        for part in ("ca", "operator", "nodes"):
            (path / part).mkdir(mode=0o700)
        if ca_certificate is None:
            authority = signing.create_authority(federation)
            ca_certificate = authority.certificate
            write_private(path / "ca" / "ca.key", authority.key)
        (path / "ca" / "ca.pem").write_bytes(ca_certificate)
        write_credentials(path / "operator" / OPERATOR, OPERATOR, federation, authority, days)
        for node, mask_key in mask_keys.items():
            _write_node_folder(folder, node, mask_key, federation, authority, days)
        for request in requests:
            _write_member_folder(folder, request, federation, authority, days)
        folder.publish(manifest)
        for request in requests:
            write_bundle(folder, request.name)
    return folder


def add(
    path: Path,
    name: str,
    address: str,
    *,
    edges: Sequence[str] | None = None,
    days: int = 365,
    authority: Credentials | None = None,
    request: MemberRequest | None = None,
) -> Manifest:
    """Add a node: create its folder and publish a new manifest.

    Args:
        path: The operator's folder.
        name: Name of the new node.
        address: Its address, host:port.
        edges: Edges of the new node, such as "a:b". Needed unless the kind of graph exists for any
            number of nodes.
        days: How long its certificate is valid.
        authority: The external authority, if the federation has one. Without it, a certificate
            request is written.
        request: The member's request, if it made its keys itself. It must have this name.
    """
    folder = existing_federation(path)
    check_name(name)
    check_address(address)
    signing.check_days(days)
    with file_lock(path):
        folder.distribute()
        before, signer = folder.manifest(), folder.authority(authority)
        if name in before.names:
            raise Misuse(f"{name} is already a member.", "Choose another name, or remove it first.")
        if name in before.former_members and folder.log().trusted_certificates(name) != []:
            problem = f"{name} was a member before, and its old certificate may still be valid."
            remedy = f"Revoke it: tacit federation revoke FOLDER {name}. Or choose another name, "
            raise Misuse(problem, f"{remedy}e.g. {name}-2.")
        if (path / "relays" / name).exists():
            raise Misuse(f"{name} is the name of a relay.", "Choose another name.")
        former = [other for other in before.former_members if other != name]
        number, since = before.next_number, before.generation + 1
        mask_key = signing.generate_mask_key()
        public = signing.mask_public_key(mask_key) if request is None else request.mask_key
        joining = Member(name, address, number, public, since)
        after = _next_manifest(before, (*before.members, joining), edges, former)
        place = folder.node(name).path
        if name in before.former_members and place.exists():
            # It may hold the results of a node on this machine.
            os.rename(place, place.with_name(f".{name}.until-{before.generation}"))
        # A crash may have left a folder of this name. It was never handed out.
        shutil.rmtree(place, ignore_errors=True)
        if request is None:
            _write_node_folder(folder, name, mask_key, before.federation, signer, days)
        else:
            _write_member_folder(folder, request, before.federation, signer, days)
        folder.publish(after)
        if request is not None:
            write_bundle(folder, name)
    return after


def remove(path: Path, name: str, *, edges: Sequence[str] | None = None) -> Manifest:
    """Remove a node and publish a new manifest. The node's folder stays and gets it too."""
    folder = existing_federation(path)
    with file_lock(path):
        folder.distribute()
        after = manifest_without(folder.manifest(), name, edges)
        folder.publish(after)
    return after


def manifest_without(before: Manifest, name: str, edges: Sequence[str] | None = None) -> Manifest:
    """The next manifest, without a member."""
    leaving = before.member(name)
    staying = [member for member in before.members if member != leaving]
    if len(staying) < 2:
        problem = f"Without {name} only one node is left, and a federation needs two."
        raise Misuse(problem, "Add another node first.")
    return _next_manifest(before, staying, edges, (*before.former_members, name))


def set_absence(
    path: Path, *, patience: str | None = None, min_neighbours: int | None = None
) -> Manifest:
    """Change what members do without others, and publish a new manifest; None keeps a rule."""
    folder = existing_federation(path)
    with file_lock(path):
        folder.distribute()
        before = folder.manifest()
        absence = AbsenceRules(
            before.absence.patience if patience is None else patience,
            before.absence.min_neighbours if min_neighbours is None else min_neighbours,
        )
        check_neighbours(before.graph, before.names, absence)
        after = make_manifest(
            before.federation,
            before.generation + 1,
            before.hash.hex(),
            before.members,
            before.graph,
            before.config,
            before.next_number,
            before.former_members,
            absence,
        )
        folder.publish(after)
    return after


def _next_manifest(
    before: Manifest,
    members: Sequence[Member],
    edges: Sequence[str] | None,
    former_members: Sequence[str],
) -> Manifest:
    names = [member.name for member in members]
    graph, config = updated_graph(before, names, edges)
    check_runnable(config, graph)
    check_neighbours(graph, names, before.absence)
    return make_manifest(
        before.federation,
        before.generation + 1,
        before.hash.hex(),
        members,
        graph,
        config,
        before.next_number,
        former_members,
        before.absence,
    )


def _write_node_folder(
    folder: FederationFolder,
    name: str,
    mask_key: bytes,
    federation: str,
    authority: Credentials | None,
    days: int,
) -> None:
    """Write the folder of a node, all but the manifest. It appears in one step."""
    with _new_node_folder(folder, name) as part:
        write_private(part / "mask.key", f"{mask_key.hex()}\n".encode())
        write_credentials(part / "node", name, federation, authority, days)


def _write_member_folder(
    folder: FederationFolder,
    request: MemberRequest,
    federation: str,
    authority: Credentials | None,
    days: int,
) -> None:
    """As `_write_node_folder`, for a member that keeps its keys."""
    certificate = certify(authority, request, federation, days)
    with _new_node_folder(folder, request.name) as part:
        (part / "node.pem").write_bytes(certificate)


@contextmanager
def _new_node_folder(folder: FederationFolder, name: str) -> Iterator[Path]:
    """A folder that becomes that of a node in one step, after the block."""
    place = folder.node(name).path
    part = place.with_name(f".{name}.new")
    # A crash may have left it.
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700, parents=True)
    yield part
    (part / "ca.pem").write_bytes(folder.ca())
    operator = folder.path / "operator" / "operator.pem"
    if operator.exists():
        (part / "operator.pem").write_bytes(operator.read_bytes())
    os.rename(part, place)


def write_credentials(
    file: Path, name: str, federation: str, authority: Credentials | None, days: int
) -> None:
    """Write FILE.key with FILE.pem, or with FILE.csr if no authority's key is available."""
    if authority is None:
        request, key = signing.request_certificate(name, federation)
        file.with_suffix(".csr").write_bytes(request)
    else:
        own = signing.issue_credentials(authority, name, federation, days)
        file.with_suffix(".pem").write_bytes(own.certificate)
        key = own.key
    write_private(file.with_suffix(".key"), key)


def existing_federation(path: Path) -> FederationFolder:
    """The operator's folder; raise Misuse if it is none."""
    if not (path / "federation.toml").is_file():
        problem = f"{path} is not the folder of a federation."
        raise Misuse(problem, "Create one: tacit federation create FOLDER.")
    return FederationFolder(path)


def _make_empty_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_empty = not any(path.iterdir())
    except OSError as problem:
        raise Misuse(f"Cannot make the folder {path}: {problem}.", "Choose another.") from None
    if not is_empty:
        raise Misuse(f"The folder {path} is not empty.", "Choose a new or empty folder.")
