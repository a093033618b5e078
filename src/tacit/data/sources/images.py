"""The image datasets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources

import numpy as np

from tacit.core.checks import check_choice
from tacit.data.dataset import DatasetSource, Layout, LocatedFiles, RemoteFile
from tacit.data.formats.images import Channels, read_cifar, read_idx, standardise, write_idx
from tacit.data.formats.raw import RawDataset, RawSplit

DIGITS = tuple("0123456789")
GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

SCALE = (
    "pixels: 'none' (in [0, 1]; default) or 'standard' (less the mean and over the deviation of "
    "their channel, as published: no statistic of the clients' data is used)"
)
MNIST_CHANNELS: Channels = ((0.1307, 0.3081),)
FASHION_CHANNELS: Channels = ((0.2860, 0.3530),)
CIFAR_CHANNELS: Channels = ((0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616))


def _scalable(
    read: Callable[[LocatedFiles], RawDataset], channels: Channels
) -> Callable[..., RawDataset]:
    """The reader with the option `scale`."""

    def read_scaled(files: LocatedFiles, *, scale: str = "none") -> RawDataset:
        check_choice("scale", scale, ("none", "standard"))
        raw = read(files)
        if scale == "none":
            return raw
        train, test = (
            RawSplit(standardise(split.x, channels), split.y) for split in (raw.train, raw.test)
        )
        return RawDataset(train, test, raw.note)

    return read_scaled


def _idx_names(stem: str, dimensions: int) -> tuple[str, ...]:
    """The names that one IDX file has in practice: with a dash or a dot, gzipped or not."""
    dash, dot = f"{stem}-idx{dimensions}-ubyte", f"{stem}.idx{dimensions}-ubyte"
    return (f"{dash}.gz", dash, f"{dot}.gz", dot)


IDX = Layout(
    "idx",
    {
        "train images": _idx_names("train-images", 3),
        "train labels": _idx_names("train-labels", 1),
        "test images": _idx_names("t10k-images", 3),
        "test labels": _idx_names("t10k-labels", 1),
    },
)


def _idx_files(
    mirror: str, sizes: Sequence[int], sha256: Sequence[str], contents_sha256: Sequence[str]
) -> tuple[RemoteFile, ...]:
    """The four gzipped IDX files, with the size and both SHA-256 sums of each."""
    names = [accepted[0] for accepted in IDX.required.values()]
    return tuple(
        RemoteFile(name, (f"{mirror}/{name}",), size, whole, contents)
        for name, size, whole, contents in zip(names, sizes, sha256, contents_sha256, strict=True)
    )


def read_mini() -> RawDataset:
    """The digits that ship with the package, so that a first run needs no download."""
    file = resources.files("tacit.data").joinpath("files", "mnist_mini.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        train, test = (
            RawSplit(stored[f"{split}_x"][:, None], stored[f"{split}_y"].astype(np.int64))
            for split in ("train", "test")
        )
    return RawDataset(
        train, test, "MNIST, the first 400 training and 100 test digits of each class"
    )


def _cifar_batches(suffix: str, *folders: str) -> dict[str, tuple[str, ...]]:
    return {
        f"batch {i}": tuple(f"{folder}data_batch_{i}.{suffix}" for folder in folders)
        for i in range(1, 6)
    }


_PICKLED = "it is a Python pickle, and unpickling a file runs whatever code is in it"
_BIN = "cifar-10-batches-bin/"
_CIFAR_SHA1 = {
    f"{_BIN}data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    f"{_BIN}data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    f"{_BIN}data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    f"{_BIN}data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    f"{_BIN}data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    f"{_BIN}test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
}

IMAGES = (
    DatasetSource(
        name="mnist-mini",
        title="MNIST digits, 5,000 of 70,000; ships with the package",
        shape=(1, 28, 28),
        class_names=DIGITS,
        counts="4,000 / 1,000",
        licence="CC BY-SA 3.0 (as commonly given for MNIST)",
        citation="Y. LeCun, C. Cortes, C. J. C. Burges: The MNIST database of handwritten digits.",
        page="https://ossci-datasets.s3.amazonaws.com/mnist",
        options={"scale": SCALE},
        read=_scalable(lambda files: read_mini(), MNIST_CHANNELS),
    ),
    DatasetSource(
        name="mnist",
        title="MNIST handwritten digits",
        folder="mnist",
        shape=(1, 28, 28),
        class_names=DIGITS,
        counts="60,000 / 10,000",
        licence="CC BY-SA 3.0 (as commonly given)",
        citation="Y. LeCun, C. Cortes, C. J. C. Burges: The MNIST database of handwritten digits.",
        page="https://ossci-datasets.s3.amazonaws.com/mnist",
        layouts=(IDX,),
        files=_idx_files(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            sizes=(9_912_422, 28_881, 1_648_877, 4_542),
            sha256=(
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
            contents_sha256=(
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
        fallback=partial(write_idx, "mnist_784"),
        options={"scale": SCALE},
        read=_scalable(read_idx, MNIST_CHANNELS),
    ),
    DatasetSource(
        name="fashion-mnist",
        title="Fashion-MNIST garments",
        folder="fashion-mnist",
        shape=(1, 28, 28),
        class_names=GARMENTS,
        counts="60,000 / 10,000",
        licence="MIT",
        citation="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST. arXiv:1708.07747, 2017.",
        page="https://github.com/zalandoresearch/fashion-mnist",
        layouts=(IDX,),
        files=_idx_files(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            sizes=(26_421_880, 29_515, 4_422_102, 5_148),
            sha256=(
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
            contents_sha256=(
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ),
        fallback=partial(write_idx, "Fashion-MNIST"),
        options={"scale": SCALE},
        read=_scalable(read_idx, FASHION_CHANNELS),
    ),
    DatasetSource(
        name="cifar10",
        title="CIFAR-10 tiny colour photographs",
        folder="cifar10",
        shape=(3, 32, 32),
        class_names=CIFAR10_CLASSES,
        counts="50,000 / 10,000",
        licence="none stated; free for research with citation",
        citation="A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images. 2009.",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        layouts=(
            Layout(
                "binary",
                {"test": (f"{_BIN}test_batch.bin", "test_batch.bin")},
                _cifar_batches("bin", _BIN, ""),
            ),
            Layout("archive", {"archive": ("cifar-10-binary.tar.gz",)}),
            Layout(
                "mosaic",
                {
                    "test": ("test_batch.webp",),
                    "train labels": ("train_labels.npy",),
                    "test labels": ("test_labels.npy",),
                },
                _cifar_batches("webp", ""),
            ),
        ),
        files=(
            RemoteFile(
                "cifar-10-binary.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                members_sha1=_CIFAR_SHA1,
            ),
        ),
        options={"scale": SCALE},
        read=_scalable(read_cifar, CIFAR_CHANNELS),
        unsafe_files={"cifar-10-batches-py": _PICKLED, "cifar-10-python.tar.gz": _PICKLED},
    ),
)
MNIST_MINI, MNIST, FASHION_MNIST, CIFAR10 = IMAGES
