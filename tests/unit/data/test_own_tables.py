"""Own tables: reading, schema, statistics, hold-out, and errors that name the place."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyreadstat
import pytest
import sqlalchemy
import torch
from hypothesis import given, settings, strategies as st

import tacit
from tacit.core.errors import Misuse
from tacit.data import Target
from tacit.data.hold_out import held_out
from tacit.data.own.files import read_table
from tacit.data.own.reading import Reading
from tacit.data.own.statistics import ColumnSums
from tacit.data.own.table import Table
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation

from_tables = tacit.data.from_tables

A = """age,ward,ill
30,north,no
40,"south, east",yes
NA,north,no
50,,yes
"""
B = """ill;ward;age
no;north;60
yes;north;70
yes;"south, east";80
no;north;90
"""


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    # With a byte-order mark, as spreadsheets write it.
    (tmp_path / "a.csv").write_text(A, encoding="utf-8-sig")
    (tmp_path / "b.csv").write_text(B, encoding="utf-8")
    return tmp_path


def test_a_file_per_client(sites: Path) -> None:
    dataset = from_tables(f"{sites}/{{client}}.csv", label="ill", test=None)
    assert dataset.clients == ("a", "b")
    assert dataset.class_names == ("no", "yes")
    assert [len(y) for _, y in dataset.client_parts] == [4, 4]
    ages = np.array([30, 40, 50, 60, 70, 80, 90.0])
    scaled = (ages - ages.mean()) / ages.std()
    (x, y), (other, _) = dataset.client_parts
    # The missing age is the mean of all clients, the missing ward is neither.
    want = np.array([[scaled[0], 1, 0], [scaled[1], 0, 1], [0, 1, 0], [scaled[2], 0, 0]])
    assert torch.equal(x, torch.tensor(want, dtype=torch.float32))
    assert y.tolist() == [0, 1, 0, 1]
    assert torch.equal(other[:, 0], torch.tensor(scaled[3:], dtype=torch.float32))
    assert "counts, sums and sums of squares of 1 column" in dataset.disclosure
    shared = "the categories of ward and the classes of ill are all that occur in the clients'"
    assert shared in dataset.disclosure
    remedy = (
        "To avoid this, declare public constants in [data.schema], such as age = { mean = …, "
        "std = … }, the categories of ward there and data.classes"
    )
    assert dataset.disclosure.endswith(remedy)
    dataset = from_tables(f"{sites}/{{client}}.csv", label="ill", ignore=["age"], test=None)
    assert dataset.disclosure.startswith("the categories of ward")
    dataset = from_tables(
        f"{sites}/{{client}}.csv", label="ill", classes=["no", "yes"], schema={"age": "number"}
    )
    assert "categories" not in dataset.disclosure
    assert "classes" not in dataset.disclosure


def test_one_table_gives_the_same_as_a_file_per_client(sites: Path) -> None:
    apart = from_tables(f"{sites}/{{client}}.csv", label="ill")
    rows = [
        {"site": name, **row}
        for name in "ab"
        for row in read_table(sites / f"{name}.csv").frame.to_dict("records")
    ]
    rows = [{key: row[key] for key in ("site", "age", "ward", "ill")} for row in rows]
    together = from_tables(rows[::-1], label="ill", client="site", test=0.2)
    assert together.clients == ("a", "b")
    assert together.train.x.sum(0).tolist() == pytest.approx(apart.train.x.sum(0).tolist(), abs=1)
    assert len(together.test) == len(apart.test) == 2


def test_test_rows_do_not_enter_the_statistics() -> None:
    table = {"x": [float(k) for k in range(40)], "y": [0, 1] * 20, "who": ["a"] * 20 + ["b"] * 20}
    dataset = from_tables(table, label="y", client="who", test=0.25, seed=3)
    assert dataset.client_tests is not None
    assert [len(y) for _, y in dataset.client_tests] == [5, 5]
    assert abs(float(dataset.train.x.mean())) < 1e-6
    assert float(dataset.train.x.std(correction=0)) == pytest.approx(1)
    # Rows that are held out may change without any effect on the others.
    labels = np.array([0, 1] * 10)
    out = np.concatenate([held_out(labels, 0.25, 3, name) for name in "ab"])
    changed = table | {"x": [1e6 if one else x for x, one in zip(table["x"], out, strict=True)]}
    again = from_tables(changed, label="y", client="who", test=0.25, seed=3)
    assert torch.equal(again.train.x, dataset.train.x)
    assert not torch.equal(again.test.x, dataset.test.x)


def test_a_common_test_file_and_public_constants(sites: Path) -> None:
    schema = {"age": {"mean": 50, "std": 10}, "ward": ["north", "south, east"]}
    dataset = from_tables(
        f"{sites}/{{client}}.csv",
        label="ill",
        classes=["no", "yes"],
        schema=schema,
        test=sites / "b.csv",
    )
    assert dataset.client_tests is None
    assert dataset.disclosure == ""
    assert dataset.test.x[:, 0].tolist() == [1, 2, 3, 4]
    assert dataset.train.x[:4, 0].tolist() == [-2, -1, 0, 0]


def test_clients_are_chosen_and_ordered(sites: Path) -> None:
    dataset = from_tables(f"{sites}/{{client}}.csv", label="ill", clients=["b", "a"], test=None)
    assert dataset.clients == ("b", "a")
    assert dataset.client_parts[0][1].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("age,ill\n3,no\n4\n", {}, ["c.csv, line 3", "1 values", "2 columns", "quotes"]),
        ("age,age,ill\n1,2,no\n", {}, ["two columns 'age'"]),
        (",age,ill\n1,2,no\n", {}, ["column 1 has no name", "index=False"]),
        ("age,ill\n1,no\n2,\n3,yes\n", {}, ["line 3", "label is missing"]),
        ("age,outcome\n1,no\n2,yes\n", {}, ["no column 'ill'", "label", "outcome"]),
        ("age,Ill\n1,no\n2,yes\n", {}, ["Did you mean 'Ill'?"]),
        ("age,ill\n1,no\n2,no\nunknown,yes\n", {}, ["line 4", "'unknown' is not a number"]),
        ("age,ill\n1,no\ninf,yes\n", {"schema": {"age": "number"}}, ["line 3", "'age'", "infin"]),
        ("age,ill\n1,no\n2x,yes\n", {"schema": {"age": "number"}}, ["line 3", "'2x' is not a num"]),
        ('age,ill\n1,no\n"2,5",yes\n', {"schema": {"age": "number"}}, ["decimal point"]),
        ("age;ill\n1,5;no\n2;yes\n3,5;yes\n", {}, ["line 2", "'1,5' is not", "decimal point"]),
        ("age,ill\n1,no\n2,yes\n", {"schema": {"ag": "number"}}, ["Did you mean 'age'?"]),
        ("w,ill\nA,no\nC,yes\n", {"schema": {"w": ["A", "B"]}}, ["line 3", "'C' is not one of"]),
        ("age,ill\n1,no\n2,maybe\n", {"classes": ["no", "yes"]}, ["line 3", "'maybe'", "no, yes"]),
        ("age,ill\n1,no\n2,no\n", {}, ["always 'no'", "classes"]),
        ("age,ill\n", {}, ["no rows"]),
        ("", {}, ["is empty"]),
        ('age,ill\n1,"no\n2,yes\n', {}, ["line", "quotes"]),
        ("age,ill\n1e20,no\n2,yes\n", {}, ["beyond", "larger units"]),
        ("age,ill\n1,no\n2,yes\n", {"test": 1.5}, ["test is 1.5"]),
        ("age,ill\n1,no\n,yes\n", {"standardize": False, "test": None}, ["line 3", "missing"]),
        ("age,ill\n1,no\n2,yes\n", {"schema": {"age": "text"}}, ["schema.age = 'text'"]),
        ("age,ill\n1,no\n2,yes\n", {"ignore": ["ages"]}, ["Did you mean 'age'?"]),
        ("age,ill\n1,2\n2,no\n", {"target": "number"}, ["line 3", "'no' is not a", "`target`"]),
        ("age,ill\n1,2\n2,\n", {"target": "number"}, ["line 3", "the label is missing"]),
        ("age,ill\n1,2\n2,2\n", {"target": "number"}, ["'ill' is always 2"]),
        ("age,ill\n1,2\n2,3\n", {"target": "number", "classes": 2}, ["but classes are set"]),
        ("age,ill\n1,2\n2,3\n", {"target": "regression"}, ["target = 'regression'", "number"]),
        ("age,ill\n1,2\n2,3\n", {"target": {"mean": 1, "std": 0}}, ["target.std is 0"]),
        ("age,ill\n1,2\n2,3\n", {"schema": {"ill": "number"}}, ["is the label", "`target`"]),
        ("age,ill\n" + "".join(f"1,{n}.5\n" for n in range(101)), {}, ["101", 'target = "number"']),
    ],
)  # fmt: skip
def test_errors_name_the_place_and_the_remedy(
    tmp_path: Path, text: str, options: dict[str, object], words: list[str]
) -> None:
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(Misuse) as caught:
        from_tables(tmp_path / "c.csv", label="ill", **options)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.remedy


def test_long_files_keep_their_lines_and_places(tmp_path: Path) -> None:
    # With an empty line and a cell of two lines.
    rows = [f"{row % 7}.5,{'m' if row % 2 else 'f'},{row % 3}" for row in range(2500)]
    rows[5], rows[10:10] = '2.5,"m\n",1', [""]
    path = tmp_path / "long.csv"
    path.write_text("age,sex,ill\n" + "\n".join(rows) + "\n")
    table = read_table(path)
    assert [table.lines[row] for row in (0, 4, 5, 9, 10, 2499)] == [2, 6, 8, 12, 14, 2503]
    assert table.parsed("age").tolist() == [
        2.5 if row == 5 else row % 7 + 0.5 for row in range(2500)
    ]
    texts, which = table.texts("sex")
    assert texts == ["f", "m"]
    assert which.tolist() == [row % 2 for row in range(2500)]
    for bad, words in (("1.5,f", "line 2504: 2 values"), ("x_1,f,1", "line 2504, column 'age'")):
        path.write_text("age,sex,ill\n" + "\n".join([*rows, bad]) + "\n")
        with pytest.raises(Misuse, match=words):
            from_tables(path, label="ill")


def test_texts_of_mixed_columns() -> None:
    values = np.array([1, True, 1.0, "1 ", None, math.nan, "n/a", 2.5, "True"], dtype=object)
    table = Table.of(pandas.DataFrame({"x": values}), "here", Reading())
    texts, which = table.texts("x")
    assert texts == ["1", "True", None, "2.5"]
    assert which.tolist() == [0, 1, 0, 0, 2, 2, 2, 3, 1]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=re.escape("{client} stands for a client's name")):
        from_tables(f"{tmp_path}/{{client}}.csv", label="y")
    with pytest.raises(Misuse, match="There is no file"):
        from_tables(tmp_path / "x.csv", label="y")
    (tmp_path / "x.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(Misuse, match="not text in UTF-8"):
        from_tables(tmp_path / "x.csv", label="b")


def test_parquet_and_pandas_and_hugging_face_agree(sites: Path) -> None:
    frames = {
        "a": pandas.read_csv(sites / "a.csv"),
        "b": pandas.read_csv(sites / "b.csv", sep=";")[["age", "ward", "ill"]],
    }
    want = from_tables(f"{sites}/{{client}}.csv", label="ill")
    assert torch.equal(from_tables(frames, label="ill").train.x, want.train.x)
    for name, frame in frames.items():
        frame.to_parquet(sites / f"{name}.parquet")
    assert torch.equal(
        from_tables(f"{sites}/{{client}}.parquet", label="ill").train.x, want.train.x
    )
    datasets = pytest.importorskip("datasets")
    hugging = {name: datasets.Dataset.from_pandas(frame) for name, frame in frames.items()}
    assert torch.equal(from_tables(hugging, label="ill").train.x, want.train.x)
    named = hugging["a"].class_encode_column("ill")
    assert from_tables(named, label="ill", test=None).class_names == ("no", "yes")


def test_hugging_face_datasets_as_parts() -> None:
    datasets = pytest.importorskip("datasets")
    part = datasets.Dataset.from_dict({"input": [[0.0, 1.0], [1.0, 0.0]], "label": [0, 1]})
    task = tacit.Task(torch.nn.Linear(2, 2), [part, part], batch_size=2)
    assert task.clients == 2


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("a.parquet", "pyarrow"),
        ("a.xlsx", "openpyxl"),
        ("a.sav", "pyreadstat"),
        ("sqlite:///a.db", "sqlalchemy"),
    ],
)
def test_a_missing_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    Path("a.parquet").write_bytes(b"")
    Path("a.xlsx").write_bytes(b"")
    Path("a.sav").write_bytes(b"")
    with pytest.raises(Misuse, match=rf"needs {package}.*pip install 'tacit-learn\[tables\]'"):
        from_tables(source, label="y", read={"table": "a"})


def write_sas(frame: Any, path: Path) -> None:
    pyreadstat.write_xport(frame, path, file_format_version=5)


def write_spss(frame: Any, path: Path) -> None:
    pyreadstat.write_sav(frame, path)


FORMATS: dict[str, Callable[[Any, Path], object]] = {
    ".xlsx": lambda frame, path: frame.to_excel(path, index=False, sheet_name="Rows"),
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".dta": lambda frame, path: frame.fillna({"ward": ""}).to_stata(path, write_index=False),
    ".xpt": write_sas,
    ".sav": write_spss,
}


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_what_csv_gives(sites: Path, suffix: str) -> None:
    want = from_tables(f"{sites}/{{client}}.csv", label="ill")
    for name, separator in (("a", ","), ("b", ";")):
        frame = pandas.read_csv(sites / f"{name}.csv", sep=separator, encoding="utf-8-sig")
        FORMATS[suffix](frame, sites / f"{name}{suffix}")
    dataset = from_tables(f"{sites}/{{client}}{suffix}", label="ill")
    assert torch.equal(dataset.train.x, want.train.x)
    assert torch.equal(dataset.train.y, want.train.y)
    assert dataset.class_names == want.class_names


@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_files(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(b"nothing of that kind" * 20)
    with pytest.raises(Misuse, match=rf"a\{suffix} cannot be read: .*write the table as CSV"):
        from_tables(tmp_path / f"a{suffix}", label="ill")


def test_rows_of_sheets_and_labels_of_stata(tmp_path: Path) -> None:
    rows = pandas.DataFrame({"age": [30, None, 50], "ill": ["no", None, "yes"]})
    with pandas.ExcelWriter(tmp_path / "a.xlsx") as book:
        pandas.DataFrame({"x": [1]}).to_excel(book, sheet_name="About", index=False)
        rows.to_excel(book, sheet_name="Rows", index=False)
    dataset = from_tables(
        tmp_path / "a.xlsx", label="ill", read={"sheet": "Rows"}, test=None, standardize=False
    )
    assert dataset.train.x.tolist() == [[30], [50]]
    rows = pandas.DataFrame({"age": [30, None, 50, "old"], "ill": ["no", None, "yes", "no"]})
    rows.to_excel(tmp_path / "b.xlsx", index=False)
    with pytest.raises(Misuse, match="row 5, column 'age': 'old' is not a number"):
        from_tables(tmp_path / "b.xlsx", label="ill", schema={"age": "number"})
    with pytest.raises(Misuse, match=r"a.xlsx has no sheet 'Raws', .*mean 'Rows'\? Known: About"):
        from_tables(tmp_path / "a.xlsx", label="ill", read={"sheet": "Raws"})
    ward = pandas.Categorical(["north", "south", "north"], categories=["south", "north"])
    frame = pandas.DataFrame({"ward": ward, "ill": [0, 1, 1]})
    frame.to_stata(tmp_path / "a.dta", write_index=False)
    dataset = from_tables(tmp_path / "a.dta", label="ill", test=None)
    assert dataset.train.x.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_tables_and_queries_of_a_database(sites: Path) -> None:
    want = from_tables(f"{sites}/{{client}}.csv", label="ill")
    url = f"sqlite:///{sites}/clinic.db"
    engine = sqlalchemy.create_engine(url)
    for name, separator in (("a", ","), ("b", ";")):
        frame = pandas.read_csv(sites / f"{name}.csv", sep=separator, encoding="utf-8-sig")
        frame.assign(site=name).to_sql("patients", engine, if_exists="append", index=False)
    engine.dispose()
    dataset = from_tables(url, label="ill", client="site", read={"table": "patients"})
    assert torch.equal(dataset.train.x, want.train.x)
    query = "SELECT age, ward, ill FROM patients WHERE site = 'b'"
    assert len(from_tables(url, label="ill", read={"query": query}, test=None).train) == 4
    for read, words in (
        ({}, "read.table is not set"),
        ({"table": "patient"}, "clinic.db cannot be read: ValueError: Table patient not found"),
        ({"query": "SELECT wrong FROM patients"}, "no such column: wrong"),
        ({"table": "patients", "query": query}, "read sets table and query"),
    ):
        with pytest.raises(Misuse, match=words) as caught:
            from_tables(url, label="ill", read=read)
        assert str(sites) not in str(caught.value)
    with pytest.raises(Misuse, match="nowhere cannot be read"):
        from_tables("nowhere://", label="y", read={"table": "a"})
    with pytest.raises(Misuse, match=r"driver psycopg\d? .*pip install psycopg") as caught:
        from_tables("postgresql://ada:secret@here/clinic", label="y", read={"table": "a"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("age;ill\n1.234,5;no\n-2,25;yes\n", {"decimal": ",", "thousands": "."}),
        ("age,ill\n'1,234.5',no\n-2.25,yes\n", {"thousands": ",", "quote": "'"}),
        ("age:ill\n1234.5:no\n-2.25:yes\n", {"separator": ":"}),
        ("age;ill\n1 234,50;no\n-2,25;yes\n", {"decimal": ",", "thousands": " "}),
        ("age,ill\n1234.5,nö\n-2.25,yes\n", {"encoding": "latin-1"}),
        ("age,ill\n1234.5,nö\n-2.25,yes\n", {"encoding": "utf-16"}),
    ],
)
def test_dialects(tmp_path: Path, text: str, read: dict[str, str]) -> None:
    (tmp_path / "c.csv").write_bytes(text.encode(read.get("encoding", "utf-8")))
    dataset = from_tables(tmp_path / "c.csv", label="ill", read=read, test=None, standardize=False)
    assert dataset.train.x.tolist() == [[1234.5], [-2.25]]
    assert dataset.class_names[0] in ("no", "nö")


@pytest.mark.parametrize(
    ("read", "number"),
    [
        # None of these may silently become another number.
        ({"thousands": ","}, "1,5"),
        ({"thousands": ","}, "1,2345"),
        ({"thousands": ","}, "1.5,000"),
        ({"decimal": ","}, "1.5"),
        ({"decimal": ",", "thousands": "."}, "1.5"),
        ({}, "1_000"),
        ({}, "1,000"),
    ],
)
def test_numbers_of_another_dialect_are_errors(read: dict[str, str], number: str) -> None:
    table = {"age": ["1", number], "ill": ["no", "yes"]}
    with pytest.raises(Misuse, match=f"row 2, column 'age': '{number}' is not a number"):
        from_tables(table, label="ill", schema={"age": "number"}, read=read)


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({"seperator": ";"}, "Did you mean 'separator'?"),
        ({"decimal": "comma"}, "read.decimal is 'comma'.*one character"),
        ({"decimal": ",", "thousands": ","}, "another mark is the same"),
        ({"encoding": "utf-9"}, "read.encoding is 'utf-9'"),
        ({"encoding": "\0"}, "read.encoding is"),
        ({"decimal": 1}, "Give a text"),
    ],
)
def test_impossible_dialects(read: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        from_tables({"age": [1, 2], "ill": [0, 1]}, label="ill", read=read)


def test_all_problems_of_all_files_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        'age,sex,ill\n30,m,no\n40,f\nold,x,yes\n"50\n",m,no,1\nold,m,\n60,f,maybe\n'
    )
    (tmp_path / "b.csv").write_text("age,ill\n1,no\n")
    schema = {"age": "number", "sex": ["m", "f"]}
    with pytest.raises(Misuse) as caught:
        from_tables(f"{tmp_path}/{{client}}.csv", label="ill", schema=schema, classes=["no", "yes"])
    assert str(caught.value).replace(f"{tmp_path}/", "").splitlines()[:-1] == [
        "7 problems:",
        "  a.csv, line 3: 2 values for 3 columns.",
        "  a.csv, line 4, column 'age': 'old' is not a number (and in 1 more row).",
        "  a.csv, line 4, column 'sex': 'x' is not one of its categories.",
        "  a.csv, line 6: 4 values for 3 columns.",
        "  a.csv, line 7, column 'ill': the label is missing.",
        "  a.csv, line 8, column 'ill': 'maybe' is not one of the classes.",
        "  b.csv: there is no column 'sex'.",
    ]
    remedies = caught.value.remedy
    assert remedies.count("put quotes around values") == 1
    assert "Known: no, yes" in remedies
    # Their number is bounded.
    rows = "".join(f"{row}x,no\n" for row in range(1000))
    (tmp_path / "b.csv").write_text(f"age,ill\n{rows}")
    with pytest.raises(Misuse, match="and 990 more") as caught:
        from_tables(
            tmp_path / "b.csv", label="ill", classes=["no", "yes"], schema={"age": "number"}
        )
    assert len(str(caught.value)) < 2000


def test_rows_keep_their_place_when_a_column_says_whose_they_are() -> None:
    table = {"age": [1, 2, 3, 4, "x", "y"], "ill": [0, 1] * 3, "who": list("ababab")}
    with pytest.raises(Misuse, match=r"(?s)row 5, column 'age': 'x'.*row 6, column 'age': 'y'"):
        from_tables(table, label="ill", client="who", schema={"age": "number"})


def test_values_that_are_spelled_differently(sites: Path) -> None:
    (sites / "a.csv").write_text("age,sex,ill\n30,m,no\n-99,F,1\n")
    (sites / "b.csv").write_text("age,sex,ill\n50,male,no\n70,female,yes\n")
    recode = {
        "sex": {"m": "male", "F": "female"}, "age": {"-99": ""}, "ill": {"1": "yes"},
    }  # fmt: skip
    options = {"label": "ill", "test": None, "recode": recode}
    dataset = from_tables(f"{sites}/{{client}}.csv", **options)
    assert dataset.class_names == ("no", "yes")
    assert dataset.train.y.tolist() == [0, 1, 0, 1]
    assert dataset.train.x[:, 1:].tolist() == [[0, 1], [1, 0], [0, 1], [1, 0]]
    # −99 stood for a missing age, which is the mean.
    assert dataset.train.x[1, 0] == 0
    assert dataset.preprocessing["recode"] == recode
    numbers = {"age": [30.0, -99.0, 50.0], "sex": list("mFm"), "ill": [0, 1, 1]}
    assert from_tables(numbers, **options).train.x[1, 0] == 0
    with pytest.raises(Misuse, match=r"No table has a column 'sx' to recode. Did you mean 'sex'"):
        from_tables(sites / "a.csv", label="ill", recode={"sx": {"m": "male"}})
    with pytest.raises(Misuse, match=r"recode\.sex is 'male'"):
        from_tables(sites / "a.csv", label="ill", recode={"sex": "male"})


def test_a_column_that_only_some_files_have_can_be_ignored(sites: Path) -> None:
    (sites / "a.csv").write_text("age,ill\n30,no\n40,yes\n")
    (sites / "b.csv").write_text("age,note,ill\n30,2020-01-01,no\n40,x,yes\n")
    dataset = from_tables(f"{sites}/{{client}}.csv", label="ill", ignore=["note"])
    assert dataset.train.x.shape[1] == 1
    with pytest.raises(Misuse, match=r"No table has a column 'nte' to ignore. Did you mean 'note'"):
        from_tables(f"{sites}/{{client}}.csv", label="ill", ignore=["nte"])
    # Whichever file is the first.
    for first, second in ("ab", "ba"):
        tables = {"1": sites / f"{first}.csv", "2": sites / f"{second}.csv"}
        frames = {name: pandas.read_csv(path) for name, path in tables.items()}
        with pytest.raises(Misuse, match=r"has a column 'note', which .* lacks.*`ignore`"):
            from_tables(frames, label="ill")


def test_columns_of_dates_and_lists() -> None:
    dates = pandas.to_datetime(["2020-01-01", "2020-01-02"])
    table = pandas.DataFrame({"age": [1, 2], "day": dates, "more": [[1], [2]], "ill": [0, 1]})
    with pytest.raises(Misuse, match="column 'day': it holds datetime64"):
        from_tables(table, label="ill", test=None)
    with pytest.raises(Misuse, match="column 'more': it holds a list"):
        from_tables(table, label="ill", ignore=["day"], test=None)
    dataset = from_tables(table, label="ill", ignore=["day", "more"], test=None)
    assert dataset.train.x.shape[1] == 1


cells = st.text(st.sampled_from('ab1 ,;"\n\r'), max_size=6) | st.just("a,b")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(cells, min_size=1, max_size=4), min_size=1, max_size=12))
def test_lines_of_csv_files_are_those_of_the_file(rows: list[list[str]]) -> None:
    """Whatever is quoted: rows of two values are read, others are named with their lines."""
    text, line, want, bad = "k,ill\n", 1, [], []
    for row in rows:
        written = io.StringIO()
        csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(row)
        ends = written.getvalue().replace("\r\n", "\n").replace("\r", "\n")
        text, line = text + written.getvalue(), line + ends.count("\n")
        if len(row) == 2:
            want.append((line, re.sub("\r\n?", "\n", row[0])))
        else:
            bad.append(line)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.csv"
        path.write_bytes(text.encode())
        if not want:
            with pytest.raises(Misuse, match=r"no rows|values for 2 columns"):
                read_table(path)
            return
        table = read_table(path)
    assert [problem.line for problem in table.problems] == bad
    assert table.lines.tolist() == [number for number, _ in want]
    assert table.frame["k"].tolist() == [value for _, value in want]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(tmp_path: Path, end: str) -> None:
    text = end.join(["age,ill", "1,no", "", ",yes", '3,"no"', ""])
    (tmp_path / "c.csv").write_bytes(text.encode())
    table = read_table(tmp_path / "c.csv")
    assert table.lines.tolist() == [2, 4, 5]
    assert table.frame["age"].tolist() == ["1", "", "3"]
    assert table.frame["ill"].tolist() == ["no", "yes", "no"]


def test_arrays_per_client(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(10, 2, 3)), y=np.arange(10) % 3)
    dataset = from_tables(f"{tmp_path}/{{client}}.npz", test=0.3)
    assert dataset.classes == 3
    assert "largest in the clients' arrays" in dataset.disclosure
    assert from_tables(f"{tmp_path}/{{client}}.npz", classes=3).disclosure == ""
    assert dataset.train.x.shape == (14, 2, 3)
    assert dataset.client_tests is not None
    assert [len(y) for _, y in dataset.client_tests] == [3, 3]
    x = rng.normal(size=(10, 2, 3))
    x[4, 0, 0] = np.nan
    np.savez(tmp_path / "b.npz", x=x, y=np.arange(10) % 3)
    with pytest.raises(Misuse, match="b: x is NaN in sample 4"):
        from_tables(f"{tmp_path}/{{client}}.npz")


floats = st.floats(-1e12, 1e12, allow_nan=False) | st.just(math.nan)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(floats, min_size=2, max_size=2), min_size=1, max_size=20), st.data())
def test_sums_are_exact_in_any_order(rows: list[list[float]], data: st.DataObject) -> None:
    x = np.array(rows)
    cut = data.draw(st.integers(0, len(rows)))
    order = data.draw(st.permutations(range(cut)))
    a, b = ColumnSums.of(x[:cut][order]), ColumnSums.of(x[cut:])
    assert a + b == b + ColumnSums.of(x[:cut])
    words = a.to_words() + b.to_words()
    assert ColumnSums.from_words(words) == a + b
    assert np.abs(words).max(initial=0) <= 2 * 2**16
    mean, deviation = (a + b).moments()
    for column, centre, scale in zip(x.T, mean, deviation, strict=True):
        known = column[~np.isnan(column)]
        if len(known):
            size = np.abs(known).max()
            assert centre == pytest.approx(known.mean(), abs=1e-9 * size + 1e-30)
            if known.std() > 1e-3 * size:
                assert scale == pytest.approx(known.std(), rel=1e-6)


def test_numbers_to_predict(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stays = rng.gamma(2, 3, size=(2, 30)).round(2)
    for name, stay in zip("ab", stays, strict=True):
        rows = "".join(f"{age},{days}\n" for age, days in zip(range(30), stay, strict=True))
        (tmp_path / f"{name}.csv").write_text(f"age,stay\n{rows}")
    source = f"{tmp_path}/{{client}}.csv"
    dataset = from_tables(source, label="stay", target="number", test=0.3)
    assert dataset.classes == 0
    assert dataset.target is not None
    # Labels keep their unit; the moments are those of the training rows of both clients.
    y = dataset.train.y.double()
    assert dataset.train.y.dtype == torch.float32
    assert dataset.target.mean == pytest.approx(float(y.mean()), rel=1e-7)
    assert dataset.target.std == pytest.approx(float(y.std(correction=0)), rel=1e-7)
    assert sorted(torch.cat([dataset.train.y, dataset.test.y]).tolist()) == pytest.approx(
        sorted(stays.flatten().tolist())
    )
    assert [len(part[1]) for part in dataset.client_tests or []] == [9, 9]
    assert dataset.preprocessing["target"] == {
        "column": "stay", "mean": dataset.target.mean, "std": dataset.target.std
    }  # fmt: skip
    assert "of 2 columns" in dataset.disclosure
    assert "target stay" in dataset.note
    assert "mean stay" in dataset._repr_html_()
    # Public constants are not shared, and without standardisation there are none.
    constants = {"age": {"mean": 15, "std": 5}}
    public = from_tables(source, label="stay", target={"mean": 5, "std": 3}, schema=constants)
    assert public.target == Target("stay", 5.0, 3.0)
    assert public.disclosure == ""
    plain = from_tables(source, label="stay", target="number", standardize=False)
    assert plain.target == Target("stay", 0.0, 1.0)


def test_arrays_with_numbers_to_predict() -> None:
    x, y = np.zeros((6, 2)), np.arange(6) / 4
    dataset = from_tables({"a": (x, y), "b": (x, y)}, target="number", test=0.5)
    assert dataset.target == Target("y")
    assert [len(part[1]) for part in dataset.client_parts] == [3, 3]
    with pytest.raises(Misuse, match="not finite"):
        from_tables({"a": (x, y * math.nan)}, target="number")
    with pytest.raises(Misuse, match="classes are set"):
        from_tables({"a": (x, y)}, target="number", classes=3)


def test_hold_out_is_stratified_and_keyed_by_the_name() -> None:
    labels = np.array([0] * 80 + [1] * 20)
    out = held_out(labels, 0.25, 0, "a")
    assert (out[:80].sum(), out[80:].sum()) == (20, 5)
    assert (held_out(labels, 0.25, 0, "a") == out).all()
    assert (held_out(labels, 0.25, 0, "b") != out).any()
    assert (held_out(labels, 0.25, 1, "a") != out).any()
    assert held_out(labels[:2], 0.01, 0, "a").sum() == 1


def test_what_was_disclosed_goes_with_the_parts(tmp_path: Path) -> None:
    table = {"x": [float(k) for k in range(40)], "y": [0, 1] * 20}
    dataset = from_tables(table, label="y", classes=2)
    parts = dataset.train.parts("iid", clients=3)
    task = tacit.Task(torch.nn.Linear(1, 2), parts[1:] + parts[:1], batch_size=4)
    assert "sums of squares of 1 column" in dataset.disclosure
    assert task.disclosure == dataset.disclosure
    graph = tacit.Topology.ring(3).mixing("metropolis")
    with pytest.raises(Misuse, match="guarantee does not cover what clients share"):
        tacit.run(task, tacit.PrivateSGD(lr=0.1), graph, steps=2, privacy=tacit.Privacy(epsilon=3))
    simulation = Simulation(Setting(tacit.DSGT(lr=0.1), task, graph))
    assert dataset.disclosure in simulation.remarks
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=2)
    run.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["notes"] == [
        dataset.disclosure
    ]
    audit = tacit.audit(run, "curious(1)", iterations=2, attacks=False)
    assert f"before training, {dataset.disclosure}" in audit.remarks
