"""Each reader on small files, correct and damaged."""

import bz2
import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tacit.core.errors import Misuse
from tacit.data import load
from tacit.data.formats.images import RECORD_BYTES, RECORDS, encode_idx


def load_here(name, folder, **options):
    return load(name, folder, download=False, **options)


def flip_middle_byte(raw):
    middle = len(raw) // 2
    return raw[:middle] + bytes([raw[middle] ^ 255]) + raw[middle + 1 :]


def idx_zeros(*shape):
    return lambda raw: encode_idx(np.zeros(shape, np.uint8))


class TestIdx:
    @pytest.mark.parametrize("dotted", [False, True])
    @pytest.mark.parametrize("zipped", [False, True])
    def test_all_names_and_wrappers(self, tmp_path, write_mnist, dotted, zipped):
        arrays = write_mnist(tmp_path / "mnist", dotted=dotted, zipped=zipped)
        data = load_here("mnist", tmp_path)
        assert data.train.x.shape == (30, 1, 28, 28)
        assert len(data.test) == 12
        np.testing.assert_allclose(
            data.train.x[:, 0].numpy() * 255, arrays["train images"], rtol=1e-6
        )
        np.testing.assert_array_equal(data.test.y.numpy(), arrays["t10k labels"])

    def test_files_directly_in_the_folder(self, tmp_path, write_mnist):
        write_mnist(tmp_path)
        assert len(load_here("mnist", tmp_path).train) == 30

    def test_the_folder_of_another_dataset_is_not_searched(self, tmp_path, write_mnist):
        write_mnist(tmp_path / "mnist")
        with pytest.raises(Misuse, match="fashion-mnist: its files are not in"):
            load_here("fashion-mnist", tmp_path / "mnist")

    def test_gz_name_with_plain_contents(self, tmp_path, write_mnist):
        write_mnist(tmp_path, zipped=False)
        for path in list(tmp_path.iterdir()):
            path.rename(path.with_name(path.name + ".gz"))
        assert len(load_here("mnist", tmp_path).train) == 30

    @pytest.mark.parametrize(
        ("name", "change", "problem"),
        [
            ("train-images", lambda raw: raw[:-200], "gzip stream is broken"),
            ("t10k-images", flip_middle_byte, "gzip stream is broken"),
            ("train-images", idx_zeros(30), "magic number 2049; expected 2051"),
            (
                "train-images",
                lambda raw: encode_idx(np.zeros((30, 28, 28), np.uint8))[:-1],
                "23,519 bytes after the header; expected 23,520 (30 images)",
            ),
            ("train-images", idx_zeros(30, 14, 14), "14x14 pixels; expected 28x28"),
            ("train-labels", idx_zeros(29), "29 labels; expected 30"),
            ("train-labels", lambda raw: encode_idx(np.full(30, 10, np.uint8)), "a label 10"),
            ("t10k-labels", lambda raw: b"\0\0", "only 2 bytes"),
        ],
    )
    def test_damage(self, tmp_path, write_mnist, name, change, problem):
        write_mnist(tmp_path)
        (path,) = tmp_path.glob(f"{name}-*")
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(Misuse) as caught:
            load_here("mnist", tmp_path)
        assert str(path) in caught.value.problem
        assert problem in caught.value.problem
        assert "delete it and fetch it again" in caught.value.remedy


def cifar_batch(number: int) -> np.ndarray:
    """A batch of distinguishable images, [10000, 3073], cheap to compress."""
    table = np.zeros((RECORDS, RECORD_BYTES), np.uint8)
    table[:, 0] = np.arange(RECORDS) % 10
    table[:, 1] = number  # the first red pixel
    table[:, 2] = np.arange(RECORDS) % 251
    table[:, 1 + 2 * 1024 + 33] = np.arange(RECORDS) // 251  # blue, second row, second column
    return table


def check_cifar(split, numbers) -> None:
    tables = np.concatenate([cifar_batch(number) for number in numbers])
    assert split.x.shape == (len(tables), 3, 32, 32)
    np.testing.assert_array_equal(split.y.numpy(), tables[:, 0])
    seen = (split.x[:, [0, 0, 2], [0, 0, 1], [0, 1, 1]] * 255).round().numpy()
    np.testing.assert_array_equal(seen, tables[:, [1, 2, 1 + 2 * 1024 + 33]])


