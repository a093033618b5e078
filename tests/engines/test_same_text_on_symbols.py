"""Every algorithm on symbols: rows of coefficients over unknowns, as the audit will run it.

The unknowns are first models, gradients, noise and whatever `here.nonlinear` declares, each named by what it is of
and when. The same text runs once on numbers, where the unknowns' values are written down, and once on coefficients. If
an algorithm only combines rows linearly and declares all else, then coefficients times values are the messages.
"""

from dataclasses import replace

import pytest
import torch

import tacit
from tacit.algorithms import ALGORITHMS
from tacit.record.transcript import Recorder, Transcript
from tacit.rows import LazyRows
from tacit.simulation import Simulation

CLIENTS, WIDTH, STEPS = 5, 4, 3
UNKNOWNS = 700  # columns of a symbolic row: more than any run below has
GRAPH = tacit.Topology.erdos_renyi(CLIENTS, 0.6, seed=1).mixing("metropolis", lazy=True)

pytestmark = pytest.mark.filterwarnings("ignore::tacit.errors.Caution")

CASES = {name: {} for name in ALGORITHMS} | {
    "lppa, fresh, sent": {"fresh": True, "masks": "sent"},
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


class Book:
    """The unknowns in the order of their first mention, and the numbers that they stood for."""

    def __init__(self):
        self.place = {}
        self.values = torch.zeros(UNKNOWNS, WIDTH, dtype=torch.float64)

    def note(self, kind, keys, rows):
        """Numbers [n, P] of the unknowns (kind, key): each may be named once."""
        for key, row in zip(keys, rows, strict=True):
            name = (*kind, *key)
            known = self.place.setdefault(name, len(self.place))
            fresh = known == len(self.place) - 1 and not self.values[known].any()
            assert fresh or torch.equal(self.values[known], row), f"{name} names two different things"
            self.values[known] = row

    def symbols(self, kind, keys):
        """The same unknowns as rows of coefficients [n, U]."""
        rows = torch.zeros(len(keys), UNKNOWNS, dtype=torch.float64)
        for row, key in zip(rows, keys, strict=True):
            row[self.place[(*kind, *key)]] = 1.0
        return rows


class Objective:
    """First models and gradients, written down or as symbols."""

    def __init__(self, book, numbers=None):
        self.book, self.numbers = book, numbers

    def _rows(self, kind, make):
        keys = [(client,) for client in range(CLIENTS)]
        if self.numbers is None:
            return self.book.symbols(kind, keys)
        rows = make()
        self.book.note(kind, keys, rows)
        return rows

    def theta0(self):
        return self._rows(("theta0",), lambda: self.numbers.theta0())

    def grad(self, theta, number):
        return self._rows(("grad", number), lambda: self.numbers.grad(theta, number))

    def minimise(self, linear, curvature, number):
        """Where ∇f(w) + b + cw = 0: with the gradient for an unknown, w is linear in it."""
        gradient = self._rows(
            ("grad", number),
            lambda: -linear - curvature * self.numbers.minimise(linear, curvature, number),
        )
        return -(gradient + linear) / curvature


class Randomness:
    """Noise, written down or as symbols; words are for numbers only."""

    def __init__(self, book, numbers=None):
        self.book, self.numbers = book, numbers

    def rows(self, tag, law, tick, source, target, width=None):
        other = torch.full_like(source, -1) if target is None else target
        keys = list(zip(source.tolist(), other.tolist(), strict=True))
        if self.numbers is None:
            rows = self.book.symbols(("noise", tag, tick), keys)
        else:
            rows = self.numbers.rows(tag, law, tick, source, target, width).tensor()
            if rows.shape[1] == WIDTH:
                self.book.note(("noise", tag, tick), keys, rows)
        return LazyRows(len(rows), rows.shape[1], rows.dtype, rows.device, lambda index: rows[index])

    def words(self, tag, tick, source, width):
        assert self.numbers is not None, "words are drawn outside of nonlinear"
        return self.numbers.words(tag, tick, source, width)


class Nonlinear:
    """The `apply` of Clients at one moment."""

    def __init__(self, book, tick, on_numbers):
        self.book, self.tick, self.on_numbers, self.used = book, tick, on_numbers, set()

    def __call__(self, tag, function, rows):
        assert tag not in self.used, (
            f"nonlinear {tag!r} twice in one iteration: the audit would take them for one"
        )
        self.used.add(tag)
        kind, keys = ("nonlinear", tag, self.tick), [(client,) for client in range(CLIENTS)]
        if not self.on_numbers:
            return self.book.symbols(kind, keys)
        out = function(rows)
        self.book.note(kind, keys, out)
        return out


def run(algorithm, simulation, book, on_numbers):
    """The messages of a run, on numbers [n, P] or on coefficients [n, U]."""
    transcript = Transcript()
    here = replace(
        simulation.here,
        net=Recorder(simulation.net, transcript),
        objective=Objective(book, simulation.here.objective if on_numbers else None),
        randomness=Randomness(book, simulation.here.randomness if on_numbers else None),
    )
    state = algorithm.start(replace(here, apply=Nonlinear(book, 0, on_numbers)))
    for t in range(STEPS):
        state = algorithm.step(state, replace(here.at(t), apply=Nonlinear(book, t + 1, on_numbers)))
    return transcript.messages


def both_ways(case):
    """The unknowns of a run, and its messages in numbers and in symbols."""
    kind, options = ALGORITHMS[case.split(",")[0]], CASES[case]
    rate = {"lr": 0.05} if "lr" in kind.__dataclass_fields__ else {}
    algorithm = kind(**rate, **options)
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    root = draw(CLIENTS, WIDTH, WIDTH)
    task = tacit.quadratic(
        root @ root.mT + torch.eye(WIDTH), draw(CLIENTS, WIDTH), theta0=draw(CLIENTS, WIDTH)
    )
    simulation = Simulation(algorithm, task, GRAPH, seed=2, gradients="looped")
    book = Book()
    numbers = run(algorithm, simulation, book, on_numbers=True)
    assert len(book.place) <= UNKNOWNS
    return book, numbers, run(algorithm, simulation, book, on_numbers=False)


@pytest.mark.parametrize("case", CASES)
def test_messages_are_the_linear_combinations_that_the_symbols_say(case):
    book, numbers, symbols = both_ways(case)
    assert [message.tag for message in symbols] == [message.tag for message in numbers]
    assert numbers
    for number, symbol in zip(numbers, symbols, strict=True):
        torch.testing.assert_close(symbol.rows @ book.values, number.rows, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("case", "leaks"), [("defl-vp", True), ("defl-vp, private", False)])
def test_with_private_variates_no_message_has_a_gradient_in_it(case, leaks):
    """Every message is made of first models and responses; as published, the variates are made of gradients."""
    book, _, symbols = both_ways(case)
    gradients = [place for name, place in book.place.items() if name[0] == "grad"]
    assert gradients
    tags = {message.tag for message in symbols if bool((message.rows[:, gradients] != 0).any())}
    assert tags == ({"variate"} if leaks else set())
