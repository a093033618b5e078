"""What users could name in the last release is there, or the changelog says that it is gone."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from inventory import inventory  # noqa: E402

# What has another name now; its attributes must still be there.
RENAMED = {"name tacit.Task.": "name tacit.Objective."}
BEFORE = Path(__file__).with_name("inventory-0.1.txt")


def unreleased(changelog):
    """The first section of the changelog."""
    return changelog.split("\n## ")[1]


def unexplained(before, now, changelog):
    """Lines of `before` that are gone without being named, in backticks, in the changelog."""
    quoted = re.findall(r"`([^`]+)`", unreleased(changelog))
    words = {word for text in quoted for word in re.findall(r"tacit(?: [\w-]+)+|[\w.-]+", text)}
    words |= {word for text in quoted for word in re.findall(r"[\w.-]+", text)}
    gone = [line for line in before if line not in now and _renamed(line) not in now]
    return [line for line in gone if not _named(line, words)]


def _renamed(line):
    for old, new in RENAMED.items():
        line = line.replace(old, new)
    return line


def _named(line, words):
    """Whether the changelog names it; an option or a choice may go with what it belongs to."""
    kind, _, thing = line.partition(" ")
    path = re.findall(r"[\w.-]+", thing)
    if kind == "option":
        return path[-1] in words or f"tacit {' '.join(path[1:-1])}" in words
    if kind == "command":
        return thing in words
    if kind == "name":
        return thing in words or thing.removeprefix("tacit.") in words
    return path[-1] in words or (len(path) > 2 and path[1] in words)


def test_what_is_gone_since_the_last_release_is_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert unexplained(BEFORE.read_text("utf-8").splitlines(), inventory(), changelog) == []


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("option tacit run --fast", "- `tacit run --fast` is gone."),
        ("command tacit compare", "- `tacit compare` is `tacit grid`."),
        ("name tacit.Task.from_module", "- `Task.from_module` is `tacit.Task(…)`."),
        ("key run.rounds", "- `run.rounds` is `run.epochs`."),
        ("choice algorithm.name = private-sgd, clip", "- `clip` of `private-sgd` is in `Privacy`."),
    ],
)
def test_something_gone_must_be_named(line, text):
    log = "# Changelog\n\n## 0.2.0\n\n{}\n\n## 0.1.0\n\n- `x`\n"
    assert unexplained([line], [], log.format("- Something else.")) == [line]
    assert unexplained([line], [], log.format(text)) == []
