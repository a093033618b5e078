"""Trials of a federation on one machine: the same roster and configuration, but other keys.

What a trial sends and stores must not meet what the real nodes send later. So a trial is a
federation of its own in a subfolder, with its own name, authority, keys and state. All addresses
are of this machine, so that a roster of remote nodes can be tried out too.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from dataclasses import replace

from tacit.config.loading import with_keys
from tacit.config.sections import Config
from tacit.core.storage import file_lock
from tacit.peer.federation import signing
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.manifest import make_manifest
from tacit.peer.federation.operator import write_federation

# Below the ports that systems use for outgoing connections.
PORTS = range(15_000, 32_000)


def open_trial(folder: FederationFolder) -> FederationFolder:
    """The trial of the current roster, in FOLDER/trial-GENERATION; created if there is none."""
    manifest = folder.manifest()
    place = folder.path / f"trial-{manifest.generation}"
    with file_lock(folder.path):
        if place.exists():
            return FederationFolder(place)
        name = manifest.federation.rpartition("-")[0]
        keys = {member.name: signing.generate_mask_key() for member in manifest.members}
        members = [
            replace(
                member,
                address=f"127.0.0.1:{port}",
                mask_key=signing.mask_public_key(keys[member.name]),
                since=1,
            )
            for member, port in zip(manifest.members, _free_ports(len(keys)), strict=True)
        ]
        tried = make_manifest(
            f"{name}-{secrets.token_hex(4)}",
            1,
            "",
            members,
            manifest.graph,
            _sharing_metrics(manifest.config),
            manifest.next_number,
            manifest.former_members,
            manifest.absence,
        )
        # A crash may have left it.
        part = place.with_name(f".{place.name}.new")
        shutil.rmtree(part, ignore_errors=True)
        write_federation(part, tried, keys)
        os.rename(part, place)
    return FederationFolder(place)


def _sharing_metrics(config: Config) -> Config:
    """The same configuration, except that nodes tell their scores: one user runs all of them."""
    return with_keys(config, "federation", share_metrics=True)


def _free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now. They are stored, so that a trial can be continued."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in found:
            found.append(port)
    return found
