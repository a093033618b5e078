"""A measure: a training during which it is counted how many coordinates of the gradients are exactly zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.config.build import build
from tacit.config.sections import Config, with_keys
from tacit.simulation import Simulation, repeatable
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.training import rounded


@dataclass(frozen=True)
class DeadCoordinates:
    """Accuracy, the share of the coordinates of gradients that are zero, and the mean size |θ|, over the rounds."""

    config: Config

    def describe(self) -> dict[str, Any]:
        """The configuration."""
        return {"dead_coordinates": self.config.as_dict()}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Train with this seed, and look at all clients where accuracy is measured."""
        config = with_keys(self.config, "run", seed=seed, device=place.device)
        made = build(config, dataset=place.dataset(config))
        simulation = made.simulation()
        simulation.start()
        looks = [_look(simulation)]
        while simulation.t < made.steps:
            simulation.step()
            place.said("training", simulation.t, made.steps)
            if simulation.t % (config.run.evaluate_every * made.round_length) == 0:
                looks.append(_look(simulation))
        curve = {name: [rounded(look[name]) for look in looks] for name in looks[0]}
        ends = {name: values[-1] for name, values in curve.items()}
        rounds = range(0, config.run.rounds + 1, config.run.evaluate_every)
        return ends | {"curve": {"round": list(rounds)} | curve}


def _look(simulation: Simulation) -> dict[str, float]:
    """At the models as they are, and at the gradients that they would take next."""
    theta, now = simulation.state.theta, simulation.here.at(simulation.t)
    with repeatable(simulation.device), simulation.pool.alone():
        gradients = now.grad(theta)
    record = simulation.observe()
    assert record.accuracy is not None
    return {
        "accuracy": record.accuracy.mean,
        "dead": 100 * float((gradients == 0).double().mean()),
        "size": float(theta.abs().double().mean()),
    }
