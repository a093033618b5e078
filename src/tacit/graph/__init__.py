"""Topologies, mixing weights and their properties; graphs that change over time."""

from tacit.graph.graph import Graph, Topology
from tacit.graph.participation import Absence, Participation
from tacit.graph.schedule import GraphFunction, GraphSchedule, Matchings, Phases
from tacit.graph.world import Moment, World

__all__ = [
    "Absence",
    "Graph",
    "GraphFunction",
    "GraphSchedule",
    "Matchings",
    "Moment",
    "Participation",
    "Phases",
    "Topology",
    "World",
]
