import tomllib

import pytest

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.algorithms.algorithm import options_of
from tacit.config.algorithms import make_algorithm
from tacit.config.build import build
from tacit.config.loading import make_config
from tacit.config.options import (
    import_object,
    make_option,
    make_rate,
    validate_value,
)
from tacit.core.noise import Noise
from tacit.core.schedules import Constant, Cosine, Exponential, Inverse, MultiStep, Warmup

OWN = """
from dataclasses import dataclass
from tacit.algorithms import Algorithm
from tacit.algorithms.tracking import TrackingState

@dataclass(frozen=True)
class Whole(Algorithm):
    lr: float
    times: int = 2
    name = "whole"
    def start(self, here) -> TrackingState: ...
    def step(self, s, here): ...

@dataclass(frozen=True)
class Bare(Algorithm):
    lr: float

@dataclass(frozen=True)
class Foreign:
    lr: float

@dataclass(frozen=True)
class Stateless(Algorithm):
    name = "stateless"
    def start(self, here): ...
    def step(self, s, here): ...

@dataclass(frozen=True)
class Lost(Algorithm):
    name = "lost"
    def start(self, here) -> "Nowhere": ...
    def step(self, s, here): ...

def function(): ...
"""


@pytest.fixture
def own(own_module):
    return own_module("own_algorithms_for_options", OWN)


def algorithm(name="lppa", **options):
    return make_algorithm(name, options, round_length=10, steps=200)


def test_a_registered_algorithm_gets_typed_options():
    made = algorithm(
        lr=1, noise={"law": "gaussian", "scale": 2}, fresh=True, masks="sent", local_steps=3
    )
    assert made == tacit.LPPA(1.0, tacit.Gaussian(2.0), fresh=True, masks="sent", local_steps=3)
    assert isinstance(made.lr, float)


def test_options_that_are_not_given_have_the_defaults_of_the_class():
    assert algorithm("dp-dsgt", lr=0.1) == tacit.DPDSGT(0.1)


