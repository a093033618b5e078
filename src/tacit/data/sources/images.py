"""The image datasets."""

from __future__ import annotations

from functools import partial

from tacit.data.scikit import idx_from_openml
from tacit.data.source import DatasetSource, Form, RemoteFile

DIGITS = tuple(str(digit) for digit in range(10))
GARMENTS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def _idx_names(stem: str, dimensions: int) -> tuple[str, ...]:
    """The names under which one IDX file circulates: `-idx3-ubyte` or `.idx3-ubyte`, gzipped or not."""
    plain = (f"{stem}-idx{dimensions}-ubyte", f"{stem}.idx{dimensions}-ubyte")
    return (plain[0] + ".gz", plain[0], plain[1] + ".gz", plain[1])


IDX = Form(
    "idx",
    {
        "train images": _idx_names("train-images", 3),
        "train labels": _idx_names("train-labels", 1),
        "test images": _idx_names("t10k-images", 3),
        "test labels": _idx_names("t10k-labels", 1),
    },
)


def _idx_file(mirror: str, name: str, size: int, sha256: str, contents: str) -> RemoteFile:
    return RemoteFile(name, (f"{mirror}/{name}",), size, sha256=sha256, contents_sha256=contents)


_mnist = partial(_idx_file, "https://ossci-datasets.s3.amazonaws.com/mnist")
_fashion = partial(_idx_file, "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com")


def _cifar_parts(suffix: str, *folders: str) -> dict[str, tuple[str, ...]]:
    return {
        f"batch {i}": tuple(f"{f}data_batch_{i}.{suffix}" for f in folders) for i in range(1, 6)
    }


_PICKLED = "it is a Python pickle, and unpickling a file runs whatever code is in it"
_BIN = "cifar-10-batches-bin/"
_CIFAR_SHA1 = (
    ("data_batch_1.bin", "aadd24acce27caa71bf4b10992e9e7b2d74c2540"),
    ("data_batch_2.bin", "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795"),
    ("data_batch_3.bin", "1dd00a74ab1d17a6e7d73e185b69dbf31242f295"),
    ("data_batch_4.bin", "aab85764eb3584312d3c7f65fd2fd016e36a258e"),
    ("data_batch_5.bin", "26e2849e66a845b7f1e4614ae70f4889ae604628"),
    ("test_batch.bin", "67eb016db431130d61cd03c7ad570b013799c88c"),
)

IMAGES = (
    DatasetSource(
        name="mnist-mini",
        title="MNIST digits, 5,000 of 70,000; ships with the package",
        folder="",
        shape=(1, 28, 28),
        class_names=DIGITS,
        counts="4,000 / 1,000",
        licence="CC BY-SA 3.0 (as commonly given for MNIST)",
        citation="Y. LeCun, C. Cortes, C. J. C. Burges: The MNIST database of handwritten digits.",
        page="https://ossci-datasets.s3.amazonaws.com/mnist",
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
        forms=(IDX,),
        files=(
            _mnist(
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            _mnist(
                "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            _mnist(
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            _mnist(
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
        otherwise=partial(idx_from_openml, "mnist_784"),
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
        forms=(IDX,),
        files=(
            _fashion(
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            _fashion(
                "train-labels-idx1-ubyte.gz",
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ),
            _fashion(
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ),
            _fashion(
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ),
        otherwise=partial(idx_from_openml, "Fashion-MNIST"),
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
        forms=(
            Form(
                "binary",
                {"test": (f"{_BIN}test_batch.bin", "test_batch.bin")},
                _cifar_parts("bin", _BIN, ""),
            ),
            Form("archive", {"archive": ("cifar-10-binary.tar.gz",)}),
            Form(
                "mosaic",
                {
                    "test": ("test_batch.webp",),
                    "train labels": ("train_labels.npy",),
                    "test labels": ("test_labels.npy",),
                },
                _cifar_parts("webp", ""),
            ),
        ),
        files=(
            RemoteFile(
                "cifar-10-binary.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                members_sha1={_BIN + name: sha1 for name, sha1 in _CIFAR_SHA1},
            ),
        ),
        refused={"cifar-10-batches-py": _PICKLED, "cifar-10-python.tar.gz": _PICKLED},
    ),
)
