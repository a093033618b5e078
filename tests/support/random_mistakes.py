"""Random mistakes: command lines, configurations, damaged folders and calls of the library."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

import tacit
from support.command_line import BASE
from tacit.algorithms import ALGORITHMS
from tacit.cli.app import app
from tacit.config.kinds import SELECTORS, options_of_kind
from tacit.config.sections import Config
from tacit.graph.named import TOPOLOGIES
from tacit.models.registry import MODELS

LONG = "x" * 300
# None of these is a good value of many keys.
JUNK = [
    "soon", "-1", "-0.5", "nan", "inf", "-inf", "1e999", "[]", "{}", "[[1]]", "{a=1}", "''", "é☃",
    "[0,0]", "true", "0", "1.5", "module:Class", "json:loads", "os:system", LONG, "1979-05-27",
    "[1,", "{law='x'}", "=", "\x07", "None", "-9999999999999999999999", "'\\'", "[" * 200,
    "['a','a']", "{mean=1}", "[nan]", "[-1]", "\x00", "%s", "{client}", "\udcff",
]  # fmt: skip
# Names of files and folders that no command can use; `hostile_files` makes some of them.
HOSTILE = [
    "folder", "empty", "binary", "latin1", "nested.json", "numbers.json", "dangling", "loop",
    "missing", "empty/x", LONG, "", "nul\x00", "é☃", "table.csv", "empty.npz", "bad.parquet",
    "bad.safetensors",
]  # fmt: skip
OWN = BASE.partition("[model]")[2].replace("clients = 3\n", "").replace("lppa", "dsgt")
OWN = "[model]" + OWN.replace('noise = { law = "laplace", scale = 0.01 }\n', "")
TEXTS = [
    BASE,
    '[data]\nfiles = "sites/{client}.csv"\nlabel = "ill"\ntest = 0.2\n' + OWN.replace("16", "2"),
    '[data]\nfile = "table.csv"\nclient = "site"\nlabel = "ill"\nignore = ["age"]\n'
    'classes = ["0", "1"]\n\n[data.schema]\nage = { mean = 40, std = 9 }\nward = ["A", "B"]\n\n'
    '[data.read]\nseparator = ","\nencoding = "utf-8"\ndecimal = "."\nthousands = " "\n\n'
    '[data.recode]\nward = { a = "A" }\n\n'
    + OWN.replace("16", "2"),
    '[data]\nfunction = "own_rows:records"\nlabel = "ill"\nclients = ["a", "b", "c"]\n'
    + OWN.replace("16", "2"),
    BASE + '\n[stop]\nmetric = "accuracy"\npatience = 2\nmin_change = 0.1\n\n'
    '[transcript]\nfirst = 0\nlast = 2\ninsides = [1]\n\n[log]\ntensorboard = false\n',
    BASE.replace("[run]", '[run]\nmetrics = ["auc", "f1"]\nkeep_best = "auc"').replace(
        "hidden = [8]", 'hidden = [8]\nlocal = ["*.bias"]\nlocal_lr = 0.1'
    ),
    BASE.replace("lppa", "d-psgd").replace('noise = { law = "laplace", scale = 0.01 }\n', "")
    + '\n[participation]\nshare = 0.7\ndelay = 1\n',
    BASE.replace('kind = "ring"', 'kind = "phases"').replace(
        "clients = 3\n",
        'phases = [{ kind = "ring", clients = 3, iterations = 2 }, '
        '{ kind = "complete", clients = 3, iterations = 1 }]\n',
    ).replace("lppa", "push-sum").replace('noise = { law = "laplace", scale = 0.01 }\n', ""),
    BASE.replace("lppa", "private-sgd").replace(
        'noise = { law = "laplace", scale = 0.01 }', "clip = 1.0"
    ) + "\n[privacy]\nepsilon = 3.0\ndelta = 1e-3\n",
    '[task]\nname = "quadratic"\n\n[graph]\nkind = "ring"\nclients = 3\n\n'
    '[algorithm]\nname = "dsgt"\nlr = 0.1\n\n[run]\nrounds = 2\n',
]  # fmt: skip
ROWS = "site,age,ward,ill\n" + "".join(
    f"{site},{age},{'AB'[age % 2]},{age % 2}\n" for site in "abc" for age in range(30, 38)
)


def section_keys() -> Iterator[str]:
    """The keys of all sections, and some that there are not."""
    for section, field in Config.model_fields.items():
        kinds = (field.annotation, *getattr(field.annotation, "__args__", ()))
        fields = next((one.model_fields for one in kinds if hasattr(one, "model_fields")), {})
        for name, inner in fields.items():
            yield f"{section}.{inner.alias or name}"
        yield f"{section}.no_such_key"
        yield section


KEYS = [
    *section_keys(), "algorithm.noise.scale", "algorithm.lr.schedule", "run.clip.bound",
    "data.schema.age", "data.schema.age.mean", "graph.of.kind", "", ".", "run..seed",
    "model.shape", "model.classes", "graph.matrix", "graph.file", "graph.iterations",
]  # fmt: skip
# Any text is a good value of these, and using them takes seconds.
LOGGERS = ("log.mlflow", "log.wandb")
KINDS = {
    "graph": [*TOPOLOGIES, "matrix", "matchings", "phases"],
    "partition": ["iid", "quantity", "dirichlet", "classes", "missing", "explicit"],
    "model": list(MODELS),
    "algorithm": list(ALGORITHMS),
}
# Commands that go on until they are stopped, or for minutes: they get nothing that they can use.
ENDLESS = ("node", "relay", "federation up", "federation dashboard", "bench", "reproduce", "demo")
# Options that wait, open a browser or attack for minutes.
NEVER = ("--watch", "--open", "--attacks", "--canaries", "--help", "--jobs", "--sample-canaries")


# A folder that cannot be made: a page of a run that nothing else is wrong with takes seconds.
NO_FOLDER = "empty/x"


@dataclass(frozen=True)
class Mistake:
    """Something wrong: a command with the text of its configuration, or a call of a function."""

    words: tuple[str, ...] = ()
    text: str = BASE
    prepare: Callable[[Path], None] = lambda folder: None
    call: Callable[[Path], Any] | None = None
    what: str = ""

    def __str__(self) -> str:
        shown = self.what or f"tacit {list(self.words)}"
        return shown if self.text == BASE else f"{shown}\n{self.text}"


def hostile_files(folder: Path) -> None:
    """Make the files that commands are given in place of good ones."""
    (folder / "folder").mkdir()
    (folder / "empty").write_text("")
    (folder / "empty.npz").write_text("")
    (folder / "binary").write_bytes(bytes(range(256)) * 4)
    (folder / "bad.parquet").write_bytes(b"PAR1" + bytes(64))
    (folder / "bad.safetensors").write_bytes(b"\xff" * 64)
    (folder / "latin1").write_bytes("name = 'Zürich'".encode("latin-1"))
    (folder / "nested.json").write_text("[" * 5_000)
    (folder / "numbers.json").write_text('{"a": 1e999, "b": ' + "9" * 5_000 + "}")
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "table.csv").write_text(ROWS)
    (folder / "sites").mkdir()
    for site in "abc":
        rows = [line[2:] for line in ROWS.splitlines() if line[0] == site]
        (folder / "sites" / f"{site}.csv").write_text("\n".join(["age,ward,ill", *rows]))
    (folder / "own_rows.py").write_text(
        "def records(client):\n    return [{'age': float(k), 'ill': k % 2} for k in range(12)]\n"
    )


def mistake(draw: random.Random) -> Mistake:
    """A mistake of a random kind."""
    kinds = (
        set_junk,
        damage_text,
        replace_value,
        change_kind,
        misuse_command,
        damage_folder,
        misuse_call,
    )
    return draw.choices(kinds, weights=(4, 2, 3, 3, 5, 4, 5))[0](draw)


def _run(draw: random.Random, text: str, *sets: str) -> Mistake:
    words = [word for pair in (*sets, "run.rounds=1") for word in ("--set", pair)]
    out = "out" if draw.random() < 0.1 else NO_FOLDER
    return Mistake(("run", "base.toml", *words, "--out", out), text)


def _junk_for(key: str, draw: random.Random) -> str:
    return draw.choice(["-1", "[]", "{}", "true"] if key in LOGGERS else JUNK)


def set_junk(draw: random.Random) -> Mistake:
    keys = [draw.choice(KEYS) for _ in range(draw.randint(1, 2))]
    return _run(draw, draw.choice(TEXTS), *(f"{key}={_junk_for(key, draw)}" for key in keys))


def damage_text(draw: random.Random) -> Mistake:
    """A file with characters removed, doubled or replaced."""
    text = draw.choice(TEXTS)
    for _ in range(draw.randint(1, 6)):
        place = draw.randrange(len(text))
        new = draw.choice(["", "[", '"', "=", "é", "\n", "0", "-", "\x00"])
        text = text[:place] + new + text[place + draw.randint(0, 2) :]
    return _run(draw, text)


def replace_value(draw: random.Random) -> Mistake:
    lines = draw.choice(TEXTS).splitlines()
    place = draw.choice([number for number, line in enumerate(lines) if "=" in line])
    lines[place] = lines[place].partition("=")[0] + "= " + draw.choice(JUNK)
    return _run(draw, "\n".join(lines))


def change_kind(draw: random.Random) -> Mistake:
    """Options of another kind, with values that they cannot have."""
    section = draw.choice(list(KINDS))
    name = draw.choice(KINDS[section])
    options = sorted(options_of_kind(section, name) or ()) or ["none"]
    pairs = [f"{section}.{SELECTORS[section]}={name}"]
    pairs += [f"{section}.{draw.choice(options)}={draw.choice(JUNK)}" for _ in range(2)]
    return _run(draw, draw.choice(TEXTS), *pairs)


def all_commands() -> dict[str, Any]:
    """Every command of the command line by its words."""
    found: dict[str, Any] = {}

    def walk(command: Any, words: list[str]) -> None:
        for name in list(getattr(command, "commands", ())):
            walk(command.commands[name], [*words, name])
        if not hasattr(command, "commands"):
            found[" ".join(words)] = command

    walk(typer.main.get_command(app), [])
    return found


COMMANDS = all_commands()
# What fits some arguments, so that others are read at all.
USABLE = {
    "config": ["base.toml"],
    "source": ["base.toml", "run"],
    "folder": ["run", "fed", "fed/nodes/a"],
    "--algorithms": ["dsgt", "dsgt+x=1"],
    "--over": ["algorithm.lr=0.1", "run.seed=1", "data.seed=1,2"],
    "--adversary": ["curious(1)", "curious(0)", "worst(99)"],
    "--label": ["ill"],
    "files": ["table.csv"],
    "--rounds": ["2"],
    "--name": ["a", "d"],
    "node": ["a", "d=127.0.0.1:1"],
    "--out": ["out", "run"],
    "name": ["a", "r", "mnist-mini"],
    "address": ["127.0.0.1:1"],
    "new": ["127.0.0.1:2"],
}


def misuse_command(draw: random.Random) -> Mistake:
    """Any command with random arguments and options."""
    name = draw.choice(list(COMMANDS))
    words = name.split()
    endless = name in ENDLESS

    def value(key: str) -> str:
        pool = HOSTILE if key in ("--out", "--data") or not draw.randrange(3) else [*HOSTILE, *JUNK]
        good = () if endless else USABLE.get(key, ())
        return draw.choice(good) if good and draw.random() < 0.7 else draw.choice(pool)

    for parameter in COMMANDS[name].params:
        key = (parameter.opts or [parameter.name])[0]
        if key in NEVER:
            continue
        is_option = key.startswith("-")
        if not is_option:
            # Without one, some commands do everything.
            words.append(value(key) or "missing" if endless else value(key))
        elif parameter.required or draw.random() < 0.25:
            words.append(key)
            if not getattr(parameter, "is_flag", False):
                words.append(value(key))
    words += ["--no-attacks"] if name == "audit" else ["--out", "empty"] if name == "demo" else []
    if name in ("grid", "run", "audit"):
        words += ["--set", "run.rounds=1"]
    if name in ("grid", "run") and draw.random() < 0.8:
        words += ["--out", NO_FOLDER]
    if name == "algorithms":
        words += ["-p", draw.choice(JUNK)]
    return Mistake(tuple(words), prepare=make_good_folders)


def make_good_folders(folder: Path) -> None:
    """Fresh copies of the folders of a run and of a federation."""
    for name in ("run", "fed"):
        shutil.rmtree(folder / name, ignore_errors=True)
        if (folder / f"good-{name}").is_dir():
            shutil.copytree(folder / f"good-{name}", folder / name)


READERS = {
    "run": [
        ("report", "run", "--out", "page.html"),
        ("export", "run", "--format", "torch"),
        ("export", "run", "--client", "1"),
        ("audit", "run", "--no-attacks", "--adversary", "curious(1)"),
        ("run", "run/config.toml", "--out", "run", "--resume"),
        ("run", "base.toml", "--out", "run"),
    ],
    "fed": [
        ("federation", "show", "fed"),
        ("federation", "log", "fed"),
        ("federation", "renew", "fed"),
        ("federation", "set", "fed", "--patience", "9s", "--later"),
        ("federation", "remove", "fed", "a", "--later"),
        ("audit", "fed", "-n", "1"),
        ("federation", "add-relay", "fed", "r", "127.0.0.1:9", "--later"),
        ("member", "renew", "fed/nodes/a"),
        ("export", "fed/nodes/a"),
        ("report", "fed/nodes/a"),
        ("node", "fed/nodes/a", "--data", "missing"),
        ("federation", "show", "fed/nodes/a"),
    ],
    "sites": [
        ("run", "base.toml", "--out", NO_FOLDER),
        ("data", "schema", "sites/a.csv", "--label", "ill"),
    ],
}


def damage(path: Path, draw: random.Random) -> None:
    """Change a file so that it is no longer what it was."""
    content = path.read_bytes()
    kind = draw.randrange(8)
    if kind == 0:
        path.unlink()
    elif kind == 1:
        path.write_bytes(content[: draw.randrange(len(content) + 1)])
    elif kind == 2:
        changed = bytearray(content or b"x")
        for _ in range(draw.randint(1, 5)):
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
    elif kind == 3:
        path.unlink()
        path.mkdir()
    elif kind == 4:
        path.unlink()
        path.symlink_to("nowhere")
    elif kind == 5:
        path.write_bytes(draw.choice([b"", b"\xff\xfe\x00", b"[" * 5_000, b"null", b"[]", b"{}\n"]))
    else:
        path.write_bytes(_other_values(content, draw))


def _other_values(content: bytes, draw: random.Random) -> bytes:
    """JSON with one value changed; other files with a line changed."""
    junk = [None, -1, "x", [], {}, 1e308, True, [[]], 10**30, "é"]
    lines = content.decode("utf-8", errors="replace").splitlines() or [""]
    place = draw.randrange(len(lines))
    try:
        values = json.loads(lines[place] if len(lines) > 1 else content)
    except ValueError:
        lines[place] = lines[place].partition("=")[0] + "= " + draw.choice(JUNK)
        return "\n".join(lines).encode(errors="replace")
    at = values
    while isinstance(at, dict | list) and at:
        key = draw.choice(list(at)) if isinstance(at, dict) else draw.randrange(len(at))
        if isinstance(at[key], dict | list) and at[key] and draw.random() < 0.7:
            at = at[key]
            continue
        at[key] = draw.choice(junk)
        break
    lines[place] = json.dumps(values)
    return "\n".join(lines).encode() if len(lines) > 1 else lines[place].encode()


def damage_folder(draw: random.Random) -> Mistake:
    """A command that reads a folder in which a file is damaged."""
    name = draw.choice(list(READERS))
    words, seed = draw.choice(READERS[name]), draw.randrange(1 << 30)
    text = TEXTS[1] if name == "sites" else BASE

    def prepare(folder: Path) -> None:
        make_good_folders(folder)
        if name == "sites":
            shutil.rmtree(folder / "sites")
            shutil.copytree(folder / "good-sites", folder / "sites")
        files = sorted(path for path in (folder / name).rglob("*") if path.is_file())
        own = random.Random(seed)
        chosen = own.choice(files) if files else None
        if chosen is not None:
            damage(chosen, own)

    return Mistake(tuple(words), text, prepare, what=f"tacit {words}, damaged by {seed}")


def misuse_call(draw: random.Random) -> Mistake:
    """A function of the library with one or two arguments of another kind."""
    name = draw.choice(list(CALLS))
    seed = draw.randrange(1 << 30)

    def call(folder: Path) -> Any:
        own = random.Random(seed)
        function, given, further = CALLS[name](folder)
        changed = dict(given)
        for key in own.choices([*given, *further], k=own.randint(1, 2)):
            changed[key] = own.choice(JUNK_VALUES)()
        return function(**changed)

    return Mistake(call=call, what=f"{name}, seed {seed}")


JUNK_VALUES: list[Callable[[], Any]] = [
    lambda: None,
    lambda: -1,
    lambda: 0,
    lambda: 1.5,
    lambda: float("nan"),
    lambda: "soon",
    lambda: b"x",
    list,
    dict,
    lambda: [None],
    lambda: object(),
    lambda: {"a": 1},
    lambda: torch.zeros(0),
    lambda: torch.zeros(3),
    lambda: torch.full((2, 2), torch.nan),
    lambda: np.zeros((2, 3)),
    lambda: (torch.zeros(2, 4), torch.zeros(3)),
    lambda: len,
    lambda: [(torch.zeros(2, 4), torch.zeros(2)), (torch.zeros(2, 5), torch.zeros(2))],
    lambda: torch.nn.Linear(2, 2),
    lambda: True,
    lambda: "",
    lambda: (1, 2, 3),
    lambda: {1, 2},
    lambda: torch.zeros(2, dtype=torch.complex64),
    lambda: ["a", "a"],
    lambda: LONG,
    lambda: [1, "x"],
]


def _parts() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.ones(6, 4), torch.arange(6) % 3) for _ in range(3)]


def _task() -> tacit.Objective:
    return tacit.Task(torch.nn.Linear(4, 3), _parts(), batch_size=2, test=_parts()[0])


def _graph() -> tacit.Graph:
    return tacit.Topology.ring(3).mixing("metropolis")


def _table(folder: Path) -> dict[str, Any]:
    return {"source": str(folder / "table.csv"), "label": "ill", "client": "site"}


def _square(theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (theta - x).square().sum()


Target = tuple[Callable[..., Any], dict[str, Any], list[str]]
CALLS: dict[str, Callable[[Path], Target]] = {
    "run": lambda folder: (
        tacit.run,
        {"task": _task(), "algorithm": tacit.DSGT(lr=0.1), "graph": _graph(), "steps": 2},
        [
            "seed",
            "device",
            "gradients",
            "prg",
            "precision",
            "privacy",
            "metrics",
            "participation",
            "record_every",
            "callbacks",
        ],
    ),
    "Task of a module": lambda folder: (
        tacit.Task,
        {"model": torch.nn.Linear(4, 3), "clients": _parts()},
        ["loss", "batch_size", "test", "init", "augment", "local", "local_lr"],
    ),
    "Task of a vector": lambda folder: (
        tacit.Task,
        {"model": torch.zeros(2), "clients": [torch.ones(2)] * 3, "loss": _square},
        ["batch_size"],
    ),
    "Objective.with_metrics": lambda folder: (_task().with_metrics, {"metrics": ["auc"]}, []),
    "Objective.clipped": lambda folder: (_task().clipped, {"bound": 1.0}, ["norm"]),
    "quadratic": lambda folder: (
        tacit.quadratic,
        {"A": torch.eye(2).repeat(3, 1, 1), "b": torch.ones(3, 2)},
        [],
    ),
    "from_tables": lambda folder: (
        tacit.data.from_tables,
        _table(folder),
        ["clients", "classes", "schema", "ignore", "test", "standardize", "seed"],
    ),
    "Dataset.with_validation": lambda folder: (
        tacit.data.from_tables(**_table(folder)).with_validation,
        {"share": 0.2, "seed": 0},
        [],
    ),
    "data.load": lambda folder: (
        tacit.data.load,
        {"name": "mnist-mini"},
        ["folder", "seed", "limit_train", "limit_test"],
    ),
    "load": lambda folder: (tacit.load, {"folder": str(folder / "good-run")}, []),
    "SavedRun.module": lambda folder: (
        tacit.load(folder / "good-run").module,
        {"client": 0},
        ["module"],
    ),
    "audit": lambda folder: (
        partial(tacit.audit, heat_map=False, attacks=False),
        {"subject": str(folder / "good-run"), "adversary": "curious(1)"},
        ["victim", "iterations", "delta", "overrides", "data_folder"],
    ),
    "Topology.ring": lambda folder: (tacit.Topology.ring, {"n": 3}, []),
    "Topology.mixing": lambda folder: (
        tacit.Topology.ring(3).mixing,
        {"rule": "metropolis"},
        ["lazy"],
    ),
    "LPPA": lambda folder: (
        lambda **options: tacit.run(_task(), tacit.LPPA(**options), _graph(), steps=1),
        {"lr": 0.1},
        ["noise", "fresh"],
    ),
    "PrivateSGD": lambda folder: (
        lambda epsilon, **options: tacit.run(
            _task(),
            tacit.PrivateSGD(**options),
            _graph(),
            steps=1,
            privacy=tacit.Privacy(epsilon=epsilon),
        ),
        {"epsilon": 3.0, "lr": 0.1},
        ["clip"],
    ),
    "EarlyStopping": lambda folder: (
        lambda **options: tacit.run(
            _task(),
            tacit.DSGT(lr=0.1),
            _graph(),
            steps=2,
            callbacks=[tacit.callbacks.EarlyStopping(**options)],
        ),
        {"metric": "accuracy"},
        ["patience", "min_change"],
    ),
}
