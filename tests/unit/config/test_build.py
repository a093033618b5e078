import numpy as np
import pytest
import torch

from support.misuse import assert_mentions, misuse_message
from tacit import data
from tacit.config.build import build
from tacit.config.graphs import make_graph
from tacit.config.loading import make_config
from tacit.config.sections import GraphSection
from tacit.core.devices import check_device
from tacit.graph.named import TOPOLOGIES

OPTIONS = {
    "grid": {"rows": 2, "columns": 3},
    "torus": {"rows": 2, "columns": 3},
    "random-regular": {"clients": 6, "degree": 3},
    "erdos-renyi": {"clients": 6, "p": 0.7},
    "random-geometric": {"clients": 6, "radius": 0.8},
    "random-directed": {"clients": 6, "p": 0.3},
    "edges": {"edges": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]},
}
NETS = """
from torch import nn
def tiny(width=4, classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, classes))
def narrow():
    return nn.Linear(100, 10)
def broken():
    raise RuntimeError("no licence")
def other():
    return 3
def normalised():
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 10))
"""
DOUBLY = "0.5,0.25,0.25\n0.25,0.5,0.25\n0.25,0.25,0.5\n"


@pytest.fixture
def nets(own_module):
    return own_module("own_nets_for_build", NETS)


def graph(run_seed=0, **keys):
    return make_graph(GraphSection(**keys), run_seed)


@pytest.mark.parametrize("kind", [kind for kind in TOPOLOGIES if kind != "edge-file"])
def test_every_kind_of_graph_is_made_from_its_options(kind):
    made = graph(kind=kind, mixing="sinkhorn", **OPTIONS.get(kind, {"clients": 6}))
    assert made.clients == 6
    assert made.doubly_stochastic


def test_edges_come_from_a_file_too(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n1 2\n2 0\n")
    assert graph(kind="edge-file", path=str(path)).clients == 3


def test_a_random_graph_uses_its_own_seed_or_the_runs():
    keys = {"kind": "erdos-renyi", "clients": 12, "p": 0.4}
    edges = [graph(s, **keys).edges.tolist() for s in (1, 1, 2)]
    assert edges[0] == edges[1] != edges[2]
    assert graph(1, seed=2, **keys).edges.tolist() == edges[2]


def test_weights_follow_the_section():
    ring = {"kind": "ring", "clients": 5}
    assert graph(**ring, lazy=True).rule == "lazy metropolis"
    assert graph(**ring, mixing="laplacian", kappa=4.0).weights[0, 1] == pytest.approx(0.25)
    plain = graph(**ring, mixing="sinkhorn").weights.toarray()
    drawn = graph(**ring, mixing="sinkhorn", random_weights=True).weights.toarray()
    assert not np.allclose(plain, drawn)


@pytest.mark.parametrize("form", ["W.csv", "W.txt", "W.npy"])
def test_own_weights_are_read_from_text_or_numpy(tmp_path, form):
    path = tmp_path / form
    if form == "W.npy":
        np.save(path, np.loadtxt(DOUBLY.splitlines(), delimiter=","))
    else:
        path.write_text(DOUBLY if form == "W.csv" else DOUBLY.replace(",", "  "))
    made = graph(clients=3, mixing="matrix", matrix=str(path))
    assert made.weights.toarray()[0].tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (None, ["cannot be read", "No such file"]),
        (b"", ["cannot be read", "no data"]),
        (b"1,0\n0,x\n", ["cannot be read", "'x'"]),
        (b"1,0\n0\n", ["cannot be read", "columns"]),
        (b"\x80\xff", ["cannot be read"]),
        (b"1,0\n0,1\n", ["(2, 2)", "3 × 3"]),
        (b"1,0,0\n0,1,0\n", ["(2, 3)", "square"]),
        (b"0.5,nan,0.5\n0.5,0.5,0\n0,0,1\n", ["W[0, 1]", "nan", "finite"]),
    ],
)
def test_a_matrix_that_cannot_be_used_is_refused_by_file(tmp_path, contents, words):
    path = tmp_path / "W.csv"
    if contents is not None:
        path.write_bytes(contents)
    assert_mentions(
        misuse_message(graph, clients=3, mixing="matrix", matrix=str(path)),
        f"graph.matrix = {str(path)!r}",
        *words,
    )


