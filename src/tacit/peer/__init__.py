"""Peers: one process per client, mutual TLS, no server."""
