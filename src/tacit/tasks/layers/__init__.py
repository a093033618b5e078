"""Networks whose weights differ from client to client, all clients at once and without a tape."""

from tacit.tasks.layers.network import Chain, LayeredLoss, layered

__all__ = ["Chain", "LayeredLoss", "layered"]
