"""Downloads against a server of our own: whole and right, or nothing."""

import gzip
import hashlib
import io
import sys
import tarfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tacit.core.errors import Misuse
from tacit.data import fetch, load
from tacit.data.download import DownloadFailed, Patience, download
from tacit.data.scikit import idx_from_openml, rcv1_from_scikit_learn
from tacit.data.source import RemoteFile
from tacit.data.sources import SOURCES

HASTY = Patience(attempts=3, pause=0.01, timeout=5)
CONTENTS = bytes(range(256)) * 400


def remote(*urls: str, **checks: object) -> RemoteFile:
    checks = checks or {"sha256": hashlib.sha256(CONTENTS).hexdigest()}
    return RemoteFile("thing.bin", urls, **checks)


def failure(file: RemoteFile, folder) -> list[str]:
    with pytest.raises(DownloadFailed) as caught:
        download(file, folder, HASTY)
    assert list(folder.iterdir()) == []
    return caught.value.reasons


def test_a_good_file(shop, tmp_path):
    path = download(remote(shop.put("a", CONTENTS)), tmp_path, HASTY)
    assert path.read_bytes() == CONTENTS
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_checksum(shop, tmp_path):
    reasons = failure(remote(shop.put("a", CONTENTS[::-1])), tmp_path)
    assert len(reasons) == 3
    assert f"not {hashlib.sha256(CONTENTS).hexdigest()}" in reasons[0]


def test_missing_file_is_asked_for_once(shop, tmp_path):
    reasons = failure(remote(f"{shop.address}/nowhere"), tmp_path)
    assert len(reasons) == len(shop.requests) == 1
    assert "HTTP 404" in reasons[0]


def test_connection_cut_halfway(shop, tmp_path):
    reasons = failure(remote(shop.cut("a", CONTENTS)), tmp_path)
    assert len(reasons) == len(shop.requests) == 3
    assert "51,200 of 102,400 bytes" in reasons[0]


def test_second_try_succeeds(shop, tmp_path):
    shop.cut("a", CONTENTS)
    path = download(remote(shop.put("a", CONTENTS)), tmp_path, HASTY)
    assert path.read_bytes() == CONTENTS
    assert len(shop.requests) == 2


def test_server_errors_are_retried(shop, tmp_path):
    shop.fail("a", 503)
    assert download(remote(shop.put("a", CONTENTS)), tmp_path, HASTY).exists()


def test_second_mirror(shop, tmp_path):
    file = remote(shop.fail("first", 403), shop.put("second", CONTENTS))
    assert download(file, tmp_path, HASTY).exists()
    assert shop.requests == ["/first", "/second"]


def test_nobody_listens(tmp_path):
    reasons = failure(remote("http://127.0.0.1:9/a"), tmp_path)
    assert len(reasons) == 3


def test_more_than_promised_is_refused(shop, tmp_path):
    file = replace(remote(shop.put("a", CONTENTS)), size=1000)
    assert "more than the 1,000 bytes" in failure(file, tmp_path)[0]


def test_checksum_of_decompressed_contents(shop, tmp_path):
    expected = {"contents_sha256": hashlib.sha256(CONTENTS).hexdigest()}
    assert download(
        remote(shop.put("a", gzip.compress(CONTENTS, 1)), **expected), tmp_path, HASTY
    ).exists()
    (tmp_path / "thing.bin").unlink()
    assert (
        "of its contents"
        in failure(remote(shop.put("b", gzip.compress(b"x")), **expected), tmp_path)[0]
    )
    assert "cannot be read" in failure(remote(shop.put("c", CONTENTS), **expected), tmp_path)[0]


