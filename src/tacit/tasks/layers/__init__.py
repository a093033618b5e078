"""Networks whose weights differ from client to client, all clients at once and without a tape."""

from tacit.tasks.layers.network import LayeredLoss, layered

__all__ = ["LayeredLoss", "layered"]
