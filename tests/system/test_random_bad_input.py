"""Two hundred random mistakes: each ends with a message, none with a traceback."""

import random
import shutil

import pytest

from support.command_line import BASE
from tacit.algorithms import ALGORITHMS
from tacit.config.graphs import TOPOLOGIES
from tacit.config.kinds import SELECTORS, options_of_kind
from tacit.config.sections import Config
from tacit.models.registry import MODELS

CASES = 200
LONG = "x" * 300
# None of these is a good value of many keys.
JUNK = [
    "soon", "-1", "-0.5", "nan", "inf", "-inf", "1e999", "[]", "{}", "[[1]]", "{a=1}", "''", "é☃",
    "[0,0]", "true", "0", "1.5", "module:Class", "json:loads", "os:system", LONG, "1979-05-27",
    "[1,", "{law='x'}", "=", "\x07", "..", "/", "None", "-9999999999999999999999", "'\\'",
]  # fmt: skip
KEYS = [
    f"{section}.{key}"
    for section in (
        "data",
        "partition",
        "model",
        "graph",
        "algorithm",
        "run",
        "privacy",
        "robust",
        "transcript",
        "stop",
        "log",
    )
    for key in (
        *next(
            kind.model_fields
            for kind in (
                Config.model_fields[section].annotation,
                *getattr(Config.model_fields[section].annotation, "__args__", ()),
            )
            if hasattr(kind, "model_fields")
        ),
        "no_such_key",
    )
]
KEYS += ["algorithm.noise.scale", "algorithm.lr.schedule", "run.clip.bound", "task.name", "nothing"]
KEYS += ["", ".", "run..seed", "model.shape", "model.classes"]
KINDS = {
    "graph": [*TOPOLOGIES, "matrix"],
    "partition": ["iid", "quantity", "dirichlet", "classes", "missing", "explicit"],
    "model": list(MODELS),
    "algorithm": list(ALGORITHMS),
}
COMMANDS = [
    ["run"], ["run", "no.toml"], ["rnu", "base.toml"], ["run", "base.toml", "--otu", "x"],
    ["run", "folder"], ["run", "binary.toml"], ["run", LONG], ["run", "base.toml", "--out", LONG],
    ["run", "base.toml", "--out", "base.toml"], ["run", "base.toml", "--out", "base.toml/x"],
    ["run", "base.toml", "--data", "base.toml", "--set", "data.name=mnist"],
    ["compare", "base.toml"], ["compare", "base.toml", "--algorithms", "{junk}"],
    ["compare", "base.toml", "--algorithms", "dsgt", "--seeds", "{junk}"],
    ["compare", "base.toml", "--algorithms", "dsgt", "--jobs", "{junk}"],
    ["compare", "base.toml", "--algorithms", "dsgt+{junk}"],
    ["compare", "base.toml", "--algorithms", "dsgt", "--out", LONG],
    ["sweep", "base.toml"], ["sweep", "base.toml", "--over", "{junk}"],
    ["sweep", "base.toml", "--over", "algorithm.lr=log:{junk}:1", "--random", "2"],
    ["sweep", "base.toml", "--over", "run.rounds={junk},{junk}"],
    ["sweep", "base.toml", "--over", "algorithm.lr=0.1", "--metric", "{junk}"],
    ["sweep", "base.toml", "--over", "algorithm.lr=0.1", "--random", "{junk}"],
    ["audit"], ["audit", "{junk}"], ["audit", "base.toml", "--adversary", "{junk}", "--no-attacks"],
    ["audit", "base.toml", "--victim", "{junk}", "--no-attacks"],
    ["audit", "base.toml", "--victim", "77", "--no-attacks"],
    ["audit", "base.toml", "-n", "-{junk}"], ["audit", "base.toml", "-n", "100000", "--no-attacks"],
    ["audit", "base.toml", "--seconds", "-{junk}"], ["audit", "base.toml", "--restarts", "-{junk}"],
    ["audit", "base.toml", "--delta", "{junk}", "--no-attacks", "-n", "1"],
    ["audit", "base.toml", "--out", "base.toml", "--no-attacks"],
    ["audit", "base.toml", "--out", "base.toml/x", "--no-attacks"],
    ["audit", "base.toml", "--out", LONG, "--no-attacks"],
    ["audit", "base.toml", "--algorithms", "{junk}", "--no-attacks"],
    ["audit", "folder", "--set", "run.seed=1"],
    ["report", "{junk}"], ["report", "folder"], ["report", "base.toml"], ["report"],
    ["algorithms", "-p", "{junk}"], ["algorithms", "-p", "99999999999999999999"],
    ["data"], ["data", "show", "{junk}"], ["data", "fetch", "{junk}"], ["data", "{junk}"],
    ["privacy", "--epsilon", "{junk}"], ["privacy", "base.toml", "--{junk}"],
    ["bench", "{junk}"], ["node", "{junk}"], ["federation", "show", "{junk}"],
    ["federation", "create", "folder"], ["member", "{junk}"], ["relay", "{junk}"], ["{junk}"],
]  # fmt: skip


