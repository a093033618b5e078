"""Small random algorithms: what the audit says against brute force written from the equations.

A program is a random text over a client's model, a second state, its gradient, own noise and masks
that neighbours share. The library runs it as an algorithm. Here it is interpreted once more, over
a prime field, where cancellation is exact, and knowledge is a matter of ranks.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from support.bounds import DELTA, ledger_of, threat, whole_run_of
from tacit import Gaussian, Topology
from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.ledger import compute_ledger
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.replay import replay
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.privacy.clipping import Clip

PRIME = 2_147_483_629
pytestmark = pytest.mark.thorough
# A thousand cases in all four tests with fresh examples, 400 in the thorough profile.
many = settings(max_examples={20: 30, 50: 100}.get(settings().max_examples, 250))
LAW, CLIP, STEPS = Gaussian(0.5), Clip(1.0), 3
COEFFICIENTS = [Fraction(x, 2) for x in (-4, -2, -1, 1, 2, 4)]
GRAPHS = {
    "ring": Topology.ring(4),
    "path": Topology.from_edges([(0, 1), (1, 2), (2, 3)], 4),
    "complete": Topology.complete(4),
    "star": Topology.from_edges([(0, 1), (0, 2), (0, 3)], 4),
}
NONLINEAR = {
    "sign": torch.sign,
    "clamp": lambda x: x.clamp(-1, 1),
    "square": lambda x: x * x.abs(),
    "sorted": lambda x: x.sort(dim=1).values,
    "scaled by its norm": lambda x: x / x.norm(dim=1, keepdim=True).clamp(min=1e-30),
}


@dataclass(frozen=True)
class Program:
    """Linear combinations by name of their terms; messages are mixed one after the other."""

    messages: tuple[dict[str, Fraction], ...]
    theta: dict[str, Fraction]
    extra: dict[str, Fraction]
    bent: tuple[int, str] | None = None  # a message and the undeclared function it goes through


def combinations_of(names, least=1):
    terms = st.dictionaries(st.sampled_from(names), st.sampled_from(COEFFICIENTS), max_size=4)
    return terms.filter(lambda terms: len(terms) >= least)


@st.composite
def programs(draw, bent=False):
    names = ["theta", "extra", "g", "noise", "mask"]
    messages = []
    for k in range(draw(st.integers(1, 2))):
        messages.append(draw(combinations_of(names)))
        names = [*names, f"mixed{k}"]
    function = None
    if bent:
        index = draw(st.integers(0, len(messages) - 1))
        messages[index] = {**messages[index], "g": Fraction(1)}
        function = index, draw(st.sampled_from(list(NONLINEAR)))
    updates = [draw(combinations_of(names)) for _ in range(2)]
    return Program(tuple(messages), *updates, function)


@dataclass(frozen=True)
class State:
    theta: torch.Tensor
    extra: torch.Tensor


@dataclass(frozen=True)
class Written(Algorithm):
    program: Program
    name = "random"

    def start(self, here) -> State:
        return State(here.theta0, 0.0 * here.theta0)

    def step(self, s, here):
        p = self.program
        values = {"theta": s.theta, "extra": s.extra, "g": here.grad(s.theta)}
        values["noise"] = here.noise("own", LAW)
        values["mask"] = here.graph.net_out(*here.edge_noise("mask", LAW))

        def combined(terms):
            return sum(float(c) * values[name] for name, c in terms.items())

        for k, terms in enumerate(p.messages):
            sent = combined(terms)
            if p.bent is not None and p.bent[0] == k:
                sent = NONLINEAR[p.bent[1]](sent)
            (values[f"mixed{k}"],) = here.net.mix(**{f"m{k}": sent})
        return State(combined(p.theta), combined(p.extra))


class BruteForce:
    """The same program over a prime field, and what ranks say about it."""

    def __init__(self, program, graph):
        self.columns, self.rows = {}, []  # rows: (message number, source, coefficients)
        n = graph.clients
        fractions = [
            [Fraction(float(graph.weights[i, j])).limit_denominator(1000) for j in range(n)]
            for i in range(n)
        ]
        weights = np.array([[field(x) for x in row] for row in fractions], dtype=object)
        self.size = 1 + n * STEPS * 2 + len(graph.edges) * STEPS
        unit = self.unit
        theta = np.stack([unit(("theta0",)) for _ in range(n)])
        extra = np.zeros_like(theta)
        for t in range(STEPS):
            values = {
                "theta": theta,
                "extra": extra,
                "g": np.stack([unit(("g", t, i)) for i in range(n)]),
                "noise": np.stack([unit(("noise", t, i)) for i in range(n)]),
            }
            mask = np.zeros_like(theta)
            for i, j in graph.edges.tolist():
                shared = unit(("mask", t, i, j))
                mask[i], mask[j] = mask[i] + shared, mask[j] - shared
            values["mask"] = mask % PRIME

            def combined(terms, values=values, theta=theta):
                total = sum((field(c) * values[name] for name, c in terms.items()), 0 * theta)
                return total % PRIME

            for k, terms in enumerate(program.messages):
                sent = combined(terms)
                self.rows += [(i, sent[i]) for i in range(n)]
                values[f"mixed{k}"] = weights.dot(sent) % PRIME
            theta, extra = combined(program.theta), combined(program.extra)

    def unit(self, name):
        row = np.zeros(self.size, dtype=object)
        row[self.columns.setdefault(name, len(self.columns))] = 1
        return row

    def view(self, adversary, graph):
        """Rows that an adversary sees over what it does not hold, and the names of the columns."""
        corrupt = adversary.corrupt
        edges = graph.edges.tolist()
        seen = set(range(graph.clients)) if adversary.listens else set(corrupt)
        seen |= {i for i, j in edges if j in corrupt}
        own = {
            name
            for name in self.columns
            if (name[0] == "theta0" and corrupt) or corrupt & set(name[2:])
        }
        hidden = [name for name in self.columns if name not in own]
        rows = [row for source, row in self.rows if source in seen]
        matrix = np.array(rows, dtype=object)[:, [self.columns[name] for name in hidden]]
        return matrix, hidden


def field(number):
    return number.numerator * pow(number.denominator, -1, PRIME) % PRIME


def rank(matrix):
    rows = np.array(matrix, dtype=np.int64) % PRIME
    found = 0
    for column in range(rows.shape[1] if rows.size else 0):
        (places,) = np.nonzero(rows[found:, column])
        if not len(places):
            continue
        pivot = found + places[0]
        rows[[found, pivot]] = rows[[pivot, found]]
        inverse = pow(int(rows[found, column]), -1, PRIME)
        rows[found] = rows[found] * inverse % PRIME
        below = np.flatnonzero(rows[found + 1 :, column]) + found + 1
        # Products of numbers below 2³¹ fit into int64.
        rows[below] = (rows[below] - rows[below, column, None] * rows[found] % PRIME) % PRIME
        found += 1
        if found == len(rows):
            break
    return found


def known(matrix, vector):
    return rank(np.vstack((matrix, vector))) == rank(matrix)


adversaries = st.sampled_from(
    ["curious(1)", "curious(2)", "curious(1,2)", "curious(1,3)", "curious(1,2,3)", "eavesdropper"]
).map(Adversary.parse)
graphs = st.sampled_from(list(GRAPHS)).map(
    lambda name: GRAPHS[name].mixing("metropolis", lazy=True)
)


@many
@given(programs(), graphs, adversaries)
def test_what_is_known_is_what_ranks_say(program, graph, adversary):
    run = run_on_symbols(Written(program), graph, STEPS, common_start=True)
    assert replay(Written(program), graph, run, sizes=(1.0,)) == []
    leakage = Leakage(Knowledge(run, adversary), 0)
    matrix, hidden = BruteForce(program, graph).view(adversary, graph)

    def vector(*terms):
        row = np.zeros(len(hidden), dtype=object)
        for name, coefficient in terms:
            row[hidden.index(name)] += coefficient
        return row % PRIME

    gradients = [known(matrix, vector((("g", t, 0), 1))) for t in range(STEPS)]
    assert [s == "exact" for s in leakage.of("gradient").statuses] == gradients
    differences = [
        known(matrix, vector((("g", t + 1, 0), 1), (("g", t, 0), -1))) for t in range(STEPS - 1)
    ]
    assert [s == "exact" for s in leakage.of("difference").statuses] == differences
    sums = [
        known(matrix, vector(*((("g", t, i), 1) for i in leakage.honest_component)))
        for t in range(STEPS)
    ]
    assert [s == "exact" for s in leakage.of("sum").statuses] == sums
    # All combinations of the victim's gradients: rank − rank without their columns.
    others = [k for k, name in enumerate(hidden) if not (name[0] == "g" and name[2] == 0)]
    assert leakage.subspace.dimension == rank(matrix) - rank(matrix[:, others])
    for index in range(leakage.subspace.dimension):
        terms, coefficients = leakage.subspace.terms(index)
        assert all(unknown.client == 0 for unknown in terms)
        fractions = [Fraction(c).limit_denominator(10**6) for c in coefficients]
        if all(abs(float(f) - c) < 1e-9 for f, c in zip(fractions, coefficients, strict=True)):
            named = [
                (("g", u.when - 1, 0), field(f)) for u, f in zip(terms, fractions, strict=True)
            ]
            assert known(matrix, vector(*named))


@many
@given(programs(), graphs, adversaries, st.integers(0, 10**6))
def test_epsilon_is_never_below_what_a_pair_of_data_sets_shows(program, graph, adversary, seed):
    """A direction of change for each gradient gives a Gaussian pair, whose ε bounds from below."""
    run = run_on_symbols(Written(program), graph, STEPS, common_start=True)
    bound = compute_ledger(run, threat(adversary, clip=CLIP)).upper
    stronger = Adversary(adversary.corrupt, listens=True, knows_theta0=True)
    matrix, hidden = BruteForce(program, graph).view(stronger, graph)
    signal = [k for k, name in enumerate(hidden) if name[0] == "g" and name[2] == 0]
    noise = [k for k, name in enumerate(hidden) if name[0] in ("noise", "mask")]
    # A combination without noise that contains a gradient: no guarantee.
    if rank(matrix[:, [*signal, *noise]]) > rank(matrix[:, noise]):
        assert math.isinf(bound.epsilon)
        return
    if math.isinf(bound.epsilon):
        return  # The bound may be too careful.
    floats = np.array([[centred(x) for x in row] for row in matrix[:, [*signal, *noise]]])
    S, N = floats[:, : len(signal)], floats[:, len(signal) :] * LAW.scale
    best = 0.0
    rng = np.random.default_rng(seed)
    precision = np.linalg.pinv(N @ N.T, rcond=1e-12, hermitian=True)
    for signs in rng.choice([-1.0, 1.0], size=(8, len(signal))):
        shift = S @ (CLIP.sensitivity * signs)
        best = max(best, math.sqrt(max(float(shift @ precision @ shift), 0.0)))
    assert bound.epsilon >= gaussian_epsilon(DELTA, best) * (1 - 1e-6)


def centred(number):
    """The small fraction that a number of the prime field stands for."""
    # Rational reconstruction: the convergent with numerator and denominator below √(p/2).
    r0, r1, s0, s1 = PRIME, int(number), 0, 1
    while r1 * r1 * 2 > PRIME:
        q = r0 // r1
        r0, r1, s0, s1 = r1, r0 - q * r1, s1, s0 - q * s1
    return r1 / s1


@many
@given(programs(bent=True), graphs)
def test_an_undeclared_function_is_always_found(program, graph):
    algorithm = Written(program)
    try:
        run = run_on_symbols(algorithm, graph, STEPS, common_start=True)
    except Exception:
        return
    mismatches = replay(algorithm, graph, run)
    assert any(f"m{program.bent[0]}" in one.what for one in mismatches)
    for text in ("curious(1)", "eavesdropper"):
        ledger = compute_ledger(run, threat(text, clip=CLIP), mismatches)
        assert math.isinf(ledger.upper.epsilon)


# --- The bound for a whole run ---


@many
@given(programs(), graphs, adversaries, st.integers(1, 5))
def test_the_bound_for_a_whole_run_is_at_least_that_of_its_iterations(
    program, graph, adversary, steps
):
    algorithm = Written(program)
    about = {"graph": graph, "clip": CLIP}
    whole = whole_run_of(algorithm, adversary, steps, **about)
    if whole is None or math.isinf(whole.epsilon):
        return
    upper = ledger_of(algorithm, adversary, steps, **about).upper
    assert upper.epsilon <= whole.epsilon * (1 + 1e-6), upper.why
