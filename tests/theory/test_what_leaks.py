"""What messages reveal, as theorems on small graphs, and why the audit can be trusted.

Variances of the noise on a gradient are in units of one mask, so they count masks.
"""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st

import tacit
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import evidence
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.record.transcript import Keep, Message, Transcript
from tacit.record.unknowns import Unknown

STEPS = 6
RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
LAPLACE, GAUSSIAN = tacit.Laplace(0.3), tacit.Gaussian(0.3)
HIDDEN = np.inf

HEAVY = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}

CASES = {
    "dsgt": tacit.DSGT(lr=0.05),
    "lppa": tacit.LPPA(lr=0.05, noise=LAPLACE),
    "lppa sent": tacit.LPPA(lr=0.05, noise=LAPLACE, masks="sent"),
    "lppa fresh": tacit.LPPA(lr=0.05, noise=LAPLACE, fresh=True),
    "dp-dsgt": tacit.DPDSGT(lr=0.05, noise=LAPLACE),
    "dp-dsgt every": tacit.DPDSGT(lr=0.05, noise=LAPLACE, inject="every"),
    "dsg": tacit.DSG(lr=0.05),
    "edsg": tacit.EDSG(lr=0.05),
    "dsgt heavy": tacit.DSGT(lr=0.05, **HEAVY),
    "lppa heavy": tacit.LPPA(lr=0.05, noise=LAPLACE, **HEAVY),
    "lppa fresh heavy": tacit.LPPA(lr=0.05, noise=LAPLACE, fresh=True, **HEAVY),
    "dsg heavy": tacit.DSG(lr=0.05, **HEAVY),
    "edsg heavy": tacit.EDSG(lr=0.05, **HEAVY),
    "dsg adam": tacit.DSG(lr=0.05, optimizer="adam"),
    "fedavg adam": tacit.FedAvg(lr=0.05, optimizer="adam"),
    "defl-vp": tacit.DeFLVP(lr=0.05),
    "defl-vp private": tacit.DeFLVP(lr=0.05, private_variates=True),
    "fedavg": tacit.FedAvg(lr=0.05),
    "pdmm": tacit.PDMM(noise=GAUSSIAN),
    "pdmm sent": tacit.PDMM(noise=GAUSSIAN, masks="sent"),
    "pdmm exact": tacit.PDMM(noise=GAUSSIAN, solver=tacit.ExactSolver()),
    "admm": tacit.ADMM(noise=GAUSSIAN),
}


@cache
def symbols(case, graph=RING, steps=STEPS):
    return run_on_symbols(CASES[case], graph, steps)


def leakage_of(case, adversary, victim=0, graph=RING, steps=STEPS):
    adversary = Adversary.parse(adversary) if isinstance(adversary, str) else adversary
    return Leakage(Knowledge(symbols(case, graph, steps), adversary), victim)


def masks(case, leakage, question):
    """Variances in units of the law of one mask."""
    law = getattr(CASES[case], "noise", None)
    return leakage.of(question).variances / (law.variance if law else 1.0)


def check(case, adversary, **expected):
    """Compare variances with those written as "2 2 0 ?", where ? is hidden."""
    leakage = leakage_of(case, adversary)
    for question, text in expected.items():
        variances = [HIDDEN if word == "?" else float(word) for word in text.split()]
        found = masks(case, leakage, question)
        np.testing.assert_allclose(found, variances, rtol=1e-6, err_msg=question)


# --- Gradient tracking ---
#
# Clients take seven gradients and send messages in six iterations, so no message has the last
# gradient. A neighbour learns about the other side of the ring through models, each one iteration
# later: γ₀ of iteration 5 needs γ₄ of iteration 4, which needs θ₄ of iteration 5, which needs θ₀ of
# iteration 6. That is too late.

NEAR = {"difference": "0 0 0 0 ? ?", "sum": "0 0 0 0 ? ? ?"}  # exact for one neighbour
ALL = {"difference": "0 0 0 0 0 ?", "sum": "0 0 0 0 0 0 ?"}  # exact for those that see everything


def test_dsgt_gives_neighbours_the_gradients():
    check("dsgt", "curious(1)", gradient="0 0 0 0 0 ? ?", **NEAR)
    for everything in ("curious(1,4)", "eavesdropper"):
        check("dsgt", everything, gradient="0 0 0 0 0 0 ?", **ALL)
    check("dsgt", "curious(2)", gradient="0 0 0 0 ? ? ?")


