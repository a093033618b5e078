"""The state of a node that answers others, without a network."""

import io
import json

import torch

from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node_state import ActiveRoster, NodeState
from tacit.peer.wire.messages import Envelope, ExchangeId, pack


class ServedNode:
    """Node a of four on a ring, at iteration 0 of 100, and what it has logged and counted."""

    def __init__(self, home, name="a"):
        self.folder = home.node(name)
        active = ActiveRoster.load(self.folder, name, self.folder.manifest())
        self.log = io.StringIO()
        event_log = EventLog(self.log, name)
        self.state = NodeState(self.folder, name, active, event_log, 6, "torch.float32")
        self.state.report(steps=100)
        self.metrics = self.state.metrics

    @property
    def outbox(self):
        return self.state.active.outbox

    def rejected(self, reason):
        return self.metrics.value("tacit_rejected_total", reason=reason)

    def logged(self):
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    def put(self, tick, receiver=""):
        """Put a message into the outbox."""
        exchange = ExchangeId(1, tick, 0)
        envelope = Envelope(self.state.manifest.federation, "a", receiver, exchange)
        message = pack(envelope, {"x": torch.full((4,), float(tick))})
        self.outbox.put(message)
        return message