def test_a_damaged_numpy_file_is_refused(tmp_path):
    path = tmp_path / "W.npy"
    for contents in (b"", b"\x93NUMPYxx"):
        path.write_bytes(contents)
        assert "cannot be read" in misuse_message(
            graph, clients=3, mixing="matrix", matrix=str(path)
        )


def test_a_matrix_file_and_matrix_mixing_go_together():
    assert "graph.matrix" in misuse_message(graph, clients=3, mixing="matrix")
    assert 'mixing = "matrix"' in misuse_message(graph, clients=3, matrix="W.csv")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"kind": "rign"}, ["graph.kind = 'rign'", "Did you mean 'ring'?", "torus"]),
        ({"kind": "ring"}, ["'ring' needs graph.clients"]),
        ({"kind": "grid", "rows": 2}, ["'grid' needs graph.columns"]),
        ({"kind": "ring", "clients": 3, "p": 0.5}, ["graph.p", "'ring'", "Known: clients"]),
        ({"kind": "ring", "client": 3}, ["graph.client ", "Did you mean 'clients'?"]),
        ({"kind": "ring", "clients": 0}, ["graph.clients = 0", "at least 1"]),
        ({"kind": "ring", "clients": 2.5}, ["graph.clients = 2.5", "integer"]),
        ({"kind": "ring", "clients": "5"}, ["graph.clients = '5'", "integer"]),
        ({"kind": "erdos-renyi", "clients": 5, "p": "x"}, ["graph.p = 'x'", "number"]),
        (
            {"kind": "erdos-renyi", "clients": 5, "p": 2.0},
            ["[graph]", "p is 2.0", "at most 1"],
        ),
        ({"kind": "edges", "edges": [[0, 1], [2, 3]]}, ["[graph]", "not connected", "Add edges"]),
        ({"kind": "edges", "edges": 3}, ["[graph]", "edges", "source, target"]),
        ({"kind": "edge-file", "path": "/no/such.txt"}, ["[graph]", "/no/such.txt"]),
        ({"clients": 3, "kappa": 0.5}, ["[graph]", "metropolis", "kappa"]),
        ({"kind": "directed-ring", "clients": 3}, ["[graph]", "metropolis"]),
    ],
)
def test_errors_of_graphs_name_key_value_and_remedy(keys, words):
    assert_mentions(misuse_message(graph, **keys), *words)


def test_everything_is_made_from_one_configuration(tiny):
    made = build(tiny("partition.kind=classes", "partition.k=4"))
    assert made.graph.clients == made.task.clients == len(made.partition) == 3
    assert len(made.dataset.train.y) == 240
    assert made.round_length == 5  # 80 samples in batches of 16
    assert made.steps == 15
    assert made.task.parameters == 784 * 8 + 8 + 8 * 10 + 10
    assert made.algorithm.lr == 0.1


def test_a_round_is_one_pass_over_the_data_with_any_number_of_local_steps(tiny):
    assert build(tiny("algorithm.local_steps=2")).round_length == 2
    assert build(tiny("run.iterations_per_round=12")).round_length == 12
    assert build(tiny("run.iterations_per_round=12", "algorithm.local_steps=5")).round_length == 12


def test_a_schedule_gets_the_lengths_of_this_run(tiny):
    lr = build(tiny('algorithm.lr={schedule="exponential", start=0.1, decay=0.5}')).algorithm.lr
    assert (lr(4), lr(5)) == (0.1, 0.05)
    assert build(tiny('algorithm.lr={schedule="cosine", start=0.1}')).algorithm.lr.steps == 15


