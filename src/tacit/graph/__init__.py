"""Topologies, mixing weights and their properties."""

from tacit.graph.graph import Graph, Topology

__all__ = ["Graph", "Topology"]