class TestCifar:
    def test_binary_batches_of_which_some_are_missing(self, tmp_path):
        for number, name in ((2, "data_batch_2"), (4, "data_batch_4"), (9, "test_batch")):
            (tmp_path / f"{name}.bin").write_bytes(cifar_batch(number).tobytes())
        data = load_here("cifar10", tmp_path)
        check_cifar(data.train, (2, 4))
        check_cifar(data.test, (9,))
        assert "batches 2, 4 of 5 only (20,000 of 50,000 images)" in data.note
        assert data.class_names[3] == "cat"

    def test_binary_batches_in_their_own_folder(self, tmp_path):
        folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
        folder.mkdir(parents=True)
        for number, name in ((1, "data_batch_1"), (9, "test_batch")):
            (folder / f"{name}.bin").write_bytes(cifar_batch(number).tobytes())
        check_cifar(load_here("cifar10", tmp_path, limit_train=RECORDS).train, (1,))

    def test_archive(self, tmp_path):
        write_archive(
            tmp_path / "cifar-10-binary.tar.gz",
            {
                f"cifar-10-batches-bin/data_batch_{i}.bin": cifar_batch(i).tobytes()
                for i in range(1, 6)
            }
            | {"cifar-10-batches-bin/test_batch.bin": cifar_batch(9).tobytes(), "../evil": b"no"},
        )
        data = load_here("cifar10", tmp_path, limit_train=100)
        check_cifar(data.test, (9,))
        assert "of 5 only" not in data.note
        assert "100 of 50,000 training samples" in data.note
        assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]

    def test_archive_without_a_batch(self, tmp_path):
        write_archive(
            tmp_path / "cifar-10-binary.tar.gz", {"cifar-10-batches-bin/readme.html": b"hello"}
        )
        with pytest.raises(Misuse, match=r"has no cifar-10-batches-bin/data_batch_1\.bin"):
            load_here("cifar10", tmp_path)

    def test_archive_cut_off(self, tmp_path):
        path = tmp_path / "cifar-10-binary.tar.gz"
        write_archive(path, {"cifar-10-batches-bin/test_batch.bin": cifar_batch(9).tobytes()})
        path.write_bytes(path.read_bytes()[:2000])
        with pytest.raises(Misuse, match="archive is broken"):
            load_here("cifar10", tmp_path)

    def test_short_batch(self, tmp_path):
        (tmp_path / "data_batch_1.bin").write_bytes(bytes(RECORD_BYTES * RECORDS - 1))
        (tmp_path / "test_batch.bin").write_bytes(bytes(RECORD_BYTES * RECORDS))
        with pytest.raises(
            Misuse, match=r"data_batch_1.bin: 30,729,999 bytes; expected 30,730,000"
        ):
            load_here("cifar10", tmp_path)

    def write_mosaics(self, folder: Path) -> None:
        image = pytest.importorskip("PIL.Image")
        for number, name in ((1, "data_batch_1"), (9, "test_batch")):
            tiles = cifar_batch(number)[:, 1:].reshape(100, 100, 3, 32, 32)
            mosaic = tiles.transpose(0, 3, 1, 4, 2).reshape(3200, 3200, 3)
            image.fromarray(mosaic).save(
                folder / f"{name}.webp", lossless=True, method=0, quality=0
            )
        np.save(folder / "train_labels.npy", np.tile(cifar_batch(1)[:, 0], 5))
        np.save(folder / "test_labels.npy", cifar_batch(9)[:, 0])

    def test_mosaics(self, tmp_path):
        self.write_mosaics(tmp_path)
        data = load_here("cifar10", tmp_path)
        check_cifar(data.train, (1,))
        check_cifar(data.test, (9,))
        assert "batch 1 of 5 only" in data.note
        np.save(tmp_path / "test_labels.npy", np.zeros(7, np.uint8))
        with pytest.raises(
            Misuse, match=r"uint8 of shape \(7,\); expected uint8 of shape \(10000,\)"
        ):
            load_here("cifar10", tmp_path)
        np.save(tmp_path / "train_labels.npy", np.array([{"code": "runs"}], dtype=object))
        with pytest.raises(Misuse, match=r"not a readable \.npy array"):
            load_here("cifar10", tmp_path)

    def test_mosaic_of_another_size_or_broken(self, tmp_path):
        self.write_mosaics(tmp_path)
        path = tmp_path / "test_batch.webp"
        image = pytest.importorskip("PIL.Image")
        image.new("RGB", (320, 320)).save(path, lossless=True)
        with pytest.raises(Misuse, match="RGB image of 320x320; expected RGB, 3200x3200"):
            load_here("cifar10", tmp_path)
        path.write_bytes(path.read_bytes()[:40])
        with pytest.raises(Misuse, match=r"test_batch\.webp: not a readable image"):
            load_here("cifar10", tmp_path)

    @pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "cifar-10-batches-py"])
    def test_pickles_are_not_read(self, tmp_path, name):
        (tmp_path / "cifar10" / name).mkdir(parents=True)
        with pytest.raises(Misuse, match="unpickling a file runs whatever code is in it") as caught:
            load("cifar10", tmp_path)
        assert "cifar-10-binary.tar.gz" in caught.value.remedy


