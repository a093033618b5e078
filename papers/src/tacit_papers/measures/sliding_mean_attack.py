"""A measure: agents learn from streams while somebody listens, and averages what one agent sends over a window."""

from __future__ import annotations

import inspect
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.attacks.sliding_mean import sliding_mean
from tacit.config.build import TASKS, build
from tacit.config.loading import with_keys
from tacit.config.sections import Config
from tacit.record.history import decibels
from tacit.record.transcript import Transcript
from tacit.simulation import Simulation
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.replicated_runs import replicate

POINTS = 300  # of the drawn curves
LAST = 10  # the steady state is the mean over the last tenth


@dataclass(frozen=True)
class SlidingMeanAttack:
    """Mean-square deviation over several runs of one problem, and how near a listener's sliding mean comes.

    The repeat's seed draws the problem and the graph as well. `msd_db` is the mean over the last tenth, `midway_db`
    that over the last tenth of the first half, before a change of sign. `off_by` is how far the mean over the last
    `window` messages of an agent is from the mean of its own estimates in that time, `target_off_by` how far from the
    optimum, in percent of their norms, means over agents and runs.
    """

    config: Config
    runs: int = 10
    window: int = 100

    def describe(self) -> dict[str, Any]:
        """Configuration, runs and window."""
        return {"listening": self.config.as_dict(), "runs": self.runs, "window": self.window}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """All runs together, from the start to the end."""
        simulation, steps, transcript = self._begin(seed, place)
        every = max(1, steps // POINTS)
        heard: deque[tuple[Tensor, Tensor]] = deque(
            maxlen=self.window
        )  # what was sent, and made of which estimate
        msd = {"round": [0.0], "msd": [_deviation(simulation, 0)]}
        drawn = simulation.state.theta.new_empty(steps, 2)
        for n in range(1, steps + 1):
            estimate = simulation.state.theta.clone()
            simulation.step()
            sent = transcript.messages[
                0
            ].rows  # the first of an iteration: the model in some disguise
            transcript.messages.clear()
            heard.append((sent, estimate))
            drawn[n - 1, 0], drawn[n - 1, 1] = sent[0, 0], estimate[0, 0]
            if n % every == 0 or n == steps:
                msd["round"].append(n)
                msd["msd"].append(_deviation(simulation, n))
                place.said("iteration", n, steps)
        half = len(msd["msd"]) // 2
        values: Values = {"msd_db": _steady(msd["msd"]), "midway_db": _steady(msd["msd"][:half])}
        if simulation.diverged is not None:
            return values | {"diverged": simulation.diverged, "curve": _plain(msd)}
        target = _optimum(simulation, steps)
        mean, own = (
            sliding_mean(torch.stack(rows).flatten(1), len(rows)).view_as(heard[0][0])
            for rows in zip(*heard, strict=True)
        )
        values |= {
            "off_by": _percent(mean - own, own),
            "target_off_by": _percent(mean - target, target.expand_as(mean)),
        }
        return values | {"curve": _plain(msd), "heard": self._drawn(simulation, drawn.cpu(), every)}

    def _begin(self, seed: int, place: MeasureContext) -> tuple[Simulation, int, Transcript]:
        config = with_keys(self.config, "run", seed=seed, device=place.device)
        assert config.task is not None
        if "seed" in inspect.signature(TASKS[config.task.name]).parameters:
            config = with_keys(config, "task", seed=seed)
        made, transcript = build(config), Transcript()
        algorithm, task, graph = replicate(made.algorithm, made.task, made.graph, self.runs)
        simulation = Simulation(
            algorithm,
            task,
            graph,
            seed=seed,
            device=place.device,
            transcript=transcript,
            allow_divergence=True,
        )
        simulation.start()
        transcript.messages.clear()
        return simulation, made.steps, transcript

    def _drawn(self, simulation: Simulation, drawn: Tensor, every: int) -> dict[str, list[float]]:
        """First coordinates at the first agent in the first run: sent, the sliding mean, its estimate, the optimum."""
        window = min(self.window, len(drawn))
        at = list(range(window, len(drawn) + 1, every))
        places = torch.tensor(at) - 1
        mean = sliding_mean(drawn[:, :1], window)[:, 0]
        return {
            "round": [float(n) for n in at],
            "sent": _digits(drawn[places, 0]),
            "mean": _digits(mean[places - window + 1]),
            "estimate": _digits(drawn[places, 1]),
            "target": [float(_optimum(simulation, n)[0]) for n in at],
        }


def _optimum(simulation: Simulation, n: int) -> Tensor:
    """Where the optimum was when the last of n gradients was taken."""
    optimum = simulation.task.optimum_at(n)
    assert optimum is not None
    return optimum.to(simulation.device)


def _deviation(simulation: Simulation, n: int) -> float:
    """(1/K) Σ ‖w − w*‖², mean over the runs as well."""
    return float((simulation.state.theta - _optimum(simulation, n)).square().sum(1).mean())


def _steady(deviations: list[float]) -> float | None:
    """The mean over the last tenth in dB."""
    tail = deviations[-max(1, len(deviations) // LAST) :]
    return _finite(decibels(sum(tail) / len(tail)))


def _percent(error: Tensor, of: Tensor) -> float:
    return float(100 * (error.norm(dim=1) / of.norm(dim=1)).mean())


def _digits(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


def _plain(curve: dict[str, list[Any]]) -> dict[str, list[float | None]]:
    return {name: [_finite(value) for value in values] for name, values in curve.items()}


def _finite(value: float) -> float | None:
    return float(f"{value:.6g}") if value - value == 0 else None