@pytest.mark.parametrize(
    ("table", "schedule"),
    [
        ({"schedule": "constant", "start": 0.1}, Constant(0.1)),
        ({"schedule": "exponential", "start": 0.1, "decay": 0.9}, Exponential(0.1, 0.9, steps=10)),
        (
            {"schedule": "exponential", "start": 0.1, "decay": 0.9, "steps": 3},
            Exponential(0.1, 0.9, 3),
        ),
        (
            {"schedule": "exponential", "start": 0.1, "decay": 0.9, "epochs": 0.5},
            Exponential(0.1, 0.9, 5),
        ),
        ({"schedule": "inverse", "start": 1}, Inverse(1.0, steps=10)),
        ({"schedule": "cosine", "start": 0.1, "end": 0.01}, Cosine(0.1, 200, 0.01)),
        ({"schedule": "cosine", "start": 0.1, "steps": 7}, Cosine(0.1, 7)),
        ({"schedule": "multi-step", "start": 1, "epochs": [3, 5]}, MultiStep(1.0, (30, 50))),
        ({"schedule": "warmup", "epochs": 2, "then": 0.1}, Warmup(20, then=0.1)),
        (
            {"schedule": "warmup", "epochs": 2, "then": {"schedule": "cosine", "start": 0.1}},
            Warmup(20, then=Cosine(0.1, 180)),
        ),
        (
            {"schedule": "warmup", "steps": 5, "then": {"schedule": "inverse", "start": 0.1}},
            Warmup(5, then=Inverse(0.1, steps=10)),
        ),
    ],
)
def test_a_schedule_defaults_to_the_length_of_a_round_or_of_the_run(table, schedule):
    assert make_rate("algorithm.lr", table, round_length=10, steps=200) == schedule
    assert algorithm(lr=table).lr == schedule


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["lppa needs algorithm.lr", "lr = 0.05"]),
        ({"lr": 0}, ["[algorithm]", "lr", "0.0", "positive"]),
        ({"lr": -0.5}, ["lr", "-0.5", "positive"]),
        ({"lr": float("nan")}, ["lr", "nan", "positive"]),
        ({"lr": "fast"}, ["algorithm.lr = 'fast'", "schedule"]),
        ({"lr": True}, ["algorithm.lr = True"]),
        ({"lr": {"start": 0.1}}, ["algorithm.lr = {'start': 0.1}", "schedule"]),
        (
            {"lr": {"schedule": "exponentil"}},
            ["algorithm.lr.schedule", "Did you mean 'exponential'?"],
        ),
        ({"lr": {"schedule": ["cosine"]}}, ["algorithm.lr.schedule = ['cosine']", "Known:"]),
        ({"lr": {"schedule": "exponential", "start": 0.1}}, ["algorithm.lr.decay", "not set"]),
        (
            {"lr": {"schedule": "multi-step", "start": 0.1}},
            ["algorithm.lr", "Neither steps nor epochs", "e.g. epochs=(15, 25)"],
        ),
        (
            {"lr": {"schedule": "constant", "start": 0.1, "decai": 1}},
            ["algorithm.lr.decai", "Known: start"],
        ),
        ({"lr": {"schedule": "constant", "start": "x"}}, ["algorithm.lr.start = 'x'", "number"]),
        ({"lr": {"schedule": "warmup", "epochs": 2}}, ["algorithm.lr.then", "not set"]),
        ({"lr": {"schedule": "warmup", "then": 0.1}}, ["algorithm.lr", "Neither steps nor epochs"]),
        (
            {"lr": {"schedule": "warmup", "epochs": 2, "then": {"schedule": "cosin"}}},
            ["algorithm.lr.then.schedule", "Did you mean 'cosine'?"],
        ),
        (
            {"lr": {"schedule": "exponential", "start": 0.1, "decay": 1, "every": 3}},
            ["algorithm.lr.every = 3", "Set algorithm.lr.steps"],
        ),
        ({"lr": {"schedule": "warmup", "length": 3, "then": 0.1}}, ["Set algorithm.lr.epochs"]),
        (
            {"lr": {"schedule": "multi-step", "start": 0.1, "epochs": [5, 3]}},
            ["algorithm.lr", "(5.0, 3.0)", "ascending"],
        ),
        ({"lr": {"schedule": "constant", "start": -1}}, ["algorithm.lr", "-1.0", "above 0"]),
        ({"lr": 0.1, "noize": 1}, ["algorithm.noize", "lppa", "Did you mean 'noise'?"]),
        ({"lr": 0.1, "inject": "every"}, ["algorithm.inject is not an option of lppa"]),
        ({"lr": 0.1, "fresh": 1}, ["algorithm.fresh = 1", "boolean"]),
        ({"lr": 0.1, "masks": "send"}, ["algorithm.masks = 'send'", "'derived', 'sent'"]),
        ({"lr": 0.1, "local_steps": 0}, ["local_steps", "0", "at least 1"]),
        ({"lr": 0.1, "noise": 0.5}, ["algorithm.noise = 0.5", 'law = "laplace"']),
        ({"lr": 0.1, "noise": {"scale": 1}}, ["algorithm.noise", "law"]),
        (
            {"lr": 0.1, "noise": {"law": "laplac", "scale": 1}},
            ["algorithm.noise.law", "Did you mean 'laplace'?"],
        ),
        ({"lr": 0.1, "noise": {"law": [], "scale": 1}}, ["algorithm.noise.law = []", "Known:"]),
        ({"lr": 0.1, "noise": {"law": "laplace"}}, ["algorithm.noise.scale", "not set"]),
        (
            {"lr": 0.1, "noise": {"law": "laplace", "scale": -1}},
            ["algorithm.noise", "-1.0", "at least 0"],
        ),
        (
            {"lr": 0.1, "noise": {"law": "laplace", "scale": "x"}},
            ["algorithm.noise.scale = 'x'", "number"],
        ),
        (
            {"lr": 0.1, "noise": {"law": "laplace", "scale": 1, "b": 2}},
            ["algorithm.noise.b", "Known: scale"],
        ),
    ],
)
def test_errors_name_key_value_and_remedy(options, words):
    assert_mentions(misuse_message(algorithm, **options), *words)


