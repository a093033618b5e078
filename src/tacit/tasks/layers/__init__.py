"""Networks whose weights differ from client to client, evaluated for all clients at once."""

from tacit.tasks.layers.network import Chain, LayeredLoss, layered_loss

__all__ = ["Chain", "LayeredLoss", "layered_loss"]
