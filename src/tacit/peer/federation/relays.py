"""Relays, through which members are reached that can only connect outward.

A relay is no member: it gets the operator's log, but neither the manifest nor any message. It
forwards connections between members, whose contents only the two members can read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tacit.core.errors import Misuse
from tacit.peer.federation.change_log import ChangeLog
from tacit.peer.federation.folders import NodeFolder, read_file

NAMES = "relay.json"  # the names of the relay and its federation


@dataclass(frozen=True)
class Relay:
    """A relay as members know it.

    Attributes:
        name: Its name, which its certificate proves.
        address: host:port.
        roots: The certificates (PEM) that it is trusted by; see ChangeLog.trusted_roots.
    """

    name: str
    address: str
    roots: bytes


def known_relays(log: ChangeLog, ca: bytes) -> list[Relay]:
    """The relays that the operator named and did not remove."""
    found = [Relay(name, at, log.trusted_roots(name, ca)) for name, at in log.relays.items() if at]
    return [relay for relay in found if relay.roots]


class RelayFolder(NodeFolder):
    """The folder that the operator hands to a relay: as that of a node, without a manifest."""

    @property
    def federation(self) -> str:
        place = self.path / NAMES
        remedy = "Give the folder relays/NAME that `tacit federation add-relay` made."
        try:
            return str(json.loads(read_file(place, remedy))["federation"])
        except (ValueError, TypeError, KeyError):
            raise Misuse(f"{place} does not name a federation.", remedy) from None
