"""[privacy]: the guarantee of a configuration, from its keys to the noise of the algorithm."""

import math
from dataclasses import fields

import pytest

from support.misuse import assert_mentions, misuse_message
from tacit import PrivateSGD, data
from tacit.config.algorithms import promise_of, with_guarantee
from tacit.config.build import build
from tacit.config.loading import make_config
from tacit.config.sections import PrivacySection
from tacit.privacy.guarantee import Privacy


@pytest.fixture(scope="module")
def dataset():
    return data.load("mnist-mini", limit_train=240, limit_test=60)


@pytest.fixture
def built(tiny_private, dataset):
    return lambda *overrides: build(tiny_private(*overrides), dataset=dataset)


def test_every_key_reaches_the_promise():
    section = PrivacySection(
        epsilon=2.0,
        delta=1e-4,
        unit="client",
        honest=3,
        noise_multiplier=1.5,
        clip=0.3,
        samples=7,
        sampling_rate=0.5,
    )
    config = make_config({"privacy": section.model_dump()})
    assert promise_of(config, PrivateSGD(lr=0.1)) == Privacy(**section.model_dump())
    assert {field.name for field in fields(Privacy)} == set(PrivacySection.model_fields)
    bare = make_config({"privacy": {"epsilon": math.inf}})
    assert promise_of(bare, PrivateSGD(lr=0.1)) == Privacy(math.inf)


def test_noise_follows_from_the_promise_and_the_rounds(built):
    experiment = built()
    mechanism = experiment.algorithm.mechanism
    # Three clients with batches of 16, of 240 samples; a round is five iterations.
    assert mechanism.sampling_rate == pytest.approx(3 * 16 / 240)
    assert mechanism.expected == pytest.approx(48)
    budget = experiment.algorithm.budget
    assert (budget.epsilon, budget.delta, budget.unit, budget.honest) == (3.0, 1e-5, "sample", 2)
    assert budget.steps == experiment.steps == 15
    assert budget.spent(15) <= 3.0
    more = built("run.rounds=6").algorithm.budget
    assert more.steps == 30
    assert more.noise_multiplier > budget.noise_multiplier


def test_sampling_can_be_set(built):
    mechanism = built("privacy.sampling_rate=0.5").algorithm.mechanism
    assert (mechanism.sampling_rate, mechanism.expected) == (0.5, 120)
    # No more than all.
    assert built("run.batch_size=80").algorithm.mechanism.sampling_rate == 1.0


def test_a_number_of_samples_can_be_given(built):
    mechanism = built("privacy.samples=480").algorithm.mechanism
    assert mechanism.sampling_rate == pytest.approx(3 * 16 / 480)


def test_decor_is_prepared_too(built):
    experiment = built("algorithm.name=decor")
    assert experiment.algorithm.mechanism.expected_each == pytest.approx(16)


def test_infinite_epsilon_is_no_guarantee(built):
    experiment = built("privacy.epsilon=inf")
    assert experiment.algorithm.mechanism.code.noise is None
    assert experiment.algorithm.budget.allowed_steps == math.inf


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["privacy.epsilon=0.0"], ["[privacy]: epsilon is 0.0", "above 0"]),
        (["privacy.epsilon=-1.0"], ["[privacy]: epsilon is -1.0"]),
        (["privacy.delta=0.0"], ["[privacy]: delta is 0.0"]),
        (["privacy.delta=0.01"], ["[privacy]: delta is 0.01", "240 samples", "e.g. 0.001"]),
        (["privacy.unit=user"], ["privacy.unit", "'sample' or 'client'"]),
        (
            ["privacy.unit=client", "privacy.delta=0.5"],
            ["[privacy]: delta is 0.5", "3 clients", "1/3"],
        ),
        (["privacy.honest=4"], ["[privacy]: honest is 4", "3 clients", "at most 2"]),
        (["privacy.honest=0"], ["privacy.honest", "greater than"]),
        (["privacy.sampling_rate=0.0"], ["[privacy]: sampling_rate is 0.0"]),
        (["privacy.sampling_rate=1.5"], ["[privacy]: sampling_rate is 1.5", "at most 1"]),
        (["privacy.noise_multiplier=0.0"], ["[privacy]: noise_multiplier is 0.0"]),
        (["privacy.epsilon=inf", "privacy.noise_multiplier=1.0"], ["no noise is added"]),
        (["privacy.colour=1"], ["privacy.colour"]),
        (["algorithm.local_steps=2"], ["[privacy]: With 2 local steps", 'unit = "client"']),
        (["privacy.clip=inf"], ["[privacy]: Without clipping", "clip = 1.0"]),
        (["algorithm.clip=0.2"], ["not an option of private-sgd", "[privacy] clip = 0.2"]),
        (
            ["algorithm.name=decor", "algorithm.clip=0.2"],
            ["not an option of decor", "[privacy] clip = 0.2"],
        ),
        (["algorithm.mechanism=1"], ["algorithm.mechanism is not an option of private-sgd"]),
        (
            ["algorithm.name=lppa"],
            ["[privacy] promises a guarantee, which lppa does not keep", "remove the section"],
        ),
        (
            ["graph.kind=directed-ring", "graph.mixing=sinkhorn"],
            ["[graph]: private-sgd needs", "undirected"],
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(built, overrides, words):
    assert_mentions(misuse_message(built, *overrides), *words)


def test_a_guarantee_is_needed(tiny_private, dataset):
    for name in ("private-sgd", "decor"):
        config = tiny_private(f"algorithm.name={name}").model_copy(update={"privacy": None})
        message = misuse_message(build, config, dataset=dataset)
        assert_mentions(message, f"{name} keeps a guarantee", "[privacy] epsilon = 3.0")


def test_a_stream_has_no_samples():
    values = {
        "task": {"name": "adaptive-filtering"},
        "graph": {"kind": "ring", "clients": 5},
        "algorithm": {"name": "private-sgd", "lr": 0.02},
        "privacy": {"epsilon": 3.0, "samples": 1000},
    }
    message = misuse_message(build, make_config(values))
    assert_mentions(message, "[privacy]: A guarantee needs samples that can be drawn")


def test_a_node_does_not_know_how_many_samples_all_have(built, tiny_private):
    """Its task has its own data only."""
    experiment = built()
    other = built("graph.clients=4")
    arguments = (experiment.algorithm, experiment.task, other.graph, 15)
    message = misuse_message(with_guarantee, tiny_private(), *arguments)
    assert_mentions(message, "[privacy]: How many training samples", "samples = 60000")
    known = with_guarantee(tiny_private("privacy.samples=320"), *arguments)
    assert known.mechanism.sampling_rate == pytest.approx(4 * 16 / 320)
