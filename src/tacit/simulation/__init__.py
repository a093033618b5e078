"""Simulating clients: all of them in one process, or divided among several."""

from tacit.simulation.run import Run
from tacit.simulation.setting import Generator, Setting, check_fit
from tacit.simulation.simulate import simulate
from tacit.simulation.simulation import Simulation

__all__ = ["Generator", "Run", "Setting", "Simulation", "check_fit", "simulate"]