def test_lppa_hides_gradients_from_one_neighbour_but_not_differences_and_sums():
    """Client 0 has two masks with each neighbour: one neighbour lacks two, an outsider four."""
    check("lppa", "curious(1)", gradient="2 2 2 2 2 ? ?", **NEAR)
    check("lppa", "eavesdropper", gradient="4 4 4 4 4 4 ?", **ALL)
    check("lppa", "curious(1)+eavesdropper", gradient="2 2 2 2 2 2 ?", **ALL)


def test_fresh_masks_hide_differences_too_and_add_up():
    """The tracker contains all masks so far, a difference those of one iteration."""
    check("lppa fresh", "curious(1)", gradient="2 4 6 8 10 ? ?", difference="2 2 2 2 ? ?")
    check("lppa fresh", "eavesdropper", gradient="4 8 12 16 20 24 ?", difference="4 4 4 4 4 ?")
    check("lppa fresh", "curious(1)", sum=NEAR["sum"])
    check("lppa fresh", "eavesdropper", sum=ALL["sum"])


@pytest.mark.parametrize("case", ["lppa", "lppa sent", "lppa fresh"])
def test_two_colluding_neighbours_undo_all_masks(case):
    assert leakage_of(case, "curious(1,4)").honest_component == {0}
    check(case, "curious(1,4)", gradient="0 0 0 0 0 0 ?", **ALL)
    # Client 2 has an honest neighbour, and two masks with it.
    other = leakage_of(case, "curious(1,4)", victim=2)
    assert other.honest_component == {2, 3}
    assert masks(case, other, "gradient")[0] == pytest.approx(2)


def test_one_neighbour_is_enough_where_there_is_only_one():
    star = tacit.Topology.star(4).mixing("metropolis", lazy=True)
    leaf = leakage_of("lppa", "curious(0)", victim=2, graph=star)
    hub = leakage_of("lppa", "curious(1)", victim=0, graph=star)
    assert [one.of("gradient").statuses[0] for one in (leaf, hub)] == ["exact", "noisy"]


def test_own_noise_remains_but_cancels_in_differences_if_added_once():
    check("dp-dsgt", "curious(1)", gradient="1 1 1 1 1 ? ?", difference=NEAR["difference"])
    check("dp-dsgt every", "curious(1)", gradient="1 2 3 4 5 ? ?", difference="1 1 1 1 ? ?")
    for everything in ("curious(1,4)", "eavesdropper"):
        check("dp-dsgt", everything, gradient="1 1 1 1 1 1 ?", difference=ALL["difference"])
        check("dp-dsgt every", everything, gradient="1 2 3 4 5 6 ?", difference="1 1 1 1 1 ?")
    # The noise of all clients remains in the sum.
    check("dp-dsgt", "eavesdropper", sum="5 5 5 5 5 5 ?")
    check("dp-dsgt", "curious(1)", sum="4 4 4 4 ? ? ?")


@pytest.mark.parametrize(("derived", "sent"), [("lppa", "lppa sent"), ("pdmm", "pdmm sent")])
@pytest.mark.parametrize(
    "adversary", ["curious(1)", "curious(1,4)", "eavesdropper", "curious(1)+eavesdropper"]
)
def test_masks_sent_privately_reveal_what_derived_masks_reveal(derived, sent, adversary):
    for question in ("gradient", "difference", "sum", "model"):
        pair = [leakage_of(case, adversary).of(question).variances for case in (derived, sent)]
        np.testing.assert_allclose(*pair, rtol=1e-6)


# --- Diffusion, variance reduction, a server ---


@pytest.mark.parametrize("case", ["dsg", "edsg"])
def test_diffusion_reveals_nothing_to_one_neighbour_and_almost_all_to_two(case):
    """One message per iteration: only an adversary that knows the model finds the gradient."""
    hidden = {"gradient": "? ? ? ? ? ?", "difference": "? ? ? ? ?", "sum": "? ? ? ? ? ?"}
    for one in ("curious(1)", "curious(2)", "curious(1,2)", "curious(2,3)"):
        check(case, one, **hidden, model="? ? ? ? ? ? ?")
    later = {"gradient": "? 0 0 0 0 0", "difference": "? 0 0 0 0", "sum": "? 0 0 0 0 0"}
    every = {"gradient": "0 0 0 0 0 0", "difference": "0 0 0 0 0", "sum": "0 0 0 0 0 0"}
    for everything in ("curious(1,4)", "eavesdropper"):
        check(case, everything, **later, model="? 0 0 0 0 0 0")
        check(case, everything + "+theta0", **every)
    check(case, "curious(1)+theta0", gradient="0 ? ? ? ? ?")


