"""Who talks to whom, and how much each listens: topologies, mixing weights and their properties."""

from tacit.graph.mixing import Graph
from tacit.graph.topology import Topology

__all__ = ["Graph", "Topology"]
