"""Names, options, limits, folders, the embedded dataset and plugins."""

import doctest
import hashlib
import subprocess
import sys
from importlib import import_module, resources
from pathlib import Path

import numpy as np
import pytest
import torch

import tacit.data as data
from support.misuse import misuse_message
from support.plugins import register_plugin
from tacit.core.errors import Misuse
from tacit.data import loading
from tacit.data.dataset import Split
from tacit.data.formats.images import standardise
from tacit.data.sources import SOURCES


def test_names():
    assert all(source.read for source in SOURCES.values())
    assert {name: data.DATASETS[name] for name in SOURCES} == SOURCES
    assert data.names() == [
        *("mnist-mini", "mnist", "fashion-mnist", "cifar10"),
        *("adult", "covtype", "covtype7", "rcv1", "location30"),
    ]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("minst", "mnist"), ("CIFAR-10", "cifar10"), ("fashion_mnist", "fashion-mnist")],
)
def test_unknown_name_suggests_the_closest(typed, meant):
    with pytest.raises(Misuse) as caught:
        data.load(typed)
    assert caught.value.problem == f"There is no dataset {typed!r}."
    assert caught.value.remedy.startswith(f"Did you mean {meant!r}? Known: mnist-mini, mnist,")


def test_missing_files_name_what_to_put_where(tmp_path):
    with pytest.raises(Misuse) as caught:
        data.load("adult", tmp_path, download=False)
    message = str(caught.value)
    for part in (
        str(tmp_path / "adult"),
        "adult/adult.data, adult/adult.test",
        "TACIT_DATA",
        "--data",
        "archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.test",
    ):
        assert part in message


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if source.layouts])
def test_missing_files_of_every_dataset_name_an_address(tmp_path, name):
    with pytest.raises(Misuse, match=r"https?://") as caught:
        data.load(name, tmp_path, download=False)
    assert f"Put {SOURCES[name].folder}/" in caught.value.remedy


def test_one_missing_file(tmp_path, write_mnist):
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(Misuse, match="mnist: its files are not in"):
        data.load("mnist", tmp_path, download=False)


@pytest.mark.parametrize(
    ("key", "value"), [("limit_train", 0), ("limit_test", -3), ("seed", -1), ("limit_train", "9")]
)
def test_bad_numbers(key, value):
    with pytest.raises(Misuse, match=f"{key} is {value!r}"):
        data.load("mnist-mini", **{key: value})


def test_unknown_option_names_the_known_ones(tmp_path):
    with pytest.raises(Misuse, match=r"Dataset adult has no option 'scaling'. It has scale."):
        data.load("adult", tmp_path, scaling="none")
    with pytest.raises(Misuse, match=r"Dataset location30 has no option 'scale'. It has test_fra"):
        data.load("location30", tmp_path, scale="standard")
    with pytest.raises(Misuse, match=r"scale is 'minmax'.*none.*standard"):
        data.load("mnist-mini", scale="minmax")


def test_pixels_are_standardised_with_published_constants(tmp_path, write_mnist):
    mini = data.load("mnist-mini", limit_train=50, scale="standard")
    plain = data.load("mnist-mini", limit_train=50)
    torch.testing.assert_close(mini.train.x, (plain.train.x - 0.1307) / 0.3081)
    torch.testing.assert_close(mini.test.x, (plain.test.x - 0.1307) / 0.3081)
    write_mnist(tmp_path / "fashion-mnist")
    garments, raw = (
        data.load("fashion-mnist", tmp_path, scale=scale) for scale in ("standard", "none")
    )
    torch.testing.assert_close(garments.test.x, (raw.test.x - 0.2860) / 0.3530)


def test_each_channel_has_its_own_constants():
    colours = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 2, 2)
    found = standardise(colours, ((0.0, 1.0), (0.5, 1.0), (0.0, 0.1)))
    pixels = colours / 255
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:, 0], pixels[:, 0], atol=1e-6)
    np.testing.assert_allclose(found[:, 1], pixels[:, 1] - 0.5, atol=1e-6)
    np.testing.assert_allclose(found[:, 2], 10 * pixels[:, 2], rtol=1e-5)