def test_published_variates_reveal_gradients_and_private_ones_do_not():
    """The variate of iteration 6, which has the last gradient, is never sent."""
    for everyone in ("curious(1)", "curious(1,4)", "eavesdropper", "eavesdropper+theta0"):
        check("defl-vp", everyone, gradient="0 0 0 0 0 ?", difference="0 0 0 0 ?")
    check("defl-vp", "curious(2)", gradient="? ? ? ? ? ?")


OTHERS = [c for size in range(1, 5) for c in combinations(range(1, 5), size)]


def test_no_adversary_learns_gradients_from_private_variates():
    outsider = Adversary.eavesdropper() | Adversary(knows_theta0=True)
    curious = [Adversary.curious(*corrupt) for corrupt in OTHERS]
    for adversary in (outsider, *curious, *(one | outsider for one in curious)):
        leakage = leakage_of("defl-vp private", adversary)
        for question in ("gradient", "difference", "sum"):
            assert set(leakage.of(question).statuses) == {"hidden"}, (str(adversary), question)


def test_a_server_learns_every_gradient_and_clients_the_sum():
    every = {"gradient": "0 0 0 0 0 0", "difference": "0 0 0 0 0", "model": "0 0 0 0 0 0 0"}
    for adversary in ("server", "eavesdropper", "curious(2)+server"):
        check("fedavg", adversary, **every, sum="0 0 0 0 0 0")
    hidden = {"gradient": "? ? ? ? ? ?", "difference": "? ? ? ? ?"}
    for corrupt in OTHERS[:-1]:
        check("fedavg", Adversary.curious(*corrupt), **hidden, sum="0 0 0 0 0 0")
    check("fedavg", "curious(1,2,3,4)", gradient="0 0 0 0 0 0")  # a sum of one


# --- Optimizers of clients ---


@pytest.mark.parametrize("case", ["dsgt", "lppa", "lppa fresh"])
@pytest.mark.parametrize("adversary", ["curious(1)", "curious(2)", "curious(1,4)", "eavesdropper"])
def test_momentum_and_weight_decay_hide_nothing_of_trackers_and_add_nothing(case, adversary):
    """Both are functions of models and trackers, which are sent anyway."""
    for question in ("gradient", "difference", "sum", "model"):
        pair = [leakage_of(c, adversary).of(question).variances for c in (case, f"{case} heavy")]
        np.testing.assert_allclose(*pair, rtol=1e-6)


@pytest.mark.parametrize("case", ["dsg heavy", "edsg heavy"])
def test_who_sees_models_before_and_after_solves_for_the_gradients_of_momentum(case):
    every = {"gradient": "0 0 0 0 0 0", "difference": "0 0 0 0 0", "sum": "0 0 0 0 0 0"}
    for everything in ("curious(1,4)", "eavesdropper"):
        check(case, everything + "+theta0", **every)
        # Without the first model, the first gradient is hidden, and with it a part of all others.
        leakage = leakage_of(case, everything)
        assert leakage.of("model").indices("exact") == list(range(1, STEPS + 1))
        assert leakage.subspace.dimension == STEPS - 1
    check(case, "curious(1)+theta0", gradient="0 ? ? ? ? ?")


def test_directions_of_adam_are_known_and_claimed_as_no_protection():
    """A function of own gradients: each known model gives the output of one step of Adam."""
    for everything in ("curious(1,4)+theta0", "eavesdropper+theta0"):
        leakage = leakage_of("dsg adam", everything)
        known = [leakage.images[k].tag for k in leakage.of("image").indices("exact")]
        assert known == ["direction"] * STEPS
        assert leakage.strongest == ("image", "exact")
    assert leakage_of("dsg adam", "curious(1)+theta0").strongest == ("image", "exact")
    # At a server it is a function of the mean, which everybody knows.
    check("fedavg adam", "curious(2)", gradient="? ? ? ? ? ?", sum="0 0 0 0 0 0")
    check("fedavg adam", "server", gradient="0 0 0 0 0 0")


# --- Distributed optimization ---

SPLIT = tacit.Topology.from_edges(
    [(0, 1), (1, 2), (0, 2), (3, 4), (5, 0), (5, 3), (6, 1), (6, 4), (5, 6)], clients=7
).mixing("metropolis", lazy=True)


