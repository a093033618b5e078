import math
import warnings
from dataclasses import replace

import pytest
import torch

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit import Decor, Graph, Privacy, PrivateSGD, Topology
from tacit.algorithms.algorithm import tensors_of
from tacit.algorithms.private_algorithm import prepare
from tacit.algorithms.private_sgd import BiasCorrection
from tacit.core.fixed_point import MODULUS

N, SAMPLES, P = 6, 8, 5
RING = Topology.ring(N).mixing("metropolis")
PROMISE = Privacy(epsilon=3.0)
FEW_CLIENTS = Privacy(epsilon=3.0, delta=0.01, unit="client")


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X = draw(N, SAMPLES, P)
Y = draw(N, SAMPLES, seed=1)


def squares(batch_size=4, theta0=None):
    start = torch.ones(P, dtype=torch.float64) if theta0 is None else theta0
    return tacit.least_squares(X, Y, theta0=start, batch_size=batch_size)


def run(algorithm=None, task=None, graph=RING, steps=4, **options):
    given = {"privacy": PROMISE, "gradients": "looped"} | options
    return tacit.run(
        task or squares(), algorithm or PrivateSGD(lr=0.1), graph, steps=steps, **given
    )


# --- what it computes ---


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"optimizer": "adam"}], ids=str)
@pytest.mark.parametrize("promise", [PROMISE, FEW_CLIENTS], ids=["samples", "clients"])
def test_all_clients_have_one_model_in_one_place(options, promise):
    result = run(PrivateSGD(lr=0.1, **options), privacy=promise)
    for rows in tensors_of(result.state).values():
        assert rows.shape == (N, P)
        assert rows.stride(0) == 0


def test_without_noise_clipping_and_sampling_it_is_gradient_descent_on_all_data():
    result = run(
        PrivateSGD(lr=0.3, momentum=0.5),
        squares(batch_size=SAMPLES),
        steps=20,
        privacy=Privacy(epsilon=math.inf, clip=1e6),
    )
    theta, velocity = torch.ones(P, dtype=torch.float64), torch.zeros(P, dtype=torch.float64)
    x, y = X.reshape(-1, P), Y.reshape(-1)
    for _ in range(20):
        velocity = 0.5 * velocity + x.T @ (x @ theta - y) / len(x)
        theta = theta - 0.3 * velocity
    # Each client's row is rounded to multiples of the unit.
    unit = 1 / result.setting.algorithm.mechanism.code.scale
    assert float((result.theta - theta).abs().max()) < 20 * 0.3 * N * unit / len(x) / (1 - 0.5)


def test_no_clipping_is_an_infinite_bound():
    task = squares(batch_size=SAMPLES)
    far, unclipped, near = (
        run(PrivateSGD(lr=0.3), task, privacy=Privacy(epsilon=math.inf, clip=clip)).theta
        for clip in (1e6, math.inf, 0.1)
    )
    assert torch.equal(far, unclipped)
    assert not torch.equal(near, unclipped)


def test_clients_without_a_bound_send_their_whole_update():
    nothing = Privacy(epsilon=math.inf, unit="client")
    unclipped, clipped, short = (
        run(PrivateSGD(lr=0.3), privacy=replace(nothing, clip=clip))
        for clip in (math.inf, 1e6, 0.01)
    )
    torch.testing.assert_close(unclipped.theta, clipped.theta, rtol=0, atol=1e-6)
    # Four steps of at most 0.3 times an average of updates no longer than 0.01.
    assert float((short.theta - 1).norm(dim=1).max()) <= 4 * 0.3 * 0.01 * 1.001


def test_noise_of_one_total_has_the_promised_size():
    """Clipped to almost nothing, a total is noise: σC√(N/h) in every coordinate."""
    width = 4000
    task = tacit.Task(
        torch.zeros(width, dtype=torch.float64),
        [torch.zeros(4, 1, dtype=torch.float64) for _ in range(N)],
        loss=lambda theta, x: ((theta - x) ** 2).sum(),
        batch_size=2,
    )
    promise = Privacy(3.0, honest=3, clip=0.1)
    algorithm = prepare(PrivateSGD(lr=1.0), promise, task, RING, 1)
    result = run(algorithm, task, steps=1, privacy=None)
    deviation = float((result.theta[0] * algorithm.mechanism.expected).std())
    expected = algorithm.budget.noise_multiplier * 0.1 * math.sqrt(N / 3)
    # Rounding costs a thousandth; five deviations of an empirical one.
    assert deviation == pytest.approx(expected, rel=1e-3 + 5 / math.sqrt(2 * width))


def test_adam_is_that_of_pytorch():
    """On the same totals: those of a run without noise."""
    algorithm = PrivateSGD(lr=0.05, optimizer="adam", betas=(0.7, 0.9))
    exact = Privacy(epsilon=math.inf, clip=1e6)
    result = run(algorithm, squares(batch_size=SAMPLES), steps=10, privacy=exact)
    theta = torch.ones(P, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([theta], lr=0.05, betas=(0.7, 0.9), eps=0.0)
    x, y = X.reshape(-1, P), Y.reshape(-1)
    for _ in range(10):
        optimizer.zero_grad()
        (0.5 * (x @ theta - y).square().mean()).backward()
        optimizer.step()
    torch.testing.assert_close(result.theta[0], theta.detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("t", [0, 3, 10_000])
def test_corrections_of_adam(t):
    found = BiasCorrection((0.9, 0.999))(t)
    assert found == pytest.approx(math.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1)))


# --- what it sends ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_iteration_sends_two_rows_of_four_bytes_per_edge_of_a_tree(dtype):
    task = tacit.least_squares(
        X.to(dtype), Y.to(dtype), theta0=torch.ones(P, dtype=dtype), batch_size=4
    )
    result = run(task=task, steps=3)
    assert result.history[0].bytes_sent == 0
    assert result.history[-1].bytes_sent == 3 * 2 * (N - 1) * P * 4