def test_checksum_of_members(shop, tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("in/side")
        info.size = len(CONTENTS)
        archive.addfile(info, io.BytesIO(CONTENTS))
    url, sha1 = shop.put("a", packed.getvalue()), hashlib.sha1(CONTENTS).hexdigest()
    download(remote(url, members_sha1={"in/side": sha1}), tmp_path, HASTY).unlink()
    assert (
        "SHA-1 of in/side" in failure(remote(url, members_sha1={"in/side": "0" * 40}), tmp_path)[0]
    )
    two = remote(url, members_sha1={"in/side": sha1, "gone": sha1})
    assert "it has no member gone" in failure(two, tmp_path)[0]


def test_a_download_without_checksum_cannot_be_declared():
    with pytest.raises(ValueError, match="without any checksum"):
        RemoteFile("a", ("http://127.0.0.1/a",))


def test_progress_without_rich_is_a_line(shop, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    download(remote(shop.put("a", CONTENTS)), tmp_path, HASTY)
    assert capsys.readouterr().err == "downloading thing.bin (0.1 MB) ...\n"


@pytest.fixture
def mnist_on_sale(shop, tmp_path, write_mnist):
    """Offer a small MNIST on the local server; the table that points to it."""
    write_mnist(tmp_path / "shop")
    files = []
    for path in sorted((tmp_path / "shop").iterdir()):
        contents = path.read_bytes()
        url = shop.put(path.name, contents)
        files.append(RemoteFile(path.name, (url,), sha256=hashlib.sha256(contents).hexdigest()))
    return {"mnist": replace(SOURCES["mnist"], files=tuple(files), otherwise=None)}


def test_load_downloads_what_is_missing(shop, tmp_path, mnist_on_sale):
    home = tmp_path / "home"
    assert len(load("mnist", home, sources=mnist_on_sale, patience=HASTY).train) == 30
    assert len(shop.requests) == len(list((home / "mnist").iterdir())) == 4
    assert len(load("mnist", home, sources=mnist_on_sale).test) == 12
    assert len(shop.requests) == 4  # the second time nothing is asked for


def test_fetch_keeps_good_files_and_replaces_bad_ones(shop, tmp_path, mnist_on_sale):
    home = tmp_path / "home"
    paths = fetch("mnist", home, sources=mnist_on_sale, patience=HASTY)
    assert [path.parent for path in paths] == [home / "mnist"] * 4
    good = paths[1].read_bytes()
    paths[1].write_bytes(good[:-1])
    fetch("mnist", home, sources=mnist_on_sale, patience=HASTY)
    assert len(shop.requests) == 5
    assert paths[1].read_bytes() == good


def test_nothing_to_fetch_for_the_embedded_dataset(tmp_path):
    assert fetch("mnist-mini", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_failed_download_says_what_was_tried_and_what_to_do(shop, tmp_path, mnist_on_sale):
    shop.answers.clear()
    with pytest.raises(Misuse) as caught:
        load("mnist", tmp_path / "home", sources=mnist_on_sale, patience=HASTY)
    assert f"{shop.address}/t10k-images-idx3-ubyte.gz: HTTP 404" in caught.value.problem
    assert "Put mnist/train-images-idx3-ubyte.gz, " in caught.value.remedy
    assert "TACIT_DATA" in caught.value.remedy


def test_folder_that_cannot_be_made(tmp_path, mnist_on_sale):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Misuse, match="cannot write downloads into") as caught:
        fetch("mnist", tmp_path / "file", sources=mnist_on_sale, patience=HASTY)
    assert "--data" in caught.value.remedy


def small_openml(monkeypatch, write_mnist, folder):
    """Let scikit-learn's OpenML hold the small MNIST: numbers as floats, labels as strings."""
    arrays = write_mnist(folder)
    bunch = SimpleNamespace(
        data=np.concatenate([arrays[f"{stem} images"] for stem in ("train", "t10k")]).reshape(
            42, 784
        )
        * 1.0,
        target=np.concatenate([arrays[f"{stem} labels"] for stem in ("train", "t10k")]).astype(str),
    )
    asked = []
    monkeypatch.setattr(
        "sklearn.datasets.fetch_openml", lambda name, **how: asked.append(name) or bunch
    )
    monkeypatch.setattr("tacit.data.scikit.TRAINING_IMAGES", 30)
    return asked


def test_openml_stands_in_when_the_mirror_fails(
    shop, tmp_path, monkeypatch, write_mnist, mnist_on_sale
):
    asked = small_openml(monkeypatch, write_mnist, tmp_path / "again")
    shop.answers.clear()
    checked = tuple(
        replace(
            file,
            contents_sha256=hashlib.sha256(
                gzip.decompress((tmp_path / "shop" / file.name).read_bytes())
            ).hexdigest(),
        )
        for file in mnist_on_sale["mnist"].files
    )
    table = {"mnist": replace(SOURCES["mnist"], files=checked)}
    ours = load("mnist", tmp_path / "home", sources=table, patience=HASTY)
    original = load("mnist", tmp_path / "shop")
    assert asked == ["mnist_784"]
    np.testing.assert_array_equal(ours.train.x.numpy(), original.train.x.numpy())
    np.testing.assert_array_equal(ours.test.y.numpy(), original.test.y.numpy())
    assert len(list((tmp_path / "home" / "mnist").iterdir())) == 4


def test_openml_with_other_contents_is_refused(shop, tmp_path, monkeypatch, write_mnist):
    small_openml(monkeypatch, write_mnist, tmp_path / "again")
    files = tuple(replace(file, urls=(f"{shop.address}/none",)) for file in SOURCES["mnist"].files)
    table = {"mnist": replace(SOURCES["mnist"], files=files)}
    with pytest.raises(
        Misuse, match=r"by scikit-learn: train-images-idx3-ubyte\.gz: its SHA-256 of its contents"
    ):
        fetch("mnist", tmp_path / "home", sources=table, patience=HASTY)
    assert list((tmp_path / "home" / "mnist").iterdir()) == []


def test_openml_that_fails_is_one_more_reason(tmp_path, monkeypatch):
    def unreachable(name, **how):
        raise ConnectionError("no route")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", unreachable)
    files = tuple(
        replace(file, urls=("http://127.0.0.1:9/a",)) for file in SOURCES["fashion-mnist"].files
    )
    table = {"fashion-mnist": replace(SOURCES["fashion-mnist"], files=files)}
    with pytest.raises(Misuse, match="by scikit-learn: ConnectionError: no route"):
        fetch("fashion-mnist", tmp_path, sources=table, patience=HASTY)


def test_openml_files_are_those_of_the_table():
    table = {file.name for file in SOURCES["mnist"].files}
    assert SOURCES["mnist"].otherwise.func is idx_from_openml
    assert table == {names[0] for form in SOURCES["mnist"].forms for names in form.needed.values()}


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
    assert SOURCES["rcv1"].otherwise is rcv1_from_scikit_learn
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