def write_archive(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, contents in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(contents)
            archive.addfile(info, io.BytesIO(contents))


ADULT = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, \
2174, 0, 40, United-States, <=50K
50, ?, 83311, Bachelors, 13, Married-civ-spouse, Exec-managerial, Husband, White, Male, 0, 0, 20, \
United-States, >50K
"""
ADULT_TEST = (
    "|1x3 Cross validator\n"
    "28, Private, 336951, Assoc-acdm, 12, Married-civ-spouse, Adm-clerical, Husband, White, Male, "
    "0, 0, 60, United-States, >50K.\n\n"
)


class TestAdult:
    def write(self, folder, train=ADULT, test=ADULT_TEST) -> None:
        (folder / "adult.data").write_text(train + "\n")
        (folder / "adult.test").write_text(test)

    def test_encoding(self, tmp_path):
        self.write(tmp_path)
        data = load_here("adult", tmp_path)
        # 6 numbers; then the categories: workclass 2 (one is "?"), education 1, marital status 2,
        # occupation 2, relationship 2, race 1, sex 1, country 1
        assert data.train.x.shape == (2, 6 + 12)
        assert data.train.y.tolist() == [0, 1]
        assert data.test.y.tolist() == [1]
        np.testing.assert_allclose(data.train.x[:, 0].numpy(), [-1, 1], rtol=1e-6)
        assert data.train.x[:, 2].tolist() == [0, 0]  # education-num is constant
        np.testing.assert_allclose(data.test.x[0, 0].item(), (28 - 44.5) / 5.5, rtol=1e-6)
        assert data.train.x[:, 6:8].tolist() == [[0, 1], [1, 0]]
        # "Private" and "Assoc-acdm" are not in the training file
        assert data.test.x[0, 6:].tolist() == [0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1]

    def test_scales(self, tmp_path):
        self.write(tmp_path)
        assert load_here("adult", tmp_path, scale="minmax").train.x[:, 5].tolist() == [1, 0]
        assert load_here("adult", tmp_path, scale="none").train.x[:, 0].tolist() == [39, 50]
        with pytest.raises(Misuse, match=r"scale is 'max'.*minmax"):
            load_here("adult", tmp_path, scale="max")

    def test_wrong_columns(self, tmp_path):
        self.write(tmp_path, train=ADULT + "1, 2, 3\n")
        with pytest.raises(
            Misuse, match=r"adult.data: values are missing in row 3; expected lines of 15"
        ):
            load_here("adult", tmp_path)

    def test_bad_number(self, tmp_path):
        self.write(tmp_path, train=ADULT.replace("77516", "many"))
        with pytest.raises(Misuse, match=r"adult.data: a bad number .*many"):
            load_here("adult", tmp_path)

    def test_unknown_income(self, tmp_path):
        self.write(tmp_path, test=ADULT_TEST.replace(">50K.", "rich."))
        with pytest.raises(Misuse, match=r"adult.test: income 'rich'"):
            load_here("adult", tmp_path)

    def test_empty(self, tmp_path):
        self.write(tmp_path, test="")
        with pytest.raises(Misuse, match=r"adult.test: No columns to parse"):
            load_here("adult", tmp_path)


def covtype_table(rows: int = 50) -> np.ndarray:
    rng = np.random.default_rng(1)
    table = rng.integers(0, 2, (rows, 55))
    table[:, :10] = rng.integers(-173, 7173, (rows, 10))
    table[:, -1] = 1 + np.arange(rows) % 7
    return table


def as_text(table: np.ndarray) -> bytes:
    return "".join(",".join(map(str, row)) + "\n" for row in table.tolist()).encode()


class TestCovertype:
    @pytest.mark.parametrize("zipped", [False, True])
    def test_seven_classes(self, tmp_path, zipped):
        table, folder = covtype_table(), tmp_path / "covtype"
        folder.mkdir()
        text = as_text(table)
        name, contents = ("data.gz", gzip.compress(text)) if zipped else ("data", text)
        (folder / f"covtype.{name}").write_bytes(contents)
        data = load_here("covtype7", tmp_path, scale="none", test_fraction=0.3)
        assert (len(data.train), len(data.test), data.classes) == (35, 15, 7)
        rows = np.concatenate(
            [np.c_[split.x.numpy(), split.y.numpy() + 1] for split in (data.train, data.test)]
        )
        assert sorted(map(tuple, rows)) == sorted(map(tuple, table))

    def test_binary_labels_and_scaling_by_the_training_rows(self, tmp_path):
        (tmp_path / "covtype.data").write_bytes(as_text(covtype_table()))
        seven, binary = load_here("covtype7", tmp_path), load_here("covtype", tmp_path)
        np.testing.assert_array_equal(binary.train.y.numpy(), seven.train.y.numpy() == 1)
        np.testing.assert_array_equal(binary.test.x.numpy(), seven.test.x.numpy())
        np.testing.assert_allclose(binary.train.x[:, :10].mean(0).numpy(), 0, atol=1e-6)
        np.testing.assert_allclose(
            binary.train.x[:, :10].std(0, correction=0).numpy(), 1, rtol=1e-5
        )
        assert set(binary.train.x[:, 10:].unique().tolist()) == {0, 1}

    def test_split_is_a_function_of_the_seed(self, tmp_path):
        (tmp_path / "covtype.data").write_bytes(as_text(covtype_table()))
        first, again, other = (
            load_here("covtype", tmp_path, seed=seed, scale="none") for seed in (5, 5, 6)
        )
        np.testing.assert_array_equal(first.test.x.numpy(), again.test.x.numpy())
        assert not np.array_equal(first.test.x.numpy(), other.test.x.numpy())

    @pytest.mark.parametrize("fraction", [0, 1, -0.1, 0.001, "0.2", True])
    def test_bad_test_fraction(self, tmp_path, fraction):
        (tmp_path / "covtype.data").write_bytes(as_text(covtype_table()))
        with pytest.raises(Misuse, match="test_fraction is"):
            load_here("covtype", tmp_path, test_fraction=fraction)

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (lambda text: text + b"1,2,3\n", "NA values"),
            (lambda text: text.replace(b"\n", b",0\n", 1), "NA values"),
            (lambda text: text.replace(b",", b",x", 1), "int64"),
            (lambda text: text.replace(b",1,", b",1.5,", 1), "int64"),
            (lambda text: text.replace(b",0,", b",,", 1), "int64"),
            (lambda text: text.replace(b"7\n", b"8\n"), "classes from 1 to 8; expected 1 to 7"),
            (lambda text: b"", "No columns to parse"),
        ],
    )
    def test_damage(self, tmp_path, change, problem):
        (tmp_path / "covtype.data").write_bytes(change(as_text(covtype_table())))
        with pytest.raises(Misuse) as caught:
            load_here("covtype", tmp_path)
        assert problem in caught.value.problem

    def test_windows_line_ends_and_no_last_newline(self, tmp_path):
        (tmp_path / "covtype.data").write_bytes(
            as_text(covtype_table()).replace(b"\n", b"\r\n").rstrip()
        )
        assert len(load_here("covtype", tmp_path).train) == 40


class TestLocation:
    def text(self, rows: int = 60) -> bytes:
        bits = np.random.default_rng(2).integers(0, 2, (rows, 446)).tolist()
        lines = (f'"{1 + i % 30}",' + ",".join(map(str, row)) for i, row in enumerate(bits))
        return ("\n".join(lines) + "\n").encode()

    def test_archive_and_loose_file_are_the_same(self, tmp_path):
        for folder in ("loose", "packed"):
            (tmp_path / folder).mkdir()
        (tmp_path / "loose" / "bangkok").write_bytes(self.text())
        write_archive(
            tmp_path / "packed" / "dataset_location.tgz", {"../evil": b"no", "bangkok": self.text()}
        )
        loose, packed = (load_here("location30", tmp_path / name) for name in ("loose", "packed"))
        np.testing.assert_array_equal(loose.train.x.numpy(), packed.train.x.numpy())
        assert (len(packed.train), len(packed.test), packed.classes) == (48, 12, 30)
        labels = np.sort(np.concatenate([packed.train.y.numpy(), packed.test.y.numpy()]))
        np.testing.assert_array_equal(labels, np.repeat(np.arange(30), 2))
        assert not (tmp_path / "evil").exists()

    def test_archive_without_the_file(self, tmp_path):
        write_archive(tmp_path / "dataset_location.tgz", {"elsewhere/bangkok": self.text()})
        with pytest.raises(Misuse, match="has no file bangkok"):
            load_here("location30", tmp_path)

    def test_a_link_named_like_the_file_is_not_followed(self, tmp_path):
        secret = tmp_path / "secret"
        secret.write_bytes(self.text())
        with tarfile.open(tmp_path / "dataset_location.tgz", "w:gz") as archive:
            link = tarfile.TarInfo("bangkok")
            link.type, link.linkname = tarfile.SYMTYPE, str(secret)
            archive.addfile(link)
        with pytest.raises(Misuse, match="has no file bangkok"):
            load_here("location30", tmp_path)

    def test_archive_with_a_huge_member(self, tmp_path):
        write_archive(tmp_path / "dataset_location.tgz", {"bangkok": bytes(65 * 2**20)})
        with pytest.raises(
            Misuse, match="member bangkok has 68,157,440 bytes; expected at most 67,108,864"
        ):
            load_here("location30", tmp_path)

    @pytest.mark.parametrize(
        ("old", "new", "problem"),
        [(b'"30"', b'"31"', "classes from 1 to 31"), (b",1,", b",2,", "features from 0 to 2")],
    )
    def test_values_out_of_range(self, tmp_path, old, new, problem):
        (tmp_path / "bangkok").write_bytes(self.text().replace(old, new))
        with pytest.raises(Misuse, match=problem):
            load_here("location30", tmp_path)


RCV1_TRAIN = "+1 1:0.5 3:0.25 47236:1\n-1 3:0.5\n-1 1:0.75 3:0.125\n+1 2:0.5\n"
RCV1_TEST = "-1 2:1 3:0.5\n"


class TestRcv1:
    def write(self, folder, train=RCV1_TRAIN, stem="rcv1_subset", packed=True) -> None:
        for side, text in (("train", train), ("test", RCV1_TEST)):
            contents = bz2.compress(text.encode()) if packed else text.encode()
            (folder / f"{stem}_{side}.binary{'.bz2' if packed else ''}").write_bytes(contents)

    def test_subset(self, tmp_path):
        self.write(tmp_path)
        data = load_here("rcv1", tmp_path)
        assert data.train.x.shape == (4, 47_236)
        assert data.train.x[0, [0, 1, 2, 47_235]].tolist() == [0.5, 0, 0.25, 1]
        assert data.train.y.tolist() == [1, 0, 0, 1]
        assert data.test.y.tolist() == [0]
        assert data.note == "RCV1 (5-document subset)"

    @pytest.mark.parametrize("packed", [False, True])
    def test_libsvm_files_go_first(self, tmp_path, packed):
        self.write(tmp_path)
        self.write(tmp_path, stem="rcv1", packed=packed, train="-1 1:1\n" * 3)
        data = load_here("rcv1", tmp_path, limit_train=2)
        assert data.train.x.shape == (2, 47_236)
        assert "LIBSVM's files (4 documents)" in data.note

    def test_most_frequent_terms_of_the_training_set(self, tmp_path):
        self.write(tmp_path)
        data = load_here("rcv1", tmp_path, features=2)  # terms 1 (twice) and 3 (three times)
        assert data.train.x.tolist() == [[0.5, 0.25], [0, 0.5], [0.75, 0.125], [0, 0]]
        assert data.test.x.tolist() == [[0, 0.5]]

    def test_terms_by_their_largest_weight_in_the_training_set(self, tmp_path):
        self.write(tmp_path)
        data = load_here("rcv1", tmp_path, features=2, scale="maxabs")
        assert np.allclose(data.train.x, [[2 / 3, 0.5], [0, 1], [1, 0.25], [0, 0]])
        assert data.test.x.tolist() == [[0, 1]]
        whole = load_here("rcv1", tmp_path, scale="maxabs")
        assert bool(whole.train.x.isfinite().all())
        assert data.note.endswith("terms, each divided by its largest weight")
        with pytest.raises(Misuse, match='"none" or "maxabs"'):
            load_here("rcv1", tmp_path, scale="standard")

    @pytest.mark.parametrize("features", [0, -1, 47_237, 2.0, True])
    def test_bad_number_of_features(self, tmp_path, features):
        self.write(tmp_path)
        with pytest.raises(Misuse, match="features is"):
            load_here("rcv1", tmp_path, features=features)

    @pytest.mark.parametrize(
        ("train", "problem"),
        [
            ("+1 47237:1\n", "not readable"),
            ("+1 0:1\n", "not readable"),
            ("+1 words\n", "not readable"),
            ("3 1:1\n", "labels 3; expected labels -1 and \\+1"),
        ],
    )
    def test_damage(self, tmp_path, train, problem):
        self.write(tmp_path, train=train)
        with pytest.raises(Misuse, match=problem):
            load_here("rcv1", tmp_path)

    def test_truncated_bz2(self, tmp_path):
        self.write(tmp_path)
        path = tmp_path / "rcv1_subset_train.binary.bz2"
        path.write_bytes(path.read_bytes()[:-10])
        with pytest.raises(Misuse, match=r"rcv1_subset_train\.binary\.bz2: not readable"):
            load_here("rcv1", tmp_path)

    def test_too_large_for_memory(self, tmp_path, monkeypatch):
        self.write(tmp_path)
        monkeypatch.setattr("os.sysconf", lambda name: 800)  # 640 kB; four documents take 756 kB
        with pytest.raises(Misuse, match="4 documents of 47,236 terms") as caught:
            load_here("rcv1", tmp_path)
        assert "features=2000" in caught.value.remedy
        assert len(load_here("rcv1", tmp_path, limit_train=3).train) == 3

    @pytest.mark.parametrize("missing", ["data", "y"])
    def test_missing_array(self, tmp_path, missing):
        arrays = {"data": [1.0], "indices": [0], "indptr": [0, 1], "y": [1]}
        np.savez(tmp_path / "rcv1_test.npz", **arrays)
        np.savez(tmp_path / "rcv1_train.npz", **{k: v for k, v in arrays.items() if k != missing})
        with pytest.raises(Misuse, match=r"rcv1_train.npz: not readable"):
            load_here("rcv1", tmp_path)

    def test_arrays_with_a_term_out_of_range(self, tmp_path):
        np.savez(tmp_path / "rcv1_test.npz", data=[1.0], indices=[0], indptr=[0, 1], y=[1])
        np.savez(tmp_path / "rcv1_train.npz", data=[1.0], indices=[47_236], indptr=[0, 1], y=[1])
        with pytest.raises(Misuse, match=r"rcv1_train.npz: not readable"):
            load_here("rcv1", tmp_path)
