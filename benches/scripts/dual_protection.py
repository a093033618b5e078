"""Steady states of the dual-protection paper's algorithms, and what sliding means reveal.

    python benches/scripts/dual_protection.py                  # γ = 0.02, two minutes
    python benches/scripts/dual_protection.py --rate 0.01 --steps 8000

Prints for each algorithm the mean-square deviation over the last tenth of a run with exact
gradients, and the distance between the optimum and an eavesdropper's mean of a client's last
messages in a run with streaming gradients. Times are for one slow core.
"""

from __future__ import annotations

import argparse
import math
import warnings

import torch

import tacit
from tacit.algorithms.dual_protection import diffusion_bound, exact_diffusion_bound
from tacit.core.errors import Caution
from tacit.record.history import decibels
from tacit.record.transcript import Transcript

CLIENTS, WIDTH = 5, 5
# The paper's variance of 10⁻⁴, and a smaller one.
NOISE = tacit.Gaussian(1e-2)
WEAK_NOISE = tacit.Gaussian(math.sqrt(1e-5))


def algorithms(rate: float, deviation: float) -> dict[str, tacit.algorithms.Algorithm]:
    """The algorithms to compare; τ = 0 and τ = 0.3 must have the same steady state."""
    matrix = tacit.MatrixStep("upper", deviation=deviation, off_diagonal=deviation)
    return {
        "dsg": tacit.DSG(rate),
        "dsg-rms, τ = 0": tacit.DSGRMS(rate, matrix, tacit.NormVector(0.0)),
        "dsg-rms, τ = 0.3": tacit.DSGRMS(rate, matrix, tacit.NormVector(0.3)),
        "edsg": tacit.EDSG(rate),
        "edsg-rms, τ = 0": tacit.EDSGRMS(rate, matrix, tacit.NormVector(0.0)),
        "edsg-rms, τ = 0.3": tacit.EDSGRMS(rate, matrix, tacit.NormVector(0.3)),
        "dsgt-rms, τ = 0.1": tacit.DSGTRMS(rate, matrix, tacit.NormVector(0.1)),
        "pd-lms, variance 1e-4": tacit.PDLMS(rate, NOISE),
        "pd-lms, variance 1e-5": tacit.PDLMS(rate, WEAK_NOISE),
        "mdsg": tacit.MDSG(rate, NOISE),
        "psgt": tacit.PSGT(rate),
    }


def steady_state(
    algorithm: tacit.algorithms.Algorithm, task: tacit.Objective, graph: tacit.Graph, steps: int
) -> float:
    """Mean-square deviation over the last tenth, in dB."""
    run = tacit.run(task, algorithm, graph, steps=steps, record_every=max(1, steps // 200))
    last = run.history.column("msd")[-20:]
    return decibels(sum(last) / len(last))


def sliding_mean_error(
    algorithm: tacit.algorithms.Algorithm,
    task: tacit.Objective,
    graph: tacit.Graph,
    steps: int,
    window: int,
) -> float:
    """The worst relative error ‖mean of a client's last messages − w*‖/‖w*‖, in percent."""
    transcript = Transcript()
    simulation = tacit.Simulation(tacit.Setting(algorithm, task, graph), transcript=transcript)
    simulation.start()
    for _ in range(steps):
        simulation.step()
        # The first message is the protected model.
        tag = transcript.messages[0].tag
        del transcript.messages[: -2 * window - 2]
    sent = [message.rows for message in transcript.messages if message.tag == tag][-window:]
    target = task.optimum_at(0)
    assert target is not None
    errors = (torch.stack(sent).mean(0) - target).norm(dim=1) / target.norm()
    return 100 * float(errors.max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=0.02, help="γ")
    parser.add_argument("--steps", type=int, default=3000, help="iterations with exact gradients")
    parser.add_argument("--deviation", type=float, default=0.01, help="of the entries of M")
    options = parser.parse_args()
    warnings.simplefilter("ignore", Caution)
    graph = tacit.Topology.erdos_renyi(CLIENTS, 0.6, seed=3).mixing("laplacian", lazy=True)
    exact = tacit.adaptive_filtering(CLIENTS, WIDTH, seed=1, exact=True)
    streaming = tacit.adaptive_filtering(CLIENTS, WIDTH, seed=1, homogeneous=True)
    print(graph.describe())
    print(
        f"bounds on τ: {diffusion_bound(graph):.3f} (Theorem 1), "
        f"{exact_diffusion_bound(graph):.3f} (Theorem 2)"
    )
    print(
        f"{'γ = ' + format(options.rate, 'g'):24} {'MSD, dB':>10} {'mean of messages off by':>26}"
    )
    for name, algorithm in algorithms(options.rate, options.deviation).items():
        deviation = steady_state(algorithm, exact, graph, options.steps)
        error = sliding_mean_error(
            algorithm, streaming, graph, options.steps // 4, options.steps // 40
        )
        print(f"{name:24} {deviation:10.1f} {error:24.1f} %", flush=True)


if __name__ == "__main__":
    main()