def test_the_partition_uses_its_own_seed_or_the_runs(tiny):
    def owned(*overrides):
        return build(tiny(*overrides)).partition.indices[0].tolist()

    assert owned("run.seed=1") == owned("run.seed=1") != owned("run.seed=2")
    assert owned("run.seed=1", "partition.seed=2") == owned("run.seed=2")


def test_the_seed_of_a_run_does_not_change_which_samples_there_are(tiny):
    def samples(*overrides):
        return build(tiny(*overrides)).dataset.train.x

    assert torch.equal(samples("run.seed=1"), samples("run.seed=2"))
    assert not torch.equal(samples(), samples("data.seed=1"))


def test_a_dataset_loaded_before_is_used(tiny):
    loaded = data.load("mnist-mini", limit_train=100, limit_test=10)
    assert build(tiny(), dataset=loaded).dataset is loaded


def with_model(tiny, name, **options):
    plain = tiny().as_dict()
    return make_config(plain | {"model": {"name": name, **options}})


def test_an_own_model_is_made_with_its_options(tiny, nets):
    assert build(with_model(tiny, f"{nets}:tiny", width=3)).task.parameters == 784 * 3 + 3 + 30 + 10


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("tiny", {"depth": 3}, ["cannot be made", "depth"]),
        ("broken", {}, ["cannot be made", "no licence"]),
        ("other", {}, ["does not return a torch.nn.Module"]),
        ("narrow", {}, ["fails on inputs of shape (2, 1, 28, 28)"]),
        ("tiny", {"classes": 5}, ["(2, 5)", "10 classes"]),
        ("absent", {}, ["cannot be imported", "absent"]),
        ("normalised", {}, ["[model]"]),
    ],
)
def test_an_own_model_that_does_not_fit_is_refused(tiny, nets, name, options, words):
    message = misuse_message(build, with_model(tiny, f"{nets}:{name}", **options))
    for word in ["[model]", *words]:
        assert word in message


def test_a_class_that_is_no_model_is_not_called(tiny, tmp_path):
    made = tmp_path / "made"
    config = with_model(tiny, "logging:FileHandler", filename=str(made))
    assert "is not a torch.nn.Module" in misuse_message(build, config)
    assert not made.exists()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.name=mpl", ["[model]", "'mpl'", "Did you mean 'mlp'?"]),
        ("model.hiden=[8]", ["[model]", "hiden"]),
        ("data.name=mnist-mni", ["[data]", "'mnist-mni'", "Did you mean 'mnist-mini'?"]),
        (
            "data.limit_trian=3",
            ["data.limit_trian is not an option", "Did you mean 'limit_train'?"],
        ),
        ("data.download=false", ["data.download is not an option"]),
        ("model.shape=[3]", ["[model]", "shape is set", "Remove it"]),
        ("partition.kind=dirichle", ["[partition]", "'dirichle'", "dirichlet"]),
        ("partition.kind=dirichlet", ["[partition]", "dirichlet needs alpha"]),
        ("partition.alpha=0.5", ["[partition]", "iid has no option 'alpha'"]),
        ("partition.alpha=x", ["partition.alpha = 'x'", "number"]),
        ("graph.clients=241", ["[partition]", "241 clients", "there are 240"]),
        ("run.batch_size=81", ["[partition]", "3 clients", "81 each", "batch"]),
        ("run.device=gpu", ["run.device = 'gpu'", '"cpu" or "cuda"']),
    ],
)
def test_errors_of_parts_that_do_not_fit_name_key_value_and_remedy(tiny, override, words):
    assert_mentions(misuse_message(build, tiny(override)), *words)


def test_more_classes_per_client_than_there_are_is_refused(tiny):
    message = misuse_message(build, tiny("partition.kind=classes", "partition.k=11"))
    assert "[partition]: k=11" in message
    assert "at most 10" in message
    assert "partition.k = 2.5" in misuse_message(
        build, tiny("partition.kind=classes", "partition.k=2.5")
    )


