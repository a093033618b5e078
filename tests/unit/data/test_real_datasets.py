"""The real files: shapes, class counts and pixel means as published. Needs TACIT_DATA."""

import hashlib
import importlib.util
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.data import describe, load
from tacit.data.sources import SOURCES

pytestmark = pytest.mark.realdata


def load_real(name, folder, **options):
    assert describe(name, folder).present
    return load(name, folder, download=False, **options)


def class_counts(split) -> list[int]:
    return torch.bincount(split.y).tolist()


def test_mnist(real_data):
    data = load_real("mnist", real_data)
    assert data.train.x.shape == (60_000, 1, 28, 28)
    assert class_counts(data.train) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert class_counts(data.test) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.train.x.mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert data.train.x.std().item() == pytest.approx(0.3081, abs=5e-5)


def test_fashion_mnist(real_data):
    data = load_real("fashion-mnist", real_data)
    assert class_counts(data.train) == [6000] * 10
    assert class_counts(data.test) == [1000] * 10
    assert data.train.x.mean().item() == pytest.approx(0.2860, abs=5e-5)
    assert data.train.x.std().item() == pytest.approx(0.3530, abs=5e-5)


def test_cifar10_is_bit_exact(real_data):
    """Put back into the original binary layout, the batches have the published SHA-1 sums."""
    data = load_real("cifar10", real_data)
    assert class_counts(data.test) == [1000] * 10
    published = {
        Path(name).stem: sha1 for name, sha1 in SOURCES["cifar10"].files[0].members_sha1.items()
    }
    batches = {
        f"data_batch_{1 + start // 10_000}": start for start in range(0, len(data.train), 10_000)
    }
    if len(data.train) < 50_000:
        assert f"({len(data.train):,} of 50,000 images)" in data.note
    for name, split, start in (
        ("test_batch", data.test, 0),
        *((name, data.train, start) for name, start in batches.items()),
    ):
        rows = slice(start, start + 10_000)
        pixels = (split.x[rows] * 255).round().to(torch.uint8).flatten(1).numpy()
        original = np.concatenate([split.y[rows, None].numpy().astype(np.uint8), pixels], axis=1)
        assert hashlib.sha1(original.tobytes()).hexdigest() == published[name]
    means = data.train.x.mean((0, 2, 3)).numpy()
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=0.003)


def test_adult(real_data):
    data = load_real("adult", real_data)
    assert data.train.x.shape == (32_561, 108)
    assert class_counts(data.train) == [24_720, 7_841]
    assert class_counts(data.test) == [12_435, 3_846]
    np.testing.assert_allclose(data.train.x[:, :6].mean(0).numpy(), 0, atol=1e-4)
    assert (data.train.x[:, 6:].sum(1) == 8).all()  # one category in each of eight columns
    assert (data.test.x[:, 6:].sum(1) == 8).all()


def test_covtype(real_data):
    seven, binary = (
        load_real("covtype7", real_data),
        load_real("covtype", real_data, limit_train=1000),
    )
    both = [a + b for a, b in zip(class_counts(seven.train), class_counts(seven.test), strict=True)]
    assert both == [211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510]
    assert seven.train.x.shape == (464_810, 54)
    assert seven.test.x.shape == (116_202, 54)
    assert (seven.train.x[:, 10:].sum(1) == 2).all()  # one wilderness area, one soil type
    assert class_counts(binary.test)[1] == class_counts(seven.test)[1]
    assert len(binary.train) == 1000


def test_rcv1(real_data):
    data = load_real("rcv1", real_data, features=500)
    assert data.train.x.shape == (19_319, 500)
    assert class_counts(data.train) == [9_696, 9_623]
    assert class_counts(data.test) == [2_211, 2_197]
    assert data.note == "RCV1 (23,727-document subset), 500 most frequent of 47,236 terms"


def test_rcv1_in_full_dimension(real_data):
    data = load_real("rcv1", real_data, limit_train=300, limit_test=50)
    assert data.train.x.shape == (300, 47_236)
    np.testing.assert_allclose(data.train.x.norm(dim=1).numpy(), 1, atol=1e-4)
    assert 100 < class_counts(data.train)[0] < 200


def test_location30(real_data):
    data = load_real("location30", real_data)
    assert data.train.x.shape == (4_008, 446)
    counts = np.add(class_counts(data.train), class_counts(data.test))
    assert (len(counts), counts.sum(), counts.min(), counts.max()) == (30, 5_010, 97, 308)
    assert set(data.train.x.unique().tolist()) == {0, 1}


def test_embedded_digits_are_those_of_mnist(real_data):
    tool = Path(__file__).parents[3] / "tools" / "make_mnist_mini.py"
    spec = importlib.util.spec_from_file_location("make_mnist_mini", tool)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    expected = module.mini_arrays(real_data)
    with (
        resources.files("tacit.data").joinpath("files", "mnist_mini.npz").open("rb") as stream,
        np.load(stream, allow_pickle=False) as stored,
    ):
        assert set(stored) == set(expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(stored[name], array)


def test_files_have_the_checksums_of_the_table(real_data):
    """The checksums of the sources are those of the real files."""
    from tacit.data.download import mismatch

    checked = 0
    for source in SOURCES.values():
        for file in source.files:
            path = real_data / source.folder / file.name
            if path.is_file() and source.name != "covtype7":
                assert mismatch(file, path) == ""
                checked += 1
    assert checked > 0
