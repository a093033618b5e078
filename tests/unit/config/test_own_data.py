"""Own data in [data]: files, one table and functions, with clear errors."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

import tacit
from tacit.config.build import build
from tacit.config.loading import load_config, make_config
from tacit.config.named_code import named_code
from tacit.core.errors import Misuse
from tacit.experiment.folder import fingerprint
from tacit.experiment.run import run

COMMON = {
    "model": {"name": "linear"},
    "graph": {"kind": "ring"},
    "algorithm": {"name": "dsgt", "lr": 0.1},
    "run": {"rounds": 1, "batch_size": 4},
}


def rows(client: str) -> list[dict[str, object]]:
    rng = np.random.default_rng(ord(client[0]))
    return [{"age": float(rng.normal(50, 9)), "ill": ["no", "yes"][k % 2]} for k in range(20)]


def write(folder: Path, client: str) -> None:
    lines = [f"{row['age']},{row['ill']}" for row in rows(client)]
    (folder / f"{client}.csv").write_text("\n".join(["age,ill", *lines]))


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    for client in "abc":
        write(tmp_path, client)
    return tmp_path


def config(**data: object) -> tacit.config.sections.Config:
    return make_config(COMMON | {"data": data})


def records(client):
    return rows(client)


def all_records():
    return {client: rows(client) for client in "abc"}


def broken(client):
    raise KeyError(client)


def test_files_a_table_and_functions_give_the_same_task(sites: Path) -> None:
    lines = [f"{one},{row['age']},{row['ill']}" for one in "cab" for row in rows(one)]
    (sites / "table").mkdir()
    table = sites / "table" / "all.csv"
    table.write_text("\n".join(["site,age,ill", *lines]))
    here = __name__
    experiments = [
        build(config(label="ill", **data))
        for data in (
            {"files": f"{sites}/{{client}}.csv"},
            {"file": str(table), "client": "site"},
            {"function": f"{here}:all_records"},
            {"function": f"{here}:records", "clients": ["a", "b", "c"]},
        )
    ]
    first, *others = (experiment.task for experiment in experiments)
    assert experiments[0].graph.clients == 3
    assert experiments[0].setting.task.names == ("a", "b", "c")
    for task in others:
        assert task.names == ("a", "b", "c")
        assert torch.equal(task.parts.arrays[0], first.parts.arrays[0])
        assert [len(y) for _, y in task.client_tests] == [4, 4, 4]
        assert "training rows" in task.disclosure


def test_names_of_files_start_at_the_configuration(sites: Path) -> None:
    (sites / "c.toml").write_text(
        '[data]\nfiles = "{client}.csv"\nlabel = "ill"\nclients = ["a", "b"]\n'
        '[data.schema]\nage = "number"\n'
        '[model]\nname = "linear"\n',
        encoding="utf-8-sig",
    )
    read = load_config(sites / "c.toml")
    assert read.data.files == str(sites / "{client}.csv")
    # What a run stores can be read again.
    assert make_config(read.as_dict()) == read
    assert read.data.columns == {"age": "number"}


def test_a_table_without_clients_is_divided(sites: Path) -> None:
    values = COMMON | {
        "data": {"file": str(sites / "a.csv"), "label": "ill"},
        "graph": {"kind": "ring", "clients": 3},
    }
    experiment = build(make_config(values))
    assert experiment.task.names == ()
    assert experiment.task.parts.sizes.sum() == 16


def test_a_run_says_what_was_shared(sites: Path, tmp_path: Path) -> None:
    done = run(config(files=f"{sites}/{{client}}.csv", label="ill"), tmp_path / "out")
    assert done.summary["names"] == ["a", "b", "c"]
    assert any("all clients learn these totals" in note for note in done.summary["notes"])
    found = tacit.audit(tmp_path / "out", attacks=False, iterations=1)
    assert any("sums of squares" in remark for remark in found.remarks)


def test_other_contents_are_another_run(sites: Path) -> None:
    one = config(files=f"{sites}/{{client}}.csv", label="ill")
    before = fingerprint(one)
    assert fingerprint(one) == before
    (sites / "b.csv").write_text((sites / "a.csv").read_text())
    assert fingerprint(one) != before


def test_code_is_named() -> None:
    named = named_code(config(function="mine:records", clients=["a"]))
    assert ("data.function", "mine:records") in [(code.key, code.path) for code in named]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"name": "own"}, ["no key says where", "files ="]),
        ({"files": "x/{client}.csv", "file": "y.csv"}, ["files and file", "one of them"]),
        ({"files": "x/a.csv"}, ["{client}"]),
        ({"label": "ill"}, ["data.label is for own data", "mnist-mini"]),
        ({"name": "mnist-mini", "schema": {"a": "number"}}, ["data.schema is for own data"]),
        ({"files": "{here}/{client}.csv"}, ["label is not set"]),
        ({"files": "{here}/{client}.csv", "label": "il"}, ["Did you mean 'ill'?"]),
        ({"files": "{here}/{client}.csv", "label": "ill", "clients": ["d"]}, ["'d'", "a, b, c"]),
        ({"files": "{here}/{client}.csv", "label": "ill", "limit_train": 3}, ["limit_train"]),
        ({"files": "{here}/{client}.csv", "label": "ill", "labl": 3}, ["labl", "label"]),
        ({"files": "{here}/{client}.csv", "label": "ill", "test": []}, ["data.test = []"]),
        ({"function": f"{__name__}:records"}, ["clients"]),
        ({"function": f"{__name__}:broken", "clients": ["a"]}, ["fails: KeyError"]),
        ({"function": f"{__name__}:missing"}, ["cannot be imported"]),
        ({"function": f"{__name__}:COMMON", "clients": ["a"]}, ["is a dict"]),
    ],
)  # fmt: skip
def test_errors(sites: Path, data: dict[str, object], words: list[str]) -> None:
    if "files" in data:
        data = data | {"files": str(data["files"]).replace("{here}", str(sites))}
    with pytest.raises(Misuse) as caught:
        build(config(**data))
    for word in words:
        assert word in str(caught.value)


def test_a_partition_does_not_go_with_clients(sites: Path) -> None:
    values = COMMON | {
        "data": {"files": f"{sites}/{{client}}.csv", "label": "ill"},
        "partition": {"kind": "dirichlet", "alpha": 1.0},
    }
    with pytest.raises(Misuse, match="belong to their clients"):
        build(make_config(values))
    values = values | {"partition": {}, "graph": {"kind": "ring", "clients": 5}}
    with pytest.raises(Misuse, match=r"3 clients \(a, b, c\), the graph has 5"):
        build(make_config(values))


def test_a_guarantee_does_not_cover_sums(sites: Path) -> None:
    data = {"files": f"{sites}/{{client}}.csv", "label": "ill"}
    private = {
        "algorithm": {"name": "private-sgd", "lr": 0.1},
        "privacy": {"epsilon": 3.0, "delta": 1e-3},
        "graph": {"kind": "complete"},
    }
    with pytest.raises(Misuse, match=r"does not cover what.* numbers .*public constants in \[data"):
        build(make_config(COMMON | private | {"data": data}))
    public = data | {"schema": {"age": {"mean": 50, "std": 9}}}
    with pytest.raises(Misuse, match=r"the classes of ill are all .* declare data\.classes"):
        build(make_config(COMMON | private | {"data": public}))
    public = public | {"classes": ["no", "yes"]}
    assert build(make_config(COMMON | private | {"data": public})).task.disclosure == ""


def test_random_bad_tables_raise_nothing_but_misuse(sites: Path) -> None:
    """Either the task is built, or the error names the file, the column or the label."""
    rng = random.Random(1)
    table = sites / "b.csv"
    good = table.read_bytes()
    refused = []
    for _ in range(200):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(bad))
            change = rng.choice([b"", b",", b'"', b"\n", b"\x00", b"\xff", b"inf", b"x", b";"])
            bad[place : place + rng.randrange(3)] = change
        table.write_bytes(bytes(bad))
        try:
            build(config(files=f"{sites}/{{client}}.csv", label="ill"))
        except Misuse as problem:
            refused.append(str(problem))
    assert 50 < len(refused) < 200
    for text in refused:
        assert any(word in text for word in ("b.csv", "olumn", "label", "b has"))


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("a\x00b", str(tmp_path / "loop")):
        with pytest.raises(Misuse, match=r"is not the name of a file|loop"):
            build(make_config({}, [f"data.file={name}", "data.label=ill", "data.client=site"]))
