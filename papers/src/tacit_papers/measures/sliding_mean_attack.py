"""Measure of learning from streams, and of an eavesdropper that averages messages over a window."""

from __future__ import annotations

import inspect
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.config.loading import with_keys
from tacit.config.sections import Config
from tacit.config.tasks import TASKS
from tacit.engines.simulation import Simulation
from tacit.record.history import decibels
from tacit.record.transcript import Transcript
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded
from tacit_papers.measures.replicated_runs import replicated_simulation

POINTS = 300  # of the drawn curves
TAIL = 10  # the steady state is the mean over the last tenth


@dataclass(frozen=True)
class SlidingMeanAttack(FieldDescription):
    """Mean-square deviation over several runs of one problem, and the error of sliding means.

    The repeat's seed draws the problem and the graph too. `msd_db` is the mean over the last tenth,
    `midway_db` over the last tenth of the first half, before a change of sign. `off_by` is the
    distance of the mean of an agent's last `window` messages from the mean of its estimates in that
    time, `target_off_by` from the optimum, in percent of their norms, means over agents and runs.
    """

    label = ("listening", "config")
    config: Config
    runs: int = 10
    window: int = 100

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        simulation, steps, transcript = self._start(seed, context)
        every = max(1, steps // POINTS)
        # Messages, and the estimates that they were made from.
        recent: deque[tuple[Tensor, Tensor]] = deque(maxlen=self.window)
        rounds, msd = [0.0], [_deviation(simulation, 0)]
        drawn = simulation.state.theta.new_empty(steps, 2)
        for n in range(1, steps + 1):
            estimate = simulation.state.theta.clone()
            simulation.step()
            # The first message of an iteration: the model, protected.
            sent = transcript.messages[0].rows
            transcript.messages.clear()
            recent.append((sent, estimate))
            drawn[n - 1, 0], drawn[n - 1, 1] = sent[0, 0], estimate[0, 0]
            if n % every == 0 or n == steps:
                rounds.append(n)
                msd.append(_deviation(simulation, n))
                context.progress("iteration", n, steps)
        values: Values = {
            "msd_db": _steady(msd),
            "midway_db": _steady(msd[: len(msd) // 2]),
            "curve": {"round": [rounded(n) for n in rounds], "msd": [rounded(d) for d in msd]},
        }
        if simulation.diverged is not None:
            return values | {"diverged": simulation.diverged}
        target = _optimum(simulation, steps)
        mean, own = (
            sliding_mean(torch.stack(rows).flatten(1), len(rows)).view_as(sent)
            for rows in zip(*recent, strict=True)
        )
        return values | {
            "off_by": _percent(mean - own, own),
            "target_off_by": _percent(mean - target, target.expand_as(mean)),
            "heard": self._drawn(simulation, drawn.cpu(), every),
        }

    def _start(self, seed: int, context: MeasureContext) -> tuple[Simulation, int, Transcript]:
        config, transcript = self.config, Transcript()
        assert config.task is not None
        if "seed" in inspect.signature(TASKS[config.task.name]).parameters:
            config = with_keys(config, "task", seed=seed)
        experiment = context.experiment(config, seed)
        simulation = replicated_simulation(experiment, self.runs, transcript, allow_divergence=True)
        simulation.start()
        transcript.messages.clear()
        return simulation, experiment.steps, transcript

    def _drawn(self, simulation: Simulation, drawn: Tensor, every: int) -> dict[str, list[float]]:
        """First coordinates at the first agent in the first run."""
        window = min(self.window, len(drawn))
        at = list(range(window, len(drawn) + 1, every))
        rows = torch.tensor(at) - 1
        mean = sliding_mean(drawn[:, :1], window)[:, 0]
        return {
            "round": [float(n) for n in at],
            "sent": _digits(drawn[rows, 0]),
            "mean": _digits(mean[rows - window + 1]),
            "estimate": _digits(drawn[rows, 1]),
            "target": [float(_optimum(simulation, n)[0]) for n in at],
        }


def sliding_mean(rows: Tensor, window: int) -> Tensor:
    """(1/w) Σ_{s = t}^{t+w−1} rows[s] for every t: rows [T, P] ↦ [T − w + 1, P], in O(T·P).

    Zero-mean masks shrink as the window grows. Running sums are in float64, so that the end of a
    long transcript stays accurate.

    >>> sliding_mean(torch.tensor([[1.0], [3.0], [5.0]]), 2)
    tensor([[2.],
            [4.]])
    """
    sums = torch.zeros(len(rows) + 1, rows.shape[1], dtype=torch.float64, device=rows.device)
    torch.cumsum(rows, 0, dtype=torch.float64, out=sums[1:])
    return ((sums[window:] - sums[:-window]) / window).to(rows.dtype)


def _optimum(simulation: Simulation, n: int) -> Tensor:
    """The optimum when the last of n gradients was taken."""
    optimum = simulation.task.optimum_at(n)
    assert optimum is not None
    return optimum.to(simulation.device)


def _deviation(simulation: Simulation, n: int) -> float:
    """(1/K) Σ ‖w − w*‖², averaged over the runs too."""
    return float((simulation.state.theta - _optimum(simulation, n)).square().sum(1).mean())


def _steady(deviations: list[float]) -> float | None:
    tail = deviations[-max(1, len(deviations) // TAIL) :]
    return rounded(decibels(sum(tail) / len(tail)))


def _percent(error: Tensor, of: Tensor) -> float:
    return float(100 * (error.norm(dim=1) / of.norm(dim=1)).mean())


def _digits(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]