def test_an_unknown_algorithm_is_refused_with_the_closest():
    message = misuse_message(algorithm, "lpa", lr=0.1)
    assert "algorithm.name" in message
    assert "Did you mean 'lppa'? Known: dsgt, dp-dsgt, lppa" in message


def test_noise_is_made_from_a_table():
    assert make_option("algorithm.noise", {"law": "laplace", "scale": 0}, Noise) == tacit.Laplace(
        0.0
    )


def test_an_own_algorithm_gets_typed_options_too(own):
    made = algorithm(f"{own}:Whole", lr=1, times=5)
    assert type(made).__name__ == "Whole"
    assert (made.lr, made.times) == (1.0, 5)
    assert "times = 'x'" in misuse_message(algorithm, f"{own}:Whole", lr=1, times="x")
    assert "Known: lr, times" in misuse_message(algorithm, f"{own}:Whole", rate=1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Bare", ["no name, no start, no step"]),
        ("Foreign", ["does not derive from tacit.algorithms.Algorithm"]),
        ("Stateless", ["what its state is", "Annotate start"]),
        ("Lost", ["annotation", "Nowhere"]),
        ("function", ["is not a dataclass"]),
        ("Missing", ["cannot be imported", "Missing"]),
    ],
)
def test_an_own_algorithm_that_is_incomplete_is_refused(own, name, words):
    assert_mentions(
        misuse_message(algorithm, f"{own}:{name}", lr=0.1),
        f"algorithm.name = '{own}:{name}'",
        *words,
    )


def test_a_dotted_path_names_any_object(own):
    assert import_object(f"{own}:function", "k").__name__ == "function"


@pytest.mark.parametrize("path", ["no_such_module_here:A", "json:nothing", ":A", "json:", "..x:A"])
def test_a_path_that_cannot_be_imported_is_refused(path):
    message = misuse_message(import_object, path, "model.name")
    assert f"model.name = {path!r} cannot be imported" in message
    assert "package.module:Name" in message


def test_an_error_during_an_import_is_reported(own_module):
    bad = own_module("own_module_that_fails", "raise RuntimeError('no licence')")
    assert "RuntimeError: no licence" in misuse_message(import_object, f"{bad}:A", "model.name")


def test_validate_value_is_strict():
    assert validate_value("k", 3, int) == 3
    assert validate_value("k", 3, float) == 3.0
    for value, hint in [("3", int), (3.0, int), (True, int), (1, bool), (1, str)]:
        assert f"k = {value!r}" in misuse_message(validate_value, "k", value, hint)


def test_a_list_stands_for_a_tuple():
    options = {"lr": 0.1, "optimizer": "adam", "betas": [0.8, 0.9]}
    assert make_algorithm("private-sgd", options, 1, 1).betas == (0.8, 0.9)
    assert validate_value("key", [1, 2], tuple[int, int]) == (1, 2)
    for value in ([1], [1, 2, 3], [1, "2"], 1):
        assert_mentions(misuse_message(validate_value, "key", value, tuple[int, int]), "key", "not")


def test_what_is_computed_for_a_run_is_no_option():
    assert "mechanism" not in options_of(tacit.PrivateSGD)
    for option in ("mechanism", "correction"):
        message = misuse_message(make_algorithm, "private-sgd", {"lr": 0.1, option: 1}, 1, 1)
        assert_mentions(message, f"algorithm.{option} is not an option", "Known: lr, ")


def test_parts_of_algorithms_are_made_from_tables_and_names():
    codec = {"codec": "rand-k", "k": 5, "values": {"codec": "qsgd", "bits": 8}}
    assert algorithm("defl-vp", lr=0.1, codec=codec).codec == tacit.RandK(k=5, values=tacit.QSGD(8))
    assert algorithm("defl-vp", lr=0.1, codec="sign").codec == tacit.SignBits()
    made = algorithm(
        "edsg-rms",
        lr=0.1,
        matrix={"structure": "sparse", "deviation": 1},
        protection={"kind": "tanh", "tau": 0.5},
    )
    assert made.matrix == tacit.MatrixStep("sparse", deviation=1.0)
    assert made.protection == tacit.TanhVector(0.5)
    assert algorithm("admm", solver={"solver": "inner", "steps": 3}).solver == tacit.InnerSolver(
        steps=3
    )
    assert algorithm("pdmm", solver="exact").needs_minimiser
    assert "algorithm.noise.scale" in misuse_message(
        algorithm, "pdmm", noise="gaussian"
    )  # a name that does not say it all