@pytest.mark.parametrize("case", ["pdmm", "pdmm exact", "admm"])
@pytest.mark.parametrize("victim", range(5))
def test_proposition_1_on_a_graph_that_corrupt_clients_split(case, victim):
    """Noisy gradients (21), exact differences (22), exact sums over the honest component (23).

    The noise is one z⁰ per honest neighbour (21). The difference of z⁰ at both ends of an edge is
    known (34), so the best estimate removes half of each. A solver that starts from the secret w⁰
    hides the first gradient.
    """
    leakage = leakage_of(case, "curious(5,6)+eavesdropper", victim, SPLIT)
    component, neighbours = ({0, 1, 2}, 2) if victim < 3 else ({3, 4}, 1)
    known = slice(0 if case == "pdmm exact" else 1, None)
    assert leakage.honest_component == component == {u.client for u in leakage.terms("sum", 0)[0]}
    gradient, difference, total = (
        masks(case, leakage, q) for q in ("gradient", "difference", "sum")
    )
    np.testing.assert_allclose(gradient[known], neighbours / 2, rtol=1e-6)
    assert not difference[known].any()
    assert not total[known].any()
    assert np.isinf([*gradient, *total, *difference]).sum() == (0 if case == "pdmm exact" else 3)
    know = leakage.knowledge
    parts = [
        part for size in range(1, len(component)) for part in combinations(sorted(component), size)
    ]
    sums = [know.vector(*[(Unknown("gradient", 3, j), 1.0) for j in part]) for part in parts]
    assert not know.exact(np.stack(sums)).any()  # of no smaller group


@pytest.mark.parametrize(("case", "first"), [("pdmm", "?"), ("pdmm exact", "{0}")])
def test_pdmm_on_the_ring(case, first):
    def series(variance, count):
        return " ".join([first.format(variance)] + [str(variance)] * (count - 1))

    exact = {"difference": series(0, 5), "sum": series(0, 6)}
    check(case, "eavesdropper", gradient=series(1, 6), **exact)
    check(case, "curious(1)+eavesdropper", gradient=series(0.5, 6), sum=series(0, 6))
    check(case, "curious(1,4)", gradient=series(0, 6), difference=series(0, 5))
    assert leakage_of(case, "curious(1)").of("gradient").indices("exact") == []


OCTAHEDRON = tacit.Topology.from_edges(
    [(i, j) for i, j in combinations(range(6), 2) if i + j != 5], clients=6
).mixing("metropolis", lazy=True)  # 4-regular; 5 is no neighbour of 0
AROUND = [frozenset(c) for size in range(5) for c in combinations(range(1, 5), size)]


def surrounded(case, corrupt, listens):
    """The variances of the victim's gradients in masks."""
    adversary = Adversary(corrupt=corrupt, listens=listens)
    return masks(case, leakage_of(case, adversary, graph=OCTAHEDRON, steps=4), "gradient")


@pytest.mark.parametrize(
    ("case", "per_neighbour"), [("pdmm", 0.5), ("pdmm exact", 0.5), ("lppa", 2)]
)
def test_remark_3_the_gap_closes_as_corrupt_clients_surround_the_victim(case, per_neighbour):
    """Each corrupt neighbour removes one mask; the gap is zero if and only if all are corrupt."""
    for corrupt in AROUND:
        variances = surrounded(case, corrupt, listens=True)[1:3]
        np.testing.assert_allclose(variances, per_neighbour * (4 - len(corrupt)), rtol=1e-6)
        assert (variances == 0).all() == (len(corrupt) == 4)


@pytest.mark.parametrize("case", ["pdmm", "pdmm exact", "lppa", "lppa fresh"])
def test_the_gap_closes_without_an_eavesdropper_too(case):
    known = {corrupt: surrounded(case, corrupt, listens=False) for corrupt in AROUND if corrupt}
    for corrupt, variances in known.items():
        for larger in (other for other in known if corrupt < other):
            assert (known[larger] <= variances * (1 + 1e-6)).all()
        assert (variances[1:3] == 0).all() == (len(corrupt) == 4)
        assert len(corrupt) == 4 or (variances[1:3] > 0).all()


# --- Properties ---

WIDE = 4000  # numbers per model: enough to measure a variance

GRAPHS = st.builds(
    lambda n, p, seed: tacit.Topology.erdos_renyi(n, p, seed=seed).mixing("metropolis", lazy=True),
    n=st.integers(3, 6),
    p=st.sampled_from([0.4, 0.6, 1.0]),
    seed=st.integers(0, 50),
)
LINEAR = [case for case in CASES if case not in ("defl-vp private", "dsg adam")]