def test_messages_are_masked_sums_up_the_tree_and_the_total_down():
    result = run(steps=3, transcript=True)
    transcript, code = result.transcript, result.setting.algorithm.mechanism.code
    assert transcript.tags == ["update/up", "update/down"]
    for tick in (1, 2, 3):
        up, down = (m for m in transcript.messages if m.tick == tick)
        assert up.verb == down.verb == "send"
        assert len(up.rows) == len(down.rows) == N - 1
        assert up.modulus == down.modulus == MODULUS / code.scale
        ends = set(zip(up.source.tolist(), up.target.tolist(), strict=True))
        assert ends == set(zip(down.target.tolist(), down.source.tolist(), strict=True))
        assert ends <= set(transcript.edges)
        assert torch.equal(down.rows, down.rows[:1].expand_as(down.rows))
        # The total is what moves the model; masked sums fill the whole range.
        assert float(down.rows.abs().max()) < 0.01 * down.modulus
        assert float(up.rows.abs().max()) > 0.1 * up.modulus
    moved = 0.1 * sum(m.rows[0] for m in transcript.of("update/down"))
    expected = 1 - moved / result.setting.algorithm.mechanism.expected
    torch.testing.assert_close(result.theta[0], expected)


def test_a_recorded_run_has_the_same_bits():
    plain = run(PrivateSGD(lr=0.1, optimizer="adam"))
    recorded = run(
        PrivateSGD(lr=0.1, optimizer="adam"), transcript=tacit.Keep(insides=tuple(range(N)))
    )
    assert torch.equal(plain.theta, recorded.theta)


def test_insides_keep_masks_and_noise_of_corrupt_clients_only():
    held = run(steps=1, transcript=tacit.Keep(insides=(2,))).transcript.held
    kinds = {(unknown.kind, unknown.tag) for unknown in held}
    assert kinds == {
        ("theta0", ""), ("gradient", ""), ("noise", "Σ update/noise"), ("mask", "Σ update/mask")
    }  # fmt: skip
    assert all(unknown.known_to(frozenset({2})) for unknown in held)
    assert {(u.client, u.other) for u in held if u.kind == "mask"} == {(1, 2), (2, 3)}


# --- what it refuses ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clip": 0.2}, "tacit.Privacy(epsilon=…, clip=0.2)"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"momentum": -0.1}, "momentum is -0.1"),
        ({"momentum": 0.9, "optimizer": "adam"}, "momentum = 0.9 is for SGD"),
        ({"betas": (0.5, 0.9)}, "are for Adam"),
        ({"optimizer": "rmsprop"}, "optimizer is 'rmsprop'"),
        ({"betas": 0.9}, "betas is 0.9"),
        ({"betas": (0.9,)}, "betas is (0.9,)"),
        ({"betas": (0.9, 1.0)}, "betas is 1.0"),
        ({"local_steps": 0}, "local_steps is 0"),
        ({"local_lr": 0.0}, "local_lr is 0.0"),
        ({"lr": "fast"}, "lr is 'fast'"),
    ],
)
def test_impossible_options(options, words):
    assert_mentions(misuse_message(PrivateSGD, **({"lr": 0.1} | options)), words)


def test_several_local_steps_protect_clients_only():
    message = misuse_message(run, PrivateSGD(lr=0.1, local_steps=2))
    assert_mentions(message, "2 local steps", 'unit = "client"', "local_steps = 1")
    run(PrivateSGD(lr=0.1, local_steps=2), privacy=FEW_CLIENTS)


def test_clients_start_from_one_model():
    message = misuse_message(run, task=squares(theta0=draw(N, P, seed=2)))
    assert_mentions(message, "private-sgd trains one model", 'init="same"')
    # Models of decor differ anyway.
    run(Decor(lr=0.1), squares(theta0=draw(N, P, seed=2)))


@pytest.mark.parametrize(
    ("graph", "word"),
    [
        (Topology.directed_ring(N).mixing("sinkhorn"), "undirected"),
        (Graph.from_matrix(torch.eye(N)), "connected"),
    ],
)
def test_the_graph_is_undirected_and_connected(graph, word):
    assert_mentions(misuse_message(run, graph=graph), "private-sgd needs a graph", word)


def test_a_client_whose_gradient_is_too_large_for_the_range_stops_the_run():
    x = X.clone()
    x[2] *= 1e6
    task = tacit.least_squares(x, Y, theta0=torch.ones(P, dtype=torch.float64), batch_size=SAMPLES)
    message = misuse_message(
        run, PrivateSGD(lr=0.1), task, privacy=Privacy(epsilon=math.inf, clip=1e15)
    )
    assert_mentions(message, "A number to be summed has passed", "range")


# --- what it says ---


def cautions(algorithm, topology):
    return algorithm.cautions(topology.mixing("metropolis"))


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (Topology.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)]), ["client 3 has one neighbour"]),
        (Topology.star(4), ["client 1 (and 2 more) has one neighbour"]),
        (
            Topology.from_edges([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2)]),
            ["without client 2", "falls apart"],
        ),
    ],
)
def test_clients_that_learn_parts_of_the_sum_are_cautioned_about(topology, words):
    (caution,) = cautions(PrivateSGD(lr=0.1), topology)
    assert_mentions(caution, *words)


def test_there_is_no_caution_on_a_ring():
    assert cautions(PrivateSGD(lr=0.1), Topology.ring(5)) == []
    # Only that nothing is known of where the samples come from.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(steps=1)
    assert ["plain arrays" in str(warning.message) for warning in caught] == [True]