def test_limits_keep_a_random_sample_in_order(tmp_path, write_mnist):
    write_mnist(tmp_path, train=200)
    whole = data.load("mnist", tmp_path)
    part, again, other = (
        data.load("mnist", tmp_path, limit_train=20, seed=seed) for seed in (1, 1, 2)
    )
    assert "20 of 200 training samples" in part.note
    assert torch.equal(part.train.x, again.train.x)
    assert not torch.equal(part.train.x, other.train.x)
    positions = [
        int((whole.train.x == sample).flatten(1).all(1).nonzero()) for sample in part.train.x
    ]
    assert positions == sorted(set(positions))
    assert positions != list(range(20))
    assert torch.equal(whole.train.y[positions], part.train.y)


def test_limits_larger_than_the_data_change_nothing():
    assert len(data.load("mnist-mini", limit_train=10**6).train) == 4000


def test_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data.data_folder(tmp_path) == tmp_path
    assert data.data_folder() == tmp_path / "named"
    monkeypatch.delenv("TACIT_DATA")
    assert data.data_folder() == tmp_path / "cache" / "tacit" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data.data_folder() == tmp_path / ".cache" / "tacit" / "data"


def test_folder_from_the_environment(monkeypatch, tmp_path, write_mnist):
    write_mnist(tmp_path / "mnist")
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    assert len(data.load("mnist", download=False).train) == 30


def test_describe(tmp_path, write_mnist):
    absent = data.describe("mnist", tmp_path)
    assert not absent.present
    assert absent.looked_in == (tmp_path / "mnist", tmp_path)
    assert (absent.shape, absent.classes) == ((1, 28, 28), 10)
    write_mnist(tmp_path / "mnist")
    present = data.describe("mnist", tmp_path)
    assert present.present
    assert {path.parent for path in present.files} == {tmp_path / "mnist"}
    assert data.describe("mnist-mini", tmp_path).present
    assert "GB" in data.describe("rcv1", tmp_path).options["features"]
    assert all(source.licence and source.citation for source in SOURCES.values())


def test_mnist_mini():
    mini = data.load("mnist-mini")
    assert mini.train.x.shape == (4000, 1, 28, 28)
    assert mini.test.x.shape == (1000, 1, 28, 28)
    assert (mini.train.x.dtype, mini.train.y.dtype) == (torch.float32, torch.int64)
    assert (mini.train.x.min(), mini.train.x.max()) == (0, 1)
    assert torch.bincount(mini.train.y).tolist() == [400] * 10
    assert torch.bincount(mini.test.y).tolist() == [100] * 10
    assert mini.train.y[:5].tolist() == [5, 0, 4, 1, 9]  # as MNIST begins
    assert mini.train.x.mean().item() == pytest.approx(0.1307, abs=0.002)


def test_checksum_in_the_notice():
    files = resources.files("tacit.data").joinpath("files")
    contents = files.joinpath("mnist_mini.npz").read_bytes()
    assert hashlib.sha256(contents).hexdigest() in files.joinpath("NOTICE.md").read_text()
    assert len(contents) < 1_200_000