def no_more(after, before):
    """Variances do not grow, and what was exact stays exact."""
    assert (after <= before * (1 + 1e-6)).all()
    assert (after[before == 0] == 0).all()


@settings(max_examples=30, deadline=None)
@given(graph=GRAPHS, case=st.sampled_from(LINEAR), data=st.data())
def test_larger_coalitions_never_know_less(graph, case, data):
    run = run_on_symbols(CASES[case], graph, 4)
    order = data.draw(st.permutations(range(graph.clients)))
    sizes = sorted(data.draw(st.tuples(*[st.integers(0, graph.clients - 1)] * 2)))
    listens = sorted(data.draw(st.tuples(st.booleans(), st.booleans())))
    pair = [
        Adversary(frozenset(order[:k]), listens=ears)
        for k, ears in zip(sizes, listens, strict=True)
    ]
    fewer, more = (Leakage(Knowledge(run, adversary), order[-1]) for adversary in pair)
    for question in ("gradient", "difference"):
        no_more(more.of(question).variances, fewer.of(question).variances)
    models = [f.of("model").indices("exact") for f in (fewer, more)]
    assert set(models[0]) <= set(models[1])


@settings(max_examples=25, deadline=None)
@given(graph=GRAPHS, case=st.sampled_from(LINEAR), data=st.data())
def test_more_iterations_never_reveal_less(graph, case, data):
    corrupt = data.draw(st.sets(st.integers(1, graph.clients - 1), max_size=graph.clients - 2))
    adversary = Adversary(frozenset(corrupt), listens=not corrupt or data.draw(st.booleans()))
    shorter, longer = (
        Leakage(Knowledge(run_on_symbols(CASES[case], graph, steps), adversary), 0)
        for steps in (2, 4)
    )
    for question in ("gradient", "difference", "sum"):
        before = shorter.of(question).variances
        no_more(longer.of(question).variances[: len(before)], before)
    assert set(shorter.of("model").indices("exact")) <= set(longer.of("model").indices("exact"))


def separable(clients, seed):
    """½ aθ² − bθ in every coordinate, in float64."""
    generator = torch.Generator().manual_seed(seed)
    a = 0.5 + torch.rand(clients, WIDE, dtype=torch.float64, generator=generator)
    b, start = torch.randn(2, clients, WIDE, dtype=torch.float64, generator=generator)

    def loss(theta, a, b):
        return 0.5 * theta @ (a * theta) - b @ theta

    def proximal(linear, curvature, a, b):
        return (b - linear) / (a + curvature)

    task = tacit.Task(start, list(zip(a, b, strict=True)), loss=loss)
    return task.with_proximal(proximal), a, b


def recorded(case, task, graph, steps, insides, theta0=False):
    """The transcript and the models; the numbers do not depend on `insides`."""
    transcript = Transcript(Keep(insides=tuple(insides), theta0=theta0))
    simulation = Simulation(
        Setting(CASES[case], task, graph, seed=4, gradients="stacked"), transcript=transcript
    )
    simulation.start()
    models = [simulation.state.theta.clone()]
    for _ in range(steps):
        simulation.step()
        models.append(simulation.state.theta.clone())
    return transcript, models


@pytest.mark.parametrize("case", LINEAR)
@settings(max_examples=2, deadline=None)
@given(
    graph=GRAPHS,
    chosen=st.sets(st.integers(1, 5), max_size=3),
    listens=st.booleans(),
    seed=st.integers(0, 9),
)
@example(graph=RING, chosen={1}, listens=True, seed=0)
@example(graph=RING, chosen={1, 3}, listens=False, seed=1)  # an odd seed: first models are known
def test_evidence_is_true_or_has_the_predicted_noise(case, graph, chosen, listens, seed):
    """Evidence comes only from messages and from what corrupt clients hold."""
    steps = 3
    corrupt = frozenset(client for client in chosen if client < graph.clients)
    theta0 = seed % 2 == 1
    adversary = Adversary(corrupt, listens=listens or not corrupt, knows_theta0=theta0)
    task, a, b = separable(graph.clients, seed)
    transcript, models = recorded(case, task, graph, steps, sorted(corrupt), theta0)
    assert all(adversary.knows(unknown) for unknown in transcript.held)
    truth = recorded(case, task, graph, steps, insides=range(graph.clients))[0].held
    leakage = Leakage(Knowledge(run_on_symbols(CASES[case], graph, steps), adversary), 0)

    for question in ("gradient", "difference", "sum", "model"):
        series = leakage.of(question)
        for index, status in enumerate(series.statuses):
            variance = series.variances[index]
            proof = evidence(leakage, question, index, transcript)
            assert (proof is None) == (status == "hidden")
            if proof is None or (question == "model" and status != "exact"):
                continue
            if question == "model":
                true = models[index][0]
            else:
                true = sum(
                    c * truth[u] for c, u in zip(proof.coefficients, proof.terms, strict=True)
                )
            off = proof.values - true
            if status == "exact":
                assert proof.deviation == 0
                assert float(off.abs().max()) <= 1e-6 * float(true.abs().max())
            else:
                assert proof.deviation**2 == pytest.approx(variance)
                assert float(off.square().mean()) == pytest.approx(variance, rel=0.15)
            if proof.points is not None:
                for term, point in zip(proof.terms, proof.points, strict=True):
                    at = a[term.client] * point - b[term.client]
                    torch.testing.assert_close(at, truth[term], rtol=1e-6, atol=1e-6)


