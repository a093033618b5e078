"""Every algorithm on symbols, as the audit runs it, against the same run on numbers.

If an algorithm combines rows linearly and declares everything else, then a message is its
coefficients times the values of the unknowns. Rows that are summed as integers are rounded to
multiples of a unit before masks are added, and known up to multiples of 2³² units after.
"""

import math

import pytest
import torch

import tacit
from support.suited import PROMISE, made, suited
from tacit.algorithms import ALGORITHMS
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.fixed_point import MODULUS
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.record.transcript import Keep, Transcript

CLIENTS, WIDTH, STEPS = 5, 4, 3
GRAPH = tacit.Topology.erdos_renyi(CLIENTS, 0.6, seed=1).mixing("metropolis", lazy=True)

pytestmark = pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")

CASES = {name: {} for name in ALGORITHMS} | {
    "lppa, fresh, sent": {"fresh": True, "masks": "sent"},
    "dp-dsgt, every": {"inject": "every", "local_steps": 2},
    "d-psgd, momentum": {"order": "combine-then-adapt", "momentum": 0.9},
    "dsgt, nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "lppa, momentum": {"momentum": 0.9, "fresh": True, "local_steps": 2, "weight_decay": 0.1},
    "edsg, momentum": {"momentum": 0.9, "weight_decay": 0.1},
    "dsg, adam": {"optimizer": "adam", "weight_decay": 0.1},
    "d-psgd, adamw": {"optimizer": "adamw", "weight_decay": 0.1},
    "fedavg, adam": {"optimizer": "adam", "local_steps": 2},
    "pdmm, decay": {"weight_decay": 0.1},
    "decor, momentum": {"momentum": 0.9, "weight_decay": 0.1},
    "private-sgd, adamw": {"optimizer": "adamw", "weight_decay": 0.1},
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
    "private-sgd, momentum": {"momentum": 0.9},
    "private-sgd, adam": {"optimizer": "adam"},
    "private-sgd, without noise": {},
    "private-sgd, clients": {"local_steps": 3},
}
PROMISES = {
    "private-sgd, without noise": tacit.Privacy(epsilon=math.inf),
    "private-sgd, clients": tacit.Privacy(epsilon=5.0, delta=0.01, unit="client", clip=2.0),
}


def make(case):
    """The algorithm of a case, and a task that suits it."""
    algorithm = made(ALGORITHMS[case.split(",")[0]], **CASES[case])
    return suited(algorithm, quadratic_task(), GRAPH, promise=PROMISES.get(case, PROMISE))


def quadratic_task():
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    root = draw(CLIENTS, WIDTH, WIDTH)
    return tacit.quadratic(
        root @ root.mT + torch.eye(WIDTH), draw(CLIENTS, WIDTH), theta0=draw(CLIENTS, WIDTH)
    )


def on_numbers(algorithm, task):
    """The transcript of a run with all unknowns, and the models after each iteration."""
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
    algorithm, task = make(case)
    transcript, models = on_numbers(algorithm, task)
    run = run_on_symbols(algorithm, GRAPH, STEPS)
    numbers = values(run, transcript)

    def value(rows):
        return rows @ numbers[: rows.shape[1]]

    assert len(run.transcript.messages) == len(transcript.messages) > 0
    pairs = zip(run.transcript.messages, transcript.messages, strict=True)
    for place, (symbol, number) in enumerate(pairs):
        facts = [(m.tick, m.verb, m.tag, m.private, m.source.tolist()) for m in (symbol, number)]
        assert facts[0] == facts[1]
        if place in run.plain_messages:
            # Numbers that everybody knows, such as weights.
            torch.testing.assert_close(symbol.rows, number.rows, rtol=1e-11, atol=1e-11)
            continue
        expected, rounding = number.rows, 1e-11
        if number.modulus is not None:
            # The sum of at most all clients, each rounded by half a unit.
            rounding += 0.51 * CLIENTS * number.modulus / MODULUS
            turns = ((value(symbol.rows) - expected) / number.modulus).round()
            assert symbol.tag.endswith("down") == bool((turns == 0).all())
            expected = expected + number.modulus * turns
        torch.testing.assert_close(value(symbol.rows), expected, rtol=1e-11, atol=rounding)
    # Steps of 0.05 or less times the average of rounded rows.
    rounding = 1e-11 + 0.05 * STEPS * max(m.modulus or 0 for m in transcript.messages) / MODULUS
    for symbol, number in zip(run.models, models, strict=True):
        torch.testing.assert_close(value(symbol), number, rtol=1e-11, atol=rounding)


@pytest.mark.parametrize(("case", "leaks"), [("defl-vp", True), ("defl-vp, private", False)])
def test_with_private_variates_no_message_has_a_gradient_in_it(case, leaks):
    """As published, the variates are made of gradients."""
    run = run_on_symbols(make(case)[0], GRAPH, STEPS)
    gradients = torch.tensor([unknown.kind == "gradient" for unknown in run.unknowns])
    assert gradients.any()
    messages = run.transcript.messages
    tags = {m.tag for m in messages if bool((m.rows[:, gradients[: m.rows.shape[1]]] != 0).any())}
    assert tags == ({"variate"} if leaks else set())
