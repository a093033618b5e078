"""The tabular datasets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tacit.data.dataset import DatasetSource, Layout, RemoteFile
from tacit.data.formats import rcv1
from tacit.data.formats.tables import INCOMES, read_adult, read_covertype, read_location

COVER_TYPES = (
    *("Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine", "Cottonwood/Willow"),
    *("Aspen", "Douglas-fir", "Krummholz"),
)

SCALE = (
    "numeric columns: 'standard' (training mean 0, deviation 1; default), 'minmax' (to [0, 1]) "
    "or 'none'"
)
TEST_FRACTION = "share of random test records, drawn with the seed (default 0.2)"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

_COVTYPE = DatasetSource(
    name="covtype",
    title="Covertype, lodgepole pine (class 2) against the rest",
    folder="covtype",
    shape=(54,),
    class_names=("other", "Lodgepole Pine"),
    counts="581,012 records, split at random",
    licence="CC BY 4.0",
    citation="J. A. Blackard, D. J. Dean, C. W. Anderson: Covertype. "
    "UCI Machine Learning Repository, 1998.",
    page="https://archive.ics.uci.edu/dataset/31/covertype",
    layouts=(Layout("text", {"table": ("covtype.data.gz", "covtype.data")}),),
    files=(
        RemoteFile(
            "covtype.data.gz",
            (f"{_UCI}/covtype/covtype.data.gz",),
            contents_sha256="0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945",
        ),
    ),
    options={"scale": SCALE, "test_fraction": TEST_FRACTION},
    read=partial(read_covertype, binary=True),
)


def _rcv1_layout(name: str, *accepted: str) -> Layout:
    roles = ("train", "test")
    return Layout(name, {role: tuple(each.format(role) for each in accepted) for role in roles})


TABLES = (
    DatasetSource(
        name="adult",
        title="Adult (census income above 50K)",
        folder="adult",
        shape=(108,),
        class_names=INCOMES,
        counts="32,561 / 16,281",
        licence="CC BY 4.0",
        citation="B. Becker, R. Kohavi: Adult. UCI Machine Learning Repository, 1996.",
        page="https://archive.ics.uci.edu/dataset/2/adult",
        layouts=(Layout("text", {"train": ("adult.data",), "test": ("adult.test",)}),),
        files=(
            RemoteFile(
                "adult.data",
                (f"{_UCI}/adult/adult.data",),
                3_974_305,
                sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            RemoteFile(
                "adult.test",
                (f"{_UCI}/adult/adult.test",),
                2_003_153,
                sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            ),
        ),
        options={"scale": SCALE},
        read=read_adult,
    ),
    _COVTYPE,
    replace(
        _COVTYPE,
        name="covtype7",
        title="Covertype, all seven cover types",
        class_names=COVER_TYPES,
        read=read_covertype,
    ),
    DatasetSource(
        name="rcv1",
        title="RCV1-v2 news: corporate or economics (+1) against government or markets (-1)",
        folder="rcv1",
        shape=(47_236,),
        class_names=("GCAT or MCAT", "CCAT or ECAT"),
        counts="depends on the files: 19,319 / 4,408 (subset), 20,242 / 677,399 (whole)",
        licence="term vectors distributed for research, with citation",
        citation="D. D. Lewis, Y. Yang, T. G. Rose, F. Li: RCV1. JMLR 5, 2004.",
        page="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html#rcv1.binary",
        layouts=(
            _rcv1_layout("libsvm", "rcv1_{}.binary.bz2", "rcv1_{}.binary"),
            _rcv1_layout("arrays", "rcv1_{}.npz"),
            _rcv1_layout("subset", "rcv1_subset_{}.binary.bz2", "rcv1_subset_{}.binary"),
        ),
        options={
            "features": "keep only this many of the most frequent terms of the training set; "
            "without it all 47,236 columns become dense float32, 189 kB per document (3.7 GB for "
            "the subset's training set)",
            "scale": "'none' (documents of length 1; default) or 'maxabs' (each term's largest "
            "weight is 1)",
        },
        fallback=rcv1.write,
        read=rcv1.read,
    ),
    DatasetSource(
        name="location30",
        title="Location-30 (Bangkok check-ins), a membership-inference benchmark",
        folder="location30",
        shape=(446,),
        class_names=tuple(f"profile {number}" for number in range(1, 31)),
        counts="5,010 records, split at random",
        licence="free for research, with citation",
        citation="R. Shokri, M. Stronati, C. Song, V. Shmatikov: Membership Inference Attacks "
        "against Machine Learning Models. IEEE S&P 2017; check-ins: D. Yang, D. Zhang, B. Qu, "
        "2016.",
        page="https://github.com/privacytrustlab/datasets",
        layouts=(Layout("text", {"table": ("dataset_location.tgz", "bangkok")}),),
        files=(
            RemoteFile(
                "dataset_location.tgz",
                ("https://github.com/privacytrustlab/datasets/raw/master/dataset_location.tgz",),
                287_293,
                sha256="927203f85a868f8ee17a0ded1dc61699efe602167beabe34fbf45b4b1de94b33",
            ),
        ),
        options={"test_fraction": TEST_FRACTION},
        read=read_location,
    ),
)
ADULT, COVTYPE, COVTYPE7, RCV1, LOCATION30 = TABLES
