"""What messages and pages tell users to install: our distribution, with our constraints."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = "tacit-learn"
SUFFIXES = {".cff", ".md", ".py", ".pyi", ".toml", ".yml", ""}
COMMAND = re.compile(r"pip install ([^`#\n]+)")
# "tacit" by itself or with an extra, as pip would read it.
OTHER_PACKAGE = re.compile(r"(?<![\w./-])tacit(?=\[|['\"]?(?:[\s=<>~!]|$))")


def project(folder):
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def tracked_texts():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines()
    if not names:
        pytest.skip("not a checkout")
    own = Path(__file__).relative_to(ROOT).as_posix()
    for name in names:
        if Path(name).suffix in SUFFIXES and name != own and (ROOT / name).is_file():
            yield name, (ROOT / name).read_text(encoding="utf-8")


def install_commands():
    """The arguments of every `pip install` in the repository, with the file."""
    for name, text in tracked_texts():
        for found in COMMAND.finditer(text):
            yield name, found[1].strip()


def words_of(arguments):
    try:
        return shlex.split(arguments)
    except ValueError:  # a quote that belongs to the text around it
        return arguments.replace("'", "").replace('"', "").split()


def test_all_projects_depend_on_our_distribution():
    core = project(".")
    assert core["name"] == NAME
    assert core["scripts"].keys() == {"tacit"}
    extras = [one for one in core["optional-dependencies"]["dev"] if one.startswith(NAME)]
    assert [one.startswith(f"{NAME}[") and "peer" in one for one in extras] == [True]
    for folder in ("papers", "examples/plugin"):
        assert NAME in project(folder)["dependencies"]


def test_no_text_tells_users_to_install_another_package():
    commands = list(install_commands())
    assert commands
    assert [(name, words) for name, words in commands if OTHER_PACKAGE.search(words)] == []
    assert [name for name, text in tracked_texts() if re.search(r"\btacit\[(peer|dev)", text)] == []


def test_installing_from_the_repository_never_skips_the_constraints():
    from_here = [
        (name, words)
        for name, words in ((name, words_of(arguments)) for name, arguments in install_commands())
        if any(word.startswith((".", "papers", "examples/")) for word in words)
    ]
    assert len(from_here) > 5
    for name, words in from_here:
        assert "constraints.txt" in words, name


def test_the_rule_finds_the_other_package():
    for bad in ("tacit", "'tacit[peer]'", "--upgrade tacit", "tacit==1.0"):
        assert OTHER_PACKAGE.search(bad)
    for good in ("'tacit-learn[peer]'", "src/tacit", "tacit_papers", "tacit.toml"):
        assert not OTHER_PACKAGE.search(good)
