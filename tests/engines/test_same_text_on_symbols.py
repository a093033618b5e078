"""Every algorithm on symbols, as the audit runs it, against the same run on numbers.

If an algorithm combines rows linearly and declares everything else, then a message is its
coefficients times the values of the unknowns.
"""

import pytest
import torch

import tacit
from tacit.algorithms import ALGORITHMS
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.record.transcript import Keep, Transcript
from tacit.simulation import Setting, Simulation

CLIENTS, WIDTH, STEPS = 5, 4, 3
GRAPH = tacit.Topology.erdos_renyi(CLIENTS, 0.6, seed=1).mixing("metropolis", lazy=True)

pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")

CASES = {name: {} for name in ALGORITHMS} | {
    "lppa, fresh, sent": {"fresh": True, "masks": "sent"},
    "dp-dsgt, every": {"inject": "every", "local_steps": 2},
    "d-psgd, momentum": {"order": "combine-then-adapt", "momentum": 0.9},
    "dsg-rms, nothing hidden": {
        "matrix": tacit.MatrixStep("upper", deviation=0.0, off_diagonal=0.0),
        "protection": tacit.NormVector(0.0),
    },
    "edsg-rms, tanh": {"protection": tacit.TanhVector(0.3), "matrix": tacit.MatrixStep("sparse")},
    "defl-vp, private": {"private_variates": True, "momentum": 0.5},
    "defl-vp, plain": {"randomized_response": False, "codec": tacit.Identity()},
    "defl-vp, qsgd": {"randomized_response": False, "codec": tacit.QSGD()},
    "pdmm, sent": {"masks": "sent", "solver": tacit.GradientSolver()},
    "admm, exact": {"solver": tacit.ExactSolver()},
    "admm, inner": {"solver": tacit.InnerSolver(steps=3)},
    "fedavg, local steps": {"local_steps": 3},
}


def make(case):
    kind, options = ALGORITHMS[case.split(",")[0]], CASES[case]
    rate = {"lr": 0.05} if "lr" in kind.__dataclass_fields__ else {}
    return kind(**rate, **options)


def on_numbers(algorithm):
    """The transcript of a run with all unknowns, and the models after each iteration."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    root = draw(CLIENTS, WIDTH, WIDTH)
    task = tacit.quadratic(
        root @ root.mT + torch.eye(WIDTH), draw(CLIENTS, WIDTH), theta0=draw(CLIENTS, WIDTH)
    )
    transcript = Transcript(Keep(insides=tuple(range(CLIENTS))))
    simulation = Simulation(
        Setting(algorithm, task, GRAPH, seed=2, gradients="looped"), transcript=transcript
    )
    simulation.start()
    models = [simulation.state.theta.clone()]
    for _ in range(STEPS):
        simulation.step()
        models.append(simulation.state.theta.clone())
    return transcript, models


def values(run, transcript):
    """The values of the unknowns [U, P]."""
    return torch.stack([transcript.held[unknown] for unknown in run.unknowns])


@pytest.mark.parametrize("case", CASES)
def test_messages_and_models_are_the_symbolic_linear_combinations(case):
    algorithm = make(case)
    transcript, models = on_numbers(algorithm)
    run = run_on_symbols(algorithm, GRAPH, STEPS)
    numbers = values(run, transcript)

    def value(rows):
        return rows @ numbers[: rows.shape[1]]

    assert len(run.transcript.messages) == len(transcript.messages) > 0
    for symbol, number in zip(run.transcript.messages, transcript.messages, strict=True):
        facts = [(m.tick, m.verb, m.tag, m.private, m.source.tolist()) for m in (symbol, number)]
        assert facts[0] == facts[1]
        torch.testing.assert_close(value(symbol.rows), number.rows, rtol=1e-11, atol=1e-11)
    for symbol, number in zip(run.models, models, strict=True):
        torch.testing.assert_close(value(symbol), number, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("case", "leaks"), [("defl-vp", True), ("defl-vp, private", False)])
def test_with_private_variates_no_message_has_a_gradient_in_it(case, leaks):
    """As published, the variates are made of gradients."""
    run = run_on_symbols(make(case), GRAPH, STEPS)
    gradients = torch.tensor([unknown.kind == "gradient" for unknown in run.unknowns])
    assert gradients.any()
    messages = run.transcript.messages
    tags = {m.tag for m in messages if bool((m.rows[:, gradients[: m.rows.shape[1]]] != 0).any())}
    assert tags == ({"variate"} if leaks else set())