DEFL = 'name = "defl-vp"\nlr = 0.1\n'
RMS = 'name = "dsg-rms"\nlr = 0.1\n'
PDMM = 'name = "pdmm"\n'
IMPOSSIBLE_OPTIONS = [
    (DEFL + "epsilon = 0.0", ["[algorithm]", "epsilon is 0.0", "at least 1e-06"]),
    (DEFL + "epsilon = -1.0", ["epsilon is -1.0", "at least 1e-06"]),
    (DEFL + "alpha = 1.5", ["alpha is 1.5", "at most 1"]),
    (DEFL + "alpha = 0.0", ["alpha is 0.0", "above 0"]),
    (DEFL + 'codec = { codec = "rand-k", k = 10000 }',
     ["[algorithm]", "k = 10000", "6370 numbers", "up to 6370"]),
    (DEFL + 'codec = { codec = "rand-k", k = 10, fraction = 0.1 }',
     ["both of fraction and k", "Give one"]),
    (DEFL + 'codec = { codec = "rand-k", fraction = 0.0 }',
     ["algorithm.codec", "fraction", "above 0 and at most 1"]),
    (DEFL + 'codec = { codec = "rand-k", k = 9, values = "qsdg" }',
     ["algorithm.codec.values", "Did you mean 'qsgd'?"]),
    (DEFL + 'codec = "qsdg"', ["algorithm.codec.codec = 'qsdg'", "Did you mean 'qsgd'?"]),
    (DEFL + 'codec = { codec = "qsgd", bits = 3 }', ["algorithm.codec", "bits", "2, 4, 8 or 16"]),
    (DEFL + "private_variates = true\nrandomized_response = false",
     ["private_variates", "randomized_response"]),
    (DEFL + "momentum = 1.0", ["momentum is 1.0", "below 1"]),
    (PDMM + "rho = 0.0", ["rho is 0.0", "above 0"]),
    (PDMM + 'noise = { law = "gaussian", scale = -1.0 }',
     ["algorithm.noise", "-1.0", "at least 0"]),
    (PDMM + 'solver = "exakt"', ["algorithm.solver.solver", "Did you mean 'exact'?"]),
    (PDMM + 'solver = "exact"', ["[algorithm]", "minimisers", "quadratic"]),
    (PDMM + 'solver = { solver = "inner", mu = 0.0 }', ["algorithm.solver", "mu", "above 0"]),
    (PDMM + "lr = 0.1", ["algorithm.lr is not an option of pdmm"]),
    (RMS + 'matrix = { structure = "dense" }', ["6,370 parameters", "40,576,900", '"upper"']),
    (RMS + "matrix = { deviation = -0.1 }", ["algorithm.matrix", "-0.1", "at least 0"]),
    (RMS + "matrix = 0.1", ["algorithm.matrix = 0.1", "not a table"]),
    (RMS + "protection = 0.1", ["algorithm.protection = 0.1", 'kind = "norm"']),
    (RMS + 'protection = { kind = "norm", tau = "x" }',
     ["algorithm.protection.tau = 'x'", "number"]),
    ('name = "edsg"\nlr = 0.1', ["[graph]", "edsg", "positive definite", "lazy=True"]),
    ('name = "d-psgd"\nlr = 0.1\norder = "both"',
     ["algorithm.order = 'both'", "'combine-then-adapt'"]),
]  # fmt: skip


@pytest.mark.parametrize(("section", "words"), IMPOSSIBLE_OPTIONS)
def test_options_that_an_algorithm_or_its_part_refuses(tiny, section, words):
    values = tiny("graph.clients=4").as_dict() | {"algorithm": tomllib.loads(section)}
    assert_mentions(misuse_message(build, make_config(values)), *words)
