"""The front door: names, options, limits, folders, the embedded dataset, and what needs what."""

import doctest
import hashlib
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

import tacit.data as data
from tacit.core.errors import Misuse
from tacit.data import loading as datasets
from tacit.data.dataset import Split
from tacit.data.sources import SOURCES


def test_every_dataset_with_files_has_a_reader():
    assert {name for name, source in SOURCES.items() if source.forms} == set(datasets.READERS)
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
    assert caught.value.problem == f"there is no dataset {typed!r}."
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


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if source.forms])
def test_missing_files_of_every_dataset_name_an_address(tmp_path, name):
    with pytest.raises(Misuse, match=r"https?://") as caught:
        data.load(name, tmp_path, download=False)
    assert f"Put {SOURCES[name].folder}/" in caught.value.remedy


def test_one_missing_file_is_missing_files(tmp_path, write_mnist):
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
    with pytest.raises(Misuse, match=r"dataset adult has no option 'scaling'. It has scale."):
        data.load("adult", tmp_path, scaling="none")
    with pytest.raises(Misuse, match=r"dataset mnist-mini has no option 'scale'. It has none"):
        data.load("mnist-mini", scale="none")


def test_limits_keep_a_random_sample_in_order_and_say_so(tmp_path, write_mnist):
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


def test_the_environment_names_the_folder(monkeypatch, tmp_path, write_mnist):
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
    assert all(
        data.describe(name).licence and data.describe(name).citation for name in data.names()
    )


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


def test_notice_gives_the_checksum_of_the_embedded_file():
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


@pytest.mark.parametrize("module", ["tacit.data.loading", "tacit.data.partition"])
def test_examples_in_the_documentation(module):
    result = doctest.testmod(sys.modules[module])
    assert result.attempted > 0
    assert result.failed == 0


def test_nothing_here_unpickles():
    sources = list(Path(data.__file__).parent.rglob("*.py"))
    assert len(sources) > 15
    for path in sources:
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
