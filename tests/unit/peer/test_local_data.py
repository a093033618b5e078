"""A node loads its own data only, trains as in a simulation, and rejects data that do not fit."""

import copy
import gc
import weakref

import numpy as np
import pandas
import pytest
import sqlalchemy
import torch
from safetensors.torch import save_file

from tacit import data
from tacit.config.build import build
from tacit.config.loading import make_config
from tacit.core.errors import Misuse
from tacit.engines.gradients.objective import HostedObjective
from tacit.peer.federation.agreed_settings import agreed_data
from tacit.peer.node.local_data import load_local_data

FUNCTIONS = """
import numpy as np, torch, tacit

x, y = np.linspace(0, 1, 120, dtype=np.float32).reshape(40, 3), np.arange(40) % 2
asked = []

def whole(): return x, y
def named(name): asked.append(name); return torch.from_numpy(x), torch.from_numpy(y)
def any_name(*names): asked.append(names); return [x, y]
def options(*, keep=40): return x[:keep], y[:keep]
def tested(): return (x, y), (x[:7], y[:7])
def half_tested(): return (x, y), x
def three(): return x, y, y
def nothing(): return None
def lists(): return x.tolist(), y.tolist()
def broken(): raise KeyError("no licence")
constant = 3

def parts(count): return [torch.arange(3.0) + k for k in range(count)]
def distance(theta, place): return 0.5 * (theta - place).square().sum()
def task(): return tacit.Task(torch.zeros(3), parts(1), loss=distance)
def two(): return tacit.Task(torch.zeros(3), parts(2), loss=distance)
def own_start(): return tacit.Task(torch.zeros(1, 3), parts(1), loss=distance)
def exact(): return tacit.quadratic(torch.eye(3)[None], torch.ones(1, 3))
def filtered(): return tacit.adaptive_filtering(clients=1, width=4)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's module; `own("whole")` is the option --data."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda function: f"{name}:{function}"


def federation(**sections):
    plain = {
        "data": {"name": "own", "shape": [3], "classes": 2},
        "model": {"name": "mlp", "hidden": [4]},
        "run": {"batch_size": 8, "seed": 5},
    }
    return make_config(plain | sections)


def load(config, source, number=4, name="hospital-a", clients=5, position=2):
    return load_local_data(config, clients, position, number, name, source)


def refusal(config, source, **where):
    with pytest.raises(Misuse) as caught:
        load(config, source, **where)
    assert caught.value.remedy
    return str(caught.value)


def arrays(count=40, shape=(3,), classes=2):
    x = np.random.default_rng(0).random((count, *shape), dtype=np.float32)
    return {"x": x, "y": np.arange(count) % classes}


def objective(task, number, place, seed):
    loader = task.loader(torch.tensor([number]), seed, "cpu", positions=torch.tensor([place]))
    return HostedObjective(task, [number], loader, "looped", seed, "cpu")


# A node trains as in a simulation of all clients.

DEALT = {
    "data": {"name": "mnist-mini", "limit_train": 240, "limit_test": 60},
    "model": {"name": "mlp", "hidden": [8]},
    "graph": {"kind": "ring", "clients": 5},
    "algorithm": {"name": "dsgt", "lr": 0.1},
    "run": {"batch_size": 16, "seed": 3},
}
STREAMED = {
    "task": {"name": "adaptive-filtering", "width": 4},
    "graph": {"kind": "ring", "clients": 5},
    "algorithm": {"name": "dsgt", "lr": 0.1},
    "run": {"seed": 3},
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": {"name": "mlp", "hidden": [8], "init": "independent"}},
        {
            "model": {"name": "mlp", "hidden": [8], "init": "module"},
            "partition": {"kind": "quantity", "alpha": 1.0},
        },
        {"partition": {"kind": "dirichlet", "alpha": 0.5, "seed": 9}},
        {"run": {"batch_size": 16, "seed": 3, "clip": {"bound": 0.01}}},
        STREAMED,
        {**STREAMED, "run": {"seed": 3, "clip": {"bound": 0.01, "norm": "l1"}}},
    ],
)  # fmt: skip
def test_a_node_has_the_gradients_of_the_simulation(changes):
    plain = STREAMED | changes if "task" in changes else DEALT | changes
    config = make_config(copy.deepcopy(plain))
    together = build(config).task
    everyone = torch.arange(5)
    all_rows = HostedObjective(
        together, range(5), together.loader(everyone, 3, "cpu"), "looped", 3, "cpu"
    )
    theta = torch.randn(5, together.parameters, generator=torch.Generator().manual_seed(1)).to(
        together.dtype
    )
    numbers = (0, 1, 2, 7, 40)
    gradients = {number: all_rows.grad(theta, number) for number in numbers}
    for client in range(5):
        local = load(config, None, number=client, position=client)
        alone = objective(local.task, client, local.index, 3)
        assert torch.equal(alone.theta0(), all_rows.theta0()[[client]])
        for number in numbers:
            assert torch.equal(alone.grad(theta[[client]], number), gradients[number][[client]])
        judged = local.task.evaluation.models(theta[[client]], [local.index])
        assert torch.equal(judged.loss, together.evaluation.models(theta, range(5)).loss[[client]])


def test_only_the_own_part_of_a_public_dataset_is_kept(monkeypatch):
    loaded, real = [], data.load

    def watched(*arguments, **options):
        dataset = real(*arguments, **options)
        loaded.append(weakref.ref(dataset.train.x))
        return dataset

    monkeypatch.setattr(data, "load", watched)
    local = load(make_config(DEALT), None, position=1)
    gc.collect()
    assert [array() for array in loaded] == [None]
    assert local.task.clients == 1
    assert local.index == 0
    assert len(local.task.parts.arrays[0]) == 48
    assert "48 samples" in local.note
    assert "240 samples" in local.note


def test_batches_do_not_depend_on_the_position():
    config = make_config(DEALT)
    local = load(config, None, number=7, position=2)
    loader = local.task.loader(torch.tensor([7]), 3, "cpu", positions=torch.tensor([local.index]))
    other = local.task.loader(torch.tensor([2]), 3, "cpu", positions=torch.tensor([local.index]))
    assert not torch.equal(loader.indices(0), other.indices(0))  # keyed by the permanent number


def test_a_named_task_has_all_clients():
    local = load(make_config(STREAMED), None, number=9, position=2)
    assert local.task.clients == 5
    assert local.index == 2
    assert local.note == "adaptive-filtering: client 2 of 5"


def test_a_folder_says_where_the_dataset_is(tmp_path):
    assert load(make_config(DEALT), str(tmp_path)).task.clients == 1


# Sources of own data.


def saved(tmp_path, kind, values):
    path = tmp_path / f"own.{kind}"
    if kind == "npz":
        np.savez(path, **values)
    else:
        save_file({key: torch.tensor(value) for key, value in values.items()}, path)
    return str(path)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_a_file_of_own_data(tmp_path, kind):
    values = arrays()
    local = load(federation(), saved(tmp_path, kind, values))
    x, y = local.task.parts.of(0)
    assert torch.equal(x, torch.from_numpy(values["x"]))
    assert torch.equal(y, torch.from_numpy(values["y"]))
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert (local.task.clients, local.index, local.task.batch_size) == (1, 0, 8)
    assert local.note == f"{tmp_path}/own.{kind}: 40 samples to train on, evaluated on the same"
    theta = local.task.initial(5, [4])
    assert local.task.evaluation.models(theta, [0]).accuracy is None  # own data have a loss only
    assert objective(local.task, 4, 0, 5).grad(theta, 0).shape == (1, 26)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_a_file_with_test_data(tmp_path, kind):
    values = arrays()
    values |= {"x_test": values["x"][:7], "y_test": values["y"][:7]}
    local = load(federation(), saved(tmp_path, kind, values))
    assert local.note.endswith("40 samples to train on, 7 to test on")
    assert local.task.evaluation.models(local.task.initial(5, [4]), [0]).accuracy.numel() == 1
    assert len(local.task.evaluation.x) == 7


@pytest.mark.parametrize("function", ["whole", "named", "any_name", "options"])
def test_a_function_of_own_data(own, function):
    local = load(federation(), own(function))
    assert local.task.clients == 1
    assert local.task.parts.sizes.tolist() == [40]
    assert local.note == f"{own(function)}: 40 samples to train on, evaluated on the same"
    module = __import__(own(function).partition(":")[0])
    assert module.asked == {"named": ["hospital-a"], "any_name": [("hospital-a",)]}.get(
        function, []
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (np.array([0, 51, 255], np.uint8), [0.0, 0.2, 1.0]),
        (torch.tensor([0, 51, 255], dtype=torch.uint8), [0.0, 0.2, 1.0]),
        (np.array([0, 51, 255], np.int32), [0.0, 51.0, 255.0]),
        (np.array([0, 1, 300], ">i2"), [0.0, 1.0, 300.0]),
        (np.array([0, 1, 60_000], np.uint16), [0.0, 1.0, 60_000.0]),
        (np.array([0.5, -1, 2], ">f8"), [0.5, -1.0, 2.0]),
        (np.array([0.5, -1, 2], np.longdouble), [0.5, -1.0, 2.0]),
        (torch.tensor([0.5, -1, 2], dtype=torch.bfloat16), [0.5, -1.0, 2.0]),
        (torch.tensor([0.5, -1, 2], requires_grad=True), [0.5, -1.0, 2.0]),
        (torch.tensor([0.0, -1, 2]).to_sparse(), [0.0, -1.0, 2.0]),
        (np.array([True, False, True]), [1.0, 0.0, 1.0]),
        (np.array([0.5, -1, 2], np.float32)[::-1], [2.0, -1.0, 0.5]),
    ],
)
def test_all_numbers_become_float32_and_bytes_are_scaled_to_one(own, given, wanted):
    module = __import__(own("whole").partition(":")[0])
    stacked = torch.stack([given] * 8) if isinstance(given, torch.Tensor) else np.stack([given] * 8)
    if isinstance(stacked, np.ndarray):
        stacked.flags.writeable = False
    module.x, module.y = stacked, np.arange(8, dtype=np.uint8) % 2
    x, y = load(federation(), own("whole")).task.parts.of(0)
    assert x.dtype == torch.float32
    assert not x.requires_grad
    assert torch.equal(x[3], torch.tensor(wanted))
    assert y.dtype == torch.int64


def test_own_data_in_place_of_a_known_dataset(tmp_path):
    config = make_config(DEALT)
    path = saved(tmp_path, "npz", arrays(32, (1, 28, 28), 10))
    assert load(config, path).task.parameters == build(config).task.parameters
    message = refusal(config, saved(tmp_path, "npz", arrays(32, (28, 28), 10)))
    assert "(32, 28, 28)" in message
    assert "[n, 1, 28, 28]" in message


def test_first_models_depend_on_the_number_of_the_node(tmp_path):
    path = saved(tmp_path, "npz", arrays())
    first = load(federation(), path).task.initial
    assert torch.equal(first(5, [1]), first(5, [4]))
    first = load(
        federation(model={"name": "mlp", "hidden": [4], "init": "independent"}), path
    ).task.initial
    assert not torch.equal(first(5, [1]), first(5, [4]))
    other = load(
        federation(model={"name": "mlp", "hidden": [4], "init": "independent"}),
        path,
        position=0,
        number=1,
    )
    assert torch.equal(other.task.initial(5, [4]), first(5, [4]))


def test_gradients_of_own_data_are_clipped(tmp_path, own):
    clip = {"batch_size": 8, "seed": 5, "clip": {"bound": 1e-3}}
    for source in (saved(tmp_path, "npz", arrays()), own("whole"), own("task")):
        local = load(federation(run=clip), source)
        theta = local.task.initial(5, [4]) + 1
        assert float(objective(local.task, 4, 0, 5).grad(theta, 0).norm()) == pytest.approx(1e-3)


# A user's task.


def test_a_users_task_is_used_unchanged(own):
    local = load(federation(), own("task"))
    assert (local.task.clients, local.index, local.task.parameters) == (1, 0, 3)
    assert "1 clients, 3 parameters" in local.note
    gradient = objective(local.task, 4, 0, 5).grad(torch.zeros(1, 3), 0)
    assert torch.equal(gradient, -torch.arange(3.0)[None])


def test_a_users_task_keeps_its_exact_minimisers(own):
    local = load(federation(), own("exact"))
    assert local.task.require_proximal() is local.task.proximal


def test_a_users_task_can_replace_a_named_one(own):
    local = load(make_config(STREAMED), own("filtered"))
    assert local.task.clients == 1
    assert local.index == 0
    assert "3 parameters of type torch.float32" in refusal(make_config(STREAMED), own("task"))
    assert "no model to train" in refusal(make_config(STREAMED), own("whole"))


# Errors.


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("half_tested", ["tuple", "not data", "(x, y)"]),
        ("three", ["tuple", "not data"]),
        ("nothing", ["NoneType", "not data"]),
        ("lists", ["list", "not data"]),
        ("broken", ["fails: KeyError: 'no licence'"]),
        ("constant", ["is a int", "function"]),
        ("absent", ["cannot be imported", "absent"]),
        ("two", ["2 clients", "one client"]),
        ("own_start", ["no initial model for client number 4", "[P]"]),
    ],
)
def test_functions_that_return_no_data_are_an_error(own, function, words):
    message = refusal(federation(), own(function))
    for word in [own(function), *words]:
        assert word in message


def changed(**values):
    return lambda: arrays() | values


ALL = arrays()
WRONG = [
    (lambda: {"y": ALL["y"]}, ["no array 'x'", "It has y"]),
    (lambda: {"x": ALL["x"]}, ["no array 'y'"]),
    (changed(x_test=ALL["x"]), ["no array 'y_test'"]),
    (changed(y_test=ALL["y"]), ["no array 'x_test'"]),
    (changed(x_tests=ALL["x"]), ["'x_tests'", "Did you mean 'x_test'?"]),
    (changed(x=ALL["x"][:, :2]), ["x has shape (40, 2)", "[n, 3]", "data.shape"]),
    (changed(x=ALL["x"].reshape(-1)), ["x has shape (120,)", "[n, 3]"]),
    (changed(x=np.float32(1)), ["x has shape ()"]),
    (changed(x=ALL["x"][:0], y=ALL["y"][:0]), ["shape (0,)", "at least one"]),
    (changed(x=ALL["x"][:7], y=ALL["y"][:7]), ["7 samples", "batch of 8", "run.batch_size"]),
    (changed(y=ALL["y"][:39]), ["y has shape (39,) for 40 inputs"]),
    (changed(y=ALL["y"][:, None]), ["y has shape (40, 1)"]),
    (changed(y=ALL["y"].astype(np.float32)), ["float32 values", "whole numbers from 0 to 1"]),
    (changed(y=ALL["y"] > 0), ["bool values", "whole numbers"]),
    (changed(y=ALL["y"] + 1), ["from 1 to 2", "2 classes", "from 0 to 1"]),
    (changed(y=ALL["y"] - 1), ["from -1 to 0", "2 classes"]),
    (changed(x=np.where(np.arange(40)[:, None] < 5, ALL["x"], np.inf)), ["infinite", "sample 5"]),
    (changed(x=np.full((40, 3), np.nan)), ["NaN", "sample 0"]),
    (changed(x=np.full((40, 3), 1e300)), ["infinite (as float32)", "sample 0"]),
    (changed(x=ALL["x"].astype(np.complex64)), ["complex64 numbers", "real"]),
    (changed(x_test=ALL["x"][:, :2], y_test=ALL["y"]), ["x_test has shape (40, 2)"]),
    (changed(x_test=ALL["x"], y_test=ALL["y"] + 1), ["y_test goes from 1 to 2"]),
    (changed(x_test=ALL["x"][:0], y_test=ALL["y"][:0]), ["y_test has shape (0,)"]),
]


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
@pytest.mark.parametrize(("make", "words"), WRONG)
def test_files_that_do_not_fit_are_an_error(tmp_path, kind, make, words):
    path = saved(tmp_path, kind, make())
    message = refusal(federation(), path)
    for word in [path, *words]:
        assert word in message


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


def test_pickles_in_files_are_never_opened(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, x=np.array([Trap()], dtype=object), y=ALL["y"])
    assert "cannot be read: ValueError" in refusal(federation(), str(path))
    with path.open("wb") as file:
        np.save(file, np.array([Trap()], dtype=object))
    assert "cannot be read" in refusal(federation(), str(path))


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b"nonsense", lambda b: b[::-1]]
)
def test_damaged_files_are_an_error(tmp_path, kind, damage):
    path = tmp_path / f"own.{kind}"
    path.write_bytes(damage((tmp_path / saved(tmp_path, kind, arrays())).read_bytes()))
    message = refusal(federation(), str(path))
    assert f"{path} cannot be read" in message
    assert "numpy.savez or safetensors" in message


def test_other_sources_are_an_error(tmp_path):
    (tmp_path / "own.csv").write_text("1,2\n")
    assert "--data is not set" in refusal(federation(), None)
    assert "is a folder" in refusal(federation(), str(tmp_path))
    assert "there is no file or folder" in refusal(federation(), str(tmp_path / "absent.npz"))
    assert "there is no file or folder" in refusal(make_config(DEALT), str(tmp_path / "absent"))
    assert "has no rows" in refusal(federation(), str(tmp_path / "own.csv"))
    (tmp_path / "own.txt").write_text("1,2\n")
    assert ".npz or .safetensors" in refusal(federation(), str(tmp_path / "own.txt"))
    (tmp_path / "own.csv").write_text("age,ill\n1,2\n")
    assert "agreed on no label" in refusal(federation(), str(tmp_path / "own.csv"))
    assert "'own_absent:f' cannot be imported" in refusal(federation(), "own_absent:f")
    message = refusal(make_config(STREAMED), str(tmp_path))
    assert "does not go with [task]: adaptive-filtering generates its data" in message
    assert "[data]: There is no dataset 'mnist-mni'" in refusal(
        federation(data={"name": "mnist-mni"}), None
    )


def test_an_error_of_the_model_names_its_section(tmp_path):
    message = refusal(federation(model={"name": "lenet"}), saved(tmp_path, "npz", arrays()))
    assert message.startswith("[model]")


# What the federation agrees on.


def test_the_federation_defines_shape_and_classes():
    assert agreed_data(federation()) == ((3,), 2)
    assert agreed_data(federation(data={"name": "own", "shape": [1, 8, 8], "classes": 10})) == (
        (1, 8, 8),
        10,
    )
    for name in data.names():
        described = data.describe(name)
        assert agreed_data(federation(data={"name": name})) == (described.shape, described.classes)
    assert agreed_data(federation(data={"name": "rcv1", "features": 200})) == ((200,), 2)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"classes": 2}, ["need shape", "shape = [30]"]),
        ({"shape": [3]}, ["need classes"]),
        ({"shape": 3, "classes": 2}, ["data.shape = 3"]),
        ({"shape": [], "classes": 2}, ["data.shape = []"]),
        ({"shape": [0], "classes": 2}, ["data.shape.0 = 0"]),
        ({"shape": [3.0], "classes": 2}, ["data.shape.0 = 3.0"]),
        ({"shape": [3], "classes": 1}, ["classes = 1"]),
        ({"shape": [3], "classes": True}, ["data.classes = True"]),
        (
            {"shape": [3], "classes": 2, "shap": 1},
            ["shap is not an option", "Did you mean 'shape'?"],
        ),
        ({"shape": [3], "classes": 2, "limit_train": 10}, ["limit_train"]),
    ],
)
def test_an_incomplete_agreement_is_an_error(section, words):
    with pytest.raises(Misuse) as caught:
        agreed_data(federation(data={"name": "own", **section}))
    for word in words:
        assert word in str(caught.value)


def test_unknown_data_are_an_error():
    with pytest.raises(Misuse, match=r"\[data\]: There is no dataset 'mnist-mni'"):
        agreed_data(federation(data={"name": "mnist-mni"}))
    with pytest.raises(Misuse, match=r"data.features = 'all'"):
        agreed_data(federation(data={"name": "rcv1", "features": "all"}))


def test_metrics_of_a_node_that_has_test_data(own):
    config = federation(run={"batch_size": 8, "metrics": ["auc", "f1"]})
    local = load_local_data(config, 3, 0, 0, "a", own("tested"))
    assert local.task.evaluation.metric_names == ("auc", "f1")
    scores = local.task.evaluation.models(local.task.initial(0, [0]), [0])
    assert set(scores.metrics) == {"auc", "f1"}


def test_a_node_without_test_data_says_that_it_measures_less(own):
    config = federation(run={"batch_size": 8, "metrics": ["auc"]})
    local = load_local_data(config, 3, 0, 0, "a", own("whole"))
    assert local.note.endswith("without run.metrics, because there are no test samples")


def test_metrics_that_do_not_fit_are_an_error(own):
    config = federation(run={"batch_size": 8, "metrics": ["r2"]})
    with pytest.raises(Misuse, match=r"run\.metrics: 'r2' is for models that predict numbers"):
        load_local_data(config, 3, 0, 0, "a", own("tested"))


def test_other_sums_of_the_same_rows_need_other_masks(tmp_path):
    """A node has a new salt if its digest is new; with constants it masks other sums."""
    path = tmp_path / "rows.csv"
    path.write_text("age,height,ill\n" + "".join(f"{k},{2 * k},{k % 2}\n" for k in range(20)))

    def digest(age):
        columns = {"age": age, "height": "number"}
        table = {"label": "ill", "classes": ["0", "1"], "schema": columns}
        return load(federation(data={"name": "own", **table}), str(path)).digest

    assert digest("number") == digest("number")
    assert digest("number") != digest({"mean": 9, "std": 6})


def own_rows(**data):
    schema = {"age": "number", "sex": ["m", "f"]}
    agreed = {"name": "own", "label": "ill", "classes": ["no", "yes"], "schema": schema}
    return federation(data=agreed | data)


ROWS = [{"age": 30 + k, "sex": "mf"[k % 2], "ill": ["no", "yes"][k // 2 % 2]} for k in range(20)]


def test_a_table_of_a_database(tmp_path, own):
    url = f"sqlite:///{tmp_path}/clinic.db"
    frame = pandas.DataFrame(ROWS)
    with sqlalchemy.create_engine(url).connect() as connection:
        frame.to_sql("patients", connection, index=False)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    local = load(own_rows(read={"table": "patients"}), url)
    assert local.digest == load(own_rows(), str(tmp_path / "rows.csv")).digest
    assert local.note.startswith("clinic.db, patients: 16 samples")
    query = {"query": "SELECT * FROM patients"}
    assert "runs no queries of others" in refusal(own_rows(read=query), url)
    assert "read.table is not set" in refusal(own_rows(), url)
    assert "there is none in a database" in refusal(own_rows(test="t.csv"), url)


def test_the_dialect_that_the_members_agreed_on(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [f"{row['age']},0;{row['sex'].upper()};{row['ill']}" for row in ROWS]
    path.write_text("\n".join(["age;sex;ill", *lines]))
    recode = {"sex": {"M": "m", "F": "f"}}
    local = load(own_rows(read={"decimal": ","}, recode=recode), str(path))
    assert local.task.preprocessing["recode"] == recode
    assert local.rows.x.shape == (16, 3)
    message = refusal(own_rows(), str(path))
    assert message.startswith("--data: 22 problems:")
    assert "line 2, column 'age': '30,0' is not a number" in message