def test_splits_are_checked():
    with pytest.raises(Misuse, match="3 samples but 2 labels"):
        Split(torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(Misuse, match=r"labels are torch\.float32"):
        Split(torch.zeros(3, 4), torch.zeros(3))


def test_import_and_the_embedded_data_need_only_numpy_and_torch():
    program = (
        "import sys\n"
        "for name in ('sklearn', 'PIL', 'rich', 'pydantic', 'matplotlib', 'safetensors'):\n"
        "    sys.modules[name] = None\n"
        "import tacit.data\n"
        "print(len(tacit.data.load('mnist-mini').train))\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.stdout == "4000\n", finished.stderr


@pytest.mark.parametrize("module", ["tacit.data.loading", "tacit.data.partitions"])
def test_examples_in_the_documentation(module):
    result = doctest.testmod(import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


def test_nothing_here_unpickles():
    for path in Path(data.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text
        assert "allow_pickle=True" not in text
        assert text.count("np.load(") == text.count("allow_pickle=False")


def test_no_pixel_is_lost_in_the_conversion():
    stored = np.load(
        resources.files("tacit.data").joinpath("files", "mnist_mini.npz").open("rb"),
        allow_pickle=False,
    )
    back = (data.load("mnist-mini").test.x[:, 0] * 255).round().to(torch.uint8).numpy()
    np.testing.assert_array_equal(back, stored["test_x"])


HEARTS = """
import torch
from tacit.data import Dataset, DatasetSource, Split

def load(folder, *, leads=1, seed):
    '''Electrocardiograms.

    With a second paragraph.
    '''
    x = torch.full((4, leads), float(seed))
    split = Split(x, torch.tensor([0, 1, 0, 1]))
    return Dataset("any name", split, split, 2, ("healthy", "ill"), str(folder))

described = DatasetSource("any name", "Hearts", shape=(1,), class_names=("a", "b"), load=load)

def fail(folder):
    raise KeyError("lost")

def no_dataset(folder):
    return [1, 2]
"""


@pytest.fixture
def register(monkeypatch, own_module):
    own_module("hearts_package", HEARTS)

    def register(attribute):
        value = f"hearts_package:{attribute}"
        register_plugin(monkeypatch, loading, "DATASETS", "hearts", value)

    return register


def test_function_of_a_plugin(register, tmp_path):
    register("load")
    assert data.names()[-1] == "hearts"
    described = data.describe("hearts")
    assert (described.title, described.package) == ("Electrocardiograms.", "an installed package")
    assert (described.options, described.present) == ({"leads": "default 1"}, True)
    loaded = data.load("hearts", tmp_path, seed=7, leads=2, limit_train=3)
    assert torch.equal(loaded.train.x, torch.full((3, 2), 7.0))
    assert (loaded.name, loaded.classes, loaded.class_names) == ("hearts", 2, ("healthy", "ill"))
    assert loaded.note == f"{tmp_path}; 3 of 4 training samples"
    assert data.load("hearts").note == "None"
    assert data.fetch("hearts") == []
    with pytest.raises(Misuse, match=r"Dataset hearts has no option 'lead'\. It has leads"):
        data.load("hearts", lead=1)


def test_dataset_of_a_plugin_in_a_configuration(register, tiny):
    from tacit.config.tasks import load_data

    register("load")
    assert load_data(tiny("data.name=hearts", "data.leads=3").data, None).train.x.shape == (4, 3)
    with pytest.raises(Misuse, match="lead"):
        load_data(tiny("data.name=hearts", "data.lead=3").data, None)


def test_source_of_a_plugin(register):
    register("described")
    described = data.describe("hearts")
    assert (described.name, described.shape, described.classes) == ("hearts", (1,), 2)
    assert len(data.load("hearts").test) == 4


@pytest.mark.parametrize(
    ("attribute", "problem"),
    [
        ("fail", "cannot be loaded: KeyError: 'lost'"),
        ("no_dataset", "is list, not a tacit.data.Dataset"),
        ("missing", "cannot be imported"),
    ],
)
def test_broken_plugin(register, attribute, problem):
    register(attribute)
    with pytest.raises(Misuse, match=problem):
        data.load("hearts")
    assert len(data.load("mnist-mini").test) == 1000


def test_validation_samples_come_from_the_training_samples():
    whole = data.load("mnist-mini", limit_train=100, limit_test=10)
    divided = whole.with_validation(0.2, seed=3)
    assert (len(divided.train), len(divided.test)) == (80, 20)
    rows = torch.cat([divided.train.x, divided.test.x]).flatten(1).sum(1).sort().values
    assert torch.equal(rows, whole.train.x.flatten(1).sum(1).sort().values)
    assert "20 validation samples" in divided.note
    again, other = whole.with_validation(0.2, seed=3), whole.with_validation(0.2, seed=4)
    assert torch.equal(again.test.x, divided.test.x)
    assert not torch.equal(other.test.x, divided.test.x)
    for share in (0.0, 1.0, -0.5, float("nan"), 0.001):
        assert "validation" in misuse_message(whole.with_validation, share)


def test_every_client_holds_out_validation_samples_of_its_own():
    tables = {
        name: {"x": [first + k for k in range(20)], "y": ["a", "b"] * 10}
        for name, first in (("north", 0), ("south", 100))
    }
    whole = data.from_tables(tables, label="y", test=0.2, standardize=False)
    divided = whole.with_validation(0.25)
    assert [len(y) for _, y in divided.client_parts] == [12, 12]
    assert [len(y) for _, y in divided.client_tests] == [4, 4]
    for part, train, held in zip(
        whole.client_parts, divided.client_parts, divided.client_tests, strict=True
    ):
        rows = torch.cat([train[0], held[0]]).flatten().sort().values
        assert torch.equal(rows, part[0].flatten().sort().values)
    assert "8 validation samples" in divided.note
    assert "of a client" in misuse_message(whole.with_validation, 0.01)
    tables["north"] = {"x": list(range(40)), "y": ["a", "b"] * 20}
    other = data.from_tables(tables, label="y", test=0.2, standardize=False).with_validation(0.25)
    assert torch.equal(other.client_tests[1][0], divided.client_tests[1][0])