def mistake(draw):
    """The words of a command with a mistake, and the text of its configuration."""
    kind = draw.randrange(5)
    text, sets = BASE, []
    if kind == 0:
        pairs = [f"{draw.choice(KEYS)}={draw.choice(JUNK)}" for _ in range(draw.randint(1, 2))]
        sets = [word for pair in pairs for word in ("--set", pair)]
    elif kind == 1:
        # A damaged file: characters removed, doubled or replaced.
        for _ in range(draw.randint(1, 6)):
            place = draw.randrange(len(text))
            text = text[:place] + draw.choice(["", "[", '"', "=", "é", "\n", "0", "-"]) + text[
                place + draw.randint(0, 2) :
            ]  # fmt: skip
    elif kind == 2:
        lines = BASE.splitlines()
        place = draw.choice([n for n, line in enumerate(lines) if "=" in line])
        lines[place] = lines[place].partition("=")[0] + "= " + draw.choice(JUNK)
        text = "\n".join(lines)
    elif kind == 3:
        # An option of another kind, with a value that it cannot have.
        section = draw.choice(list(KINDS))
        name = draw.choice(KINDS[section])
        options = sorted(options_of_kind(section, name) or ()) or ["none"]
        pairs = [f"{section}.{SELECTORS[section]}={name}"]
        pairs += [f"{section}.{draw.choice(options)}={draw.choice(JUNK)}" for _ in range(2)]
        sets = [word for pair in pairs for word in ("--set", pair)]
    else:
        words = draw.choice(COMMANDS)
        return [word.replace("{junk}", draw.choice(JUNK)) for word in words], text
    return ["run", "base.toml", *sets, "--set", "run.rounds=1", "--out", "out"], text


@pytest.fixture
def files(tmp_path, config):
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.toml").write_bytes(bytes(range(256)))


def test_random_mistakes_end_with_a_message(tacit_here, files, tmp_path):
    refused = 0
    for number in range(CASES):
        words, text = mistake(random.Random(number))
        (tmp_path / "base.toml").write_text(text, encoding="utf-8")
        said = f"mistake {number}: tacit {words}\n{text}"
        try:
            answer = tacit_here(*words)
        except BaseException as problem:
            raise AssertionError(f"{said}\n{type(problem).__name__}: {problem}") from problem
        assert answer.code in (0, 1, 2), said
        assert "Traceback" not in answer.err, said
        if answer.code:
            refused += 1
            assert (answer.err + answer.out).strip(), said
        elif words[0] in ("run", "compare", "sweep", "audit"):
            # Some damage is harmless, such as a changed number.
            for path in ("out", "runs"):
                shutil.rmtree(tmp_path / path, ignore_errors=True)
    # Most of them are mistakes.
    assert refused > 0.75 * CASES