# --- Optimality of the estimate ---


def knowledge_of(secrets, noise):
    """An eavesdropper that sees rows [k, s] over secrets plus rows [k, m] over noise."""
    rows = torch.as_tensor(np.concatenate((secrets, noise), axis=1))
    unknowns = [Unknown("gradient", k, 0) for k in range(secrets.shape[1])]
    unknowns += [Unknown("noise", k, 0, tag="n") for k in range(noise.shape[1])]
    message = Message(1, "mix", "x", rows, torch.zeros(len(rows), dtype=torch.int64))
    transcript = Transcript(clients=2, edges=[(0, 1), (1, 0)], steps=1, messages=[message])
    laws = {u: tacit.Gaussian(1.0) for u in unknowns if u.kind == "noise"}
    return Knowledge(SymbolicRun(transcript, unknowns, laws), Adversary.eavesdropper())


def least_variance(secrets, noise, target):
    """The least ‖aᵀN‖² with aᵀS = c, by the optimality conditions; infinite without solution."""
    k, s = secrets.shape
    system = np.block([[noise @ noise.T, secrets], [secrets.T, np.zeros((s, s))]])
    a = np.linalg.lstsq(system, np.concatenate((np.zeros(k), target)), rcond=1e-11)[0][:k]
    if np.abs(secrets.T @ a - target).max() > 1e-7:
        return np.inf
    return np.square(a @ noise).sum()


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6))
def test_no_linear_unbiased_estimate_has_less_variance(data, seed):
    """Compared with dense generalized least squares; small integers make ranks deficient."""
    k, s, m = (data.draw(st.integers(1, most)) for most in (7, 4, 6))
    rng = np.random.default_rng(seed)
    secrets, noise = (rng.integers(-1, 2, size=(k, width)).astype(float) for width in (s, m))
    scale = data.draw(st.sampled_from([1.0, 1e-2, 30.0]))
    noise *= scale
    know = knowledge_of(secrets, noise)
    targets = np.concatenate(
        (np.eye(s), rng.integers(-2, 3, size=(3, s)), rng.normal(size=(1, k)) @ secrets)
    )
    queries = np.pad(targets, ((0, 0), (0, m)))
    expected = np.array([least_variance(secrets, noise, target) for target in targets])
    np.testing.assert_allclose(know.variances(queries), expected, rtol=1e-6, atol=1e-9)
    for vector, variance in zip(queries, expected, strict=True):
        answer = know.estimate(vector)
        assert answer.status == (
            "hidden" if np.isinf(variance) else "exact" if variance < 1e-9 else "noisy"
        )
        if answer.combination is None:
            continue
        total = np.zeros(s + m)
        for seen, a in answer.combination.messages:
            total += a * know.run.transcript.messages[seen.message].rows[seen.row].numpy()
        np.testing.assert_allclose(total[:s], vector[:s], atol=1e-8)  # unbiased
        assert np.square(total[s:]).sum() == pytest.approx(variance, rel=1e-6, abs=1e-9)
        noise_left = [dict(answer.noise).get(u, 0.0) for u in know.run.unknowns[s:]]
        np.testing.assert_allclose(noise_left, total[s:], atol=1e-5)


def test_a_zero_target_is_exact_and_an_unseen_one_hidden():
    know = knowledge_of(np.array([[1.0, 0.0]]), np.array([[0.0]]))
    np.testing.assert_array_equal(
        know.variances(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])), [0, 0, HIDDEN]
    )