def test_weights_that_the_algorithm_cannot_use_are_refused(tiny, tmp_path):
    path = tmp_path / "W.csv"
    path.write_text("0.6,0.2,0.2\n0.2,0.6,0.1\n0.2,0.2,0.7\n")
    message = misuse_message(build, tiny("graph.mixing=matrix", f"graph.matrix={path}"))
    assert "[graph]: lppa needs a graph that is doubly stochastic" in message
    assert "row 1 sums to 0.9" in message


def test_errors_of_the_algorithm_come_before_data_are_loaded(tiny, tmp_path):
    config = tiny("data.name=mnist", "algorithm.lr=0")
    assert "[algorithm]" in misuse_message(build, config, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["gpu", "meta", "mps", "", "cuda:x"])
def test_only_supported_devices_are_accepted(device):
    assert f"run.device = {device!r}" in misuse_message(check_device, device, "run.device")


def test_a_cuda_device_must_exist(monkeypatch):
    check_device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no CUDA devices" in misuse_message(check_device, "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda")
    check_device("cuda:1")
    assert "2 CUDA devices" in misuse_message(check_device, "cuda:2")


def test_a_graph_can_be_the_pattern_of_its_matrix(tmp_path):
    path = tmp_path / "W.csv"
    path.write_text("0.5,0.5,0\n0,0.5,0.5\n0.5,0,0.5\n")
    made = graph(kind="matrix", matrix=str(path))
    assert made.edges.tolist() == [[0, 2], [1, 0], [2, 1]]
    assert made.directed
    assert "is not an option of kind 'matrix'" in misuse_message(
        graph, kind="matrix", matrix=str(path), clients=3
    )
    assert "graph.matrix is not set" in misuse_message(graph, kind="matrix")


class Noisy(torch.nn.Module):
    """A model whose constructor draws a constant and a bare parameter."""

    def __init__(self, hidden):
        super().__init__()
        self.register_buffer("fixed", torch.randn(784))
        self.shift = torch.nn.Parameter(torch.randn(10))
        self.last = torch.nn.Linear(784, 10)

    def forward(self, x):
        return self.last(x.flatten(1) * self.fixed) + self.shift


def test_random_draws_of_a_models_constructor_depend_on_the_seed(tiny):
    name = f"model.name={__name__}:Noisy"
    torch.manual_seed(0)
    before = torch.get_rng_state()
    made = [build(tiny(name, "model.init=module", f"run.seed={seed}")).task for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    starts = [task.initial(0, [0]) for task in made]
    fixed = [task.loss.flat.module.fixed for task in made]
    assert torch.equal(starts[0], starts[1])
    assert torch.equal(fixed[0], fixed[1])
    assert not torch.equal(starts[0], starts[2])
    assert not torch.equal(fixed[0], fixed[2])


def test_a_parameter_outside_layers_is_refused_with_a_remedy_that_works(tiny):
    message = misuse_message(
        build,
        tiny(f"model.name={__name__}:Noisy"),
    )
    assert 'init="module"' in message


class TestAugment:
    @staticmethod
    def config(*overrides):
        keys = {
            "data": {"limit_train": 300, "limit_test": 50},
            "graph": {"clients": 3},
            "algorithm": {"name": "dsgt", "lr": 0.1},
        }
        return make_config(keys, overrides)

    def test_images_are_augmented_in_training_only(self):
        made = build(self.config("data.augment.crop=2", "data.augment.flip=true"))
        assert made.task.draws.augment == data.Augment(crop=2, flip=True)
        assert torch.equal(made.task.parts.arrays[0], build(self.config()).task.parts.arrays[0])
        assert build(self.config()).task.draws.augment is None

    def test_what_cannot_be_augmented_is_refused(self):
        message = misuse_message(build, self.config("data.augment.crop=28"))
        assert_mentions(message, "[data.augment]", "(1, 28, 28)", "crop = 28")
        message = misuse_message(self.config, "data.augment.rotate=3")
        assert_mentions(message, "data.augment.rotate")
