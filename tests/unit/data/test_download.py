"""Downloads from a local server: complete and correct, or nothing."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tacit.core.errors import Misuse
from tacit.core.plugins import Registry
from tacit.data import fetch, load, loading
from tacit.data.dataset import RemoteFile
from tacit.data.download import DownloadError, download
from tacit.data.formats import rcv1
from tacit.data.formats.images import write_idx
from tacit.data.sources import SOURCES

CONTENTS = bytes(range(256)) * 400


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr("tacit.data.download.PAUSE", 0.01)
    monkeypatch.setattr("tacit.data.download.TIMEOUT", 5)


def remote(*urls: str, **checks: object) -> RemoteFile:
    checks = checks or {"sha256": hashlib.sha256(CONTENTS).hexdigest()}
    return RemoteFile("thing.bin", urls, **checks)


def failure(file: RemoteFile, folder) -> list[str]:
    with pytest.raises(DownloadError) as caught:
        download(file, folder)
    assert list(folder.iterdir()) == []
    return caught.value.reasons


def test_a_good_file(file_server, tmp_path):
    path = download(remote(file_server.add("a", CONTENTS)), tmp_path)
    assert path.read_bytes() == CONTENTS
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_checksum(file_server, tmp_path):
    reasons = failure(remote(file_server.add("a", CONTENTS[::-1])), tmp_path)
    assert len(reasons) == 3
    assert f"not {hashlib.sha256(CONTENTS).hexdigest()}" in reasons[0]


def test_missing_file_is_requested_once(file_server, tmp_path):
    reasons = failure(remote(f"{file_server.address}/nowhere"), tmp_path)
    assert len(reasons) == len(file_server.requests) == 1
    assert "HTTP 404" in reasons[0]


def test_connection_cut_halfway(file_server, tmp_path):
    reasons = failure(remote(file_server.add_truncated("a", CONTENTS)), tmp_path)
    assert len(reasons) == len(file_server.requests) == 3
    assert "51,200 of 102,400 bytes" in reasons[0]


def test_second_attempt_succeeds(file_server, tmp_path):
    file_server.add_truncated("a", CONTENTS)
    path = download(remote(file_server.add("a", CONTENTS)), tmp_path)
    assert path.read_bytes() == CONTENTS
    assert len(file_server.requests) == 2


def test_server_errors_are_retried(file_server, tmp_path):
    file_server.add_error("a", 503)
    assert download(remote(file_server.add("a", CONTENTS)), tmp_path).exists()


def test_second_mirror(file_server, tmp_path):
    file = remote(file_server.add_error("first", 403), file_server.add("second", CONTENTS))
    assert download(file, tmp_path).exists()
    assert file_server.requests == ["/first", "/second"]


def test_no_server(tmp_path):
    reasons = failure(remote("http://127.0.0.1:9/a"), tmp_path)
    assert len(reasons) == 3


def test_file_that_is_too_large(file_server, tmp_path):
    file = replace(remote(file_server.add("a", CONTENTS)), size=1000)
    assert "thing.bin has more than 1,000 bytes" in failure(file, tmp_path)[0]


def test_checksum_of_decompressed_contents(file_server, tmp_path):
    expected = {"contents_sha256": hashlib.sha256(CONTENTS).hexdigest()}
    bodies = {"a": gzip.compress(CONTENTS, 1), "b": gzip.compress(b"x"), "c": CONTENTS}
    good, other, plain = (
        remote(file_server.add(name, body), **expected) for name, body in bodies.items()
    )
    download(good, tmp_path).unlink()
    assert "of its contents" in failure(other, tmp_path)[0]
    assert "cannot be read" in failure(plain, tmp_path)[0]


def test_checksum_of_members(file_server, tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("in/side")
        info.size = len(CONTENTS)
        archive.addfile(info, io.BytesIO(CONTENTS))
    url, sha1 = file_server.add("a", packed.getvalue()), hashlib.sha1(CONTENTS).hexdigest()
    download(remote(url, members_sha1={"in/side": sha1}), tmp_path).unlink()
    wrong = remote(url, members_sha1={"in/side": "0" * 40})
    assert "SHA-1 of in/side" in failure(wrong, tmp_path)[0]
    two = remote(url, members_sha1={"in/side": sha1, "gone": sha1})
    assert "it has no member gone" in failure(two, tmp_path)[0]


def test_a_checksum_is_required():
    with pytest.raises(ValueError, match="without any checksum"):
        RemoteFile("a", ("http://127.0.0.1/a",))


@pytest.fixture
def change_source(monkeypatch):
    """A function that changes fields of a built-in source for one test."""

    def change(name, **fields):
        sources = {**SOURCES, name: replace(SOURCES[name], **fields)}
        monkeypatch.setattr(loading, "DATASETS", Registry("tacit.datasets", "dataset", sources))

    return change


@pytest.fixture
def mnist_mirror(file_server, tmp_path, write_mnist, change_source):
    """A small MNIST on the local server."""
    write_mnist(tmp_path / "mirror")
    files = []
    for path in sorted((tmp_path / "mirror").iterdir()):
        contents = path.read_bytes()
        url = file_server.add(path.name, contents)
        files.append(RemoteFile(path.name, (url,), sha256=hashlib.sha256(contents).hexdigest()))
    change_source("mnist", files=tuple(files), fallback=None)
    return files


@pytest.mark.usefixtures("mnist_mirror")
def test_load_downloads_what_is_missing(file_server, tmp_path):
    home = tmp_path / "home"
    assert len(load("mnist", home).train) == 30
    assert len(file_server.requests) == len(list((home / "mnist").iterdir())) == 4
    assert len(load("mnist", home).test) == 12
    assert len(file_server.requests) == 4


@pytest.mark.usefixtures("mnist_mirror")
def test_fetch_keeps_good_files_and_replaces_bad_ones(file_server, tmp_path):
    home = tmp_path / "home"
    paths = fetch("mnist", home)
    assert [path.parent for path in paths] == [home / "mnist"] * 4
    good = paths[1].read_bytes()
    paths[1].write_bytes(good[:-1])
    fetch("mnist", home)
    assert len(file_server.requests) == 5
    assert paths[1].read_bytes() == good


def test_nothing_to_fetch_for_the_embedded_dataset(tmp_path):
    assert fetch("mnist-mini", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("mnist_mirror")
def test_failed_download_names_attempts_and_remedy(file_server, tmp_path):
    file_server.responses.clear()
    with pytest.raises(Misuse) as caught:
        load("mnist", tmp_path / "home")
    assert f"{file_server.address}/t10k-images-idx3-ubyte.gz: HTTP 404" in caught.value.problem
    assert "Put mnist/train-images-idx3-ubyte.gz, " in caught.value.remedy
    assert "TACIT_DATA" in caught.value.remedy


@pytest.mark.usefixtures("mnist_mirror")
def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Misuse, match="Cannot write downloads into") as caught:
        fetch("mnist", tmp_path / "file")
    assert "--data" in caught.value.remedy


@pytest.fixture
def openml(monkeypatch, write_mnist, tmp_path):
    """Let OpenML have the small MNIST, as floats and strings; yields the requested names."""
    arrays = write_mnist(tmp_path / "openml")
    images, labels = (
        np.concatenate([arrays[f"{stem} {kind}"] for stem in ("train", "t10k")])
        for kind in ("images", "labels")
    )
    bunch = SimpleNamespace(data=images.reshape(42, 784) * 1.0, target=labels.astype(str))
    requests = []
    monkeypatch.setattr(
        "sklearn.datasets.fetch_openml", lambda name, **how: requests.append(name) or bunch
    )
    monkeypatch.setattr("tacit.data.formats.images.TRAINING_IMAGES", 30)
    return requests


def test_openml_is_used_when_the_mirror_fails(
    file_server, tmp_path, mnist_mirror, openml, change_source
):
    file_server.responses.clear()

    def contents_sha256(name):
        contents = gzip.decompress((tmp_path / "mirror" / name).read_bytes())
        return hashlib.sha256(contents).hexdigest()

    files = tuple(
        replace(file, contents_sha256=contents_sha256(file.name)) for file in mnist_mirror
    )
    change_source("mnist", files=files)
    ours = load("mnist", tmp_path / "home")
    original = load("mnist", tmp_path / "mirror")
    assert openml == ["mnist_784"]
    np.testing.assert_array_equal(ours.train.x.numpy(), original.train.x.numpy())
    np.testing.assert_array_equal(ours.test.y.numpy(), original.test.y.numpy())
    assert len(list((tmp_path / "home" / "mnist").iterdir())) == 4


@pytest.mark.usefixtures("openml")
def test_openml_with_other_contents(file_server, tmp_path, change_source):
    urls = (f"{file_server.address}/none",)
    change_source("mnist", files=tuple(replace(file, urls=urls) for file in SOURCES["mnist"].files))
    with pytest.raises(
        Misuse, match=r"by scikit-learn: train-images-idx3-ubyte\.gz: its SHA-256 of its contents"
    ):
        fetch("mnist", tmp_path / "home")
    assert list((tmp_path / "home" / "mnist").iterdir()) == []


def test_openml_that_fails_is_one_more_reason(tmp_path, monkeypatch, change_source):
    def unreachable(name, **how):
        raise ConnectionError("no route")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", unreachable)
    urls = ("http://127.0.0.1:9/a",)
    files = (replace(file, urls=urls) for file in SOURCES["fashion-mnist"].files)
    change_source("fashion-mnist", files=tuple(files))
    with pytest.raises(Misuse, match="by scikit-learn: ConnectionError: no route"):
        fetch("fashion-mnist", tmp_path)


def test_fallback_writes_the_files_of_the_source():
    source = SOURCES["mnist"]
    assert source.fallback.func is write_idx
    assert {file.name for file in source.files} == {
        names[0] for layout in source.layouts for names in layout.required.values()
    }


def test_rcv1_by_scikit_learn(tmp_path, monkeypatch):
    from scipy.sparse import csr_matrix

    topics = ["CCAT", "C15", "ECAT", "GCAT", "MCAT"]
    target = csr_matrix(
        np.array(
            [
                [1, 1, 0, 0, 0],  # +1
                [0, 0, 1, 0, 0],  # +1
                [0, 0, 0, 1, 0],  # -1
                [0, 0, 0, 0, 1],  # -1
                [1, 0, 0, 0, 1],  # both sides: dropped
                [0, 1, 0, 0, 0],  # no side: dropped
            ]
        )
    )
    dense = np.zeros((6, 47_236))
    dense[np.arange(6), np.arange(6)] = 0.5
    homes = []

    def fetch_rcv1(data_home, subset):
        homes.append(data_home)
        rows = slice(None) if subset == "train" else slice(0, 3)
        return SimpleNamespace(
            data=csr_matrix(dense[rows]), target=target[rows], target_names=topics
        )

    monkeypatch.setattr("sklearn.datasets.fetch_rcv1", fetch_rcv1)
    assert SOURCES["rcv1"].fallback is rcv1.write
    data = load("rcv1", tmp_path)
    assert sorted(path.name for path in (tmp_path / "rcv1").iterdir()) == [
        "rcv1_test.npz",
        "rcv1_train.npz",
    ]
    assert data.train.y.tolist() == [1, 1, 0, 0]
    assert data.test.y.tolist() == [1, 1, 0]
    assert data.train.x[:, :6].argmax(1).tolist() == [0, 1, 2, 3]
    assert "made from scikit-learn's fetch_rcv1 (7 documents)" in data.note
    assert homes[0].startswith(str(tmp_path))
