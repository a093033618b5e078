"""The fenced code blocks of a page, and what runs them.

| fence | what happens |
| --- | --- |
| `python`, `bash` | it runs, in order, in one namespace and one folder per page |
| any language with `title="name.ext"` | it is written to a file of that name |
| `python`, `bash` with `title="takes minutes"` | it runs in the slow suite only, see SHORTER |
| `python`, `bash` with `title` in NOT_RUN | it is shown to readers and does not run |
| `text` with `title="output"` | it is compared with what the block before it printed |
| other languages | nothing |

Any other title of a `python` or `bash` block is an error, so that none is skipped by accident.
A `bash` block of nothing but `tacit` commands runs in this process, without importing torch again.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tacit.cli import main

ROOT = Path(__file__).parents[2]
EXECUTABLE = ("python", "bash")
LONG = "takes minutes"
# Titles of blocks that cannot run here. They are shown above the block.
NOT_RUN = {
    "install",  # changes the environment of the tests
    "needs a GPU",
    "needs a cluster",
    "needs a quiet machine",
    "needs datasets",  # of hundreds of megabytes
    "on each machine",
    "on the operator's machine",
    "as root",
    "needs Docker",
    "outline",  # not a whole program
}
# Options of blocks that take minutes, and smaller ones that the tests use.
SHORTER = {
    r"--seconds \d+": "--seconds 1",
    r"--seeds \d+": "--seeds 2",
    r"malicious\(1\)": "malicious(1):imprint",  # one behaviour of five
}
RUN_ELSEWHERE = [["tacit", "demo"]]  # tests/system/test_distribution.py
COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)
# Characters that a shell interprets; and a command that replaces handlers of signals.
NEEDS_SHELL = re.compile(r"[|&;<>$`*?]|^tacit federation up ", re.MULTILINE)
FILE_NAME = re.compile(r"[\w./-]+\.\w+")
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)(?P<info>[^`\n]*)$")
SLOW = re.compile(
    r" \(stopped by the time budget\)| (?:One attack was|\d+ attacks were) stopped by the time "
    r"budget\. A larger --seconds may find more\."
)
NUMBER = re.compile(r"(?<![\w.])[−+-]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
TERMINAL = {"COLUMNS": "100", "TERM": "dumb"}
# How far a number in an `output` block may be from the printed one, relative to the larger.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Block:
    """A fenced code block of a page."""

    page: Path
    line: int
    language: str
    title: str
    text: str

    @property
    def place(self) -> str:
        inside = self.page.is_relative_to(ROOT)
        return f"{self.page.relative_to(ROOT) if inside else self.page.name}:{self.line}"

    @property
    def is_file(self) -> bool:
        return bool(FILE_NAME.fullmatch(self.title))

    @property
    def runs(self) -> bool:
        return self.language in EXECUTABLE and self.title in ("", LONG)

    @property
    def is_long(self) -> bool:
        return self.runs and self.title == LONG

    def check(self) -> None:
        known = self.is_file or self.title in ("", LONG) or self.title in NOT_RUN
        if self.language in EXECUTABLE and not known:
            raise AssertionError(f"{self.place}: {self.title!r} is not a title that tests know")


def pages() -> list[Path]:
    """All pages of the documentation."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def code_blocks(page: Path) -> list[Block]:
    blocks = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        number += 1
        if fence is None:
            continue
        begin, indent = number, fence["indent"]
        while lines[number].rstrip() != f"{indent}```":
            number += 1
        title = re.search(r'title="([^"]*)"', fence["info"])
        text = "\n".join(line.removeprefix(indent) for line in lines[begin:number]) + "\n"
        blocks.append(Block(page, begin, fence["language"], title[1] if title else "", text))
        number += 1
    return blocks


class PageRunner:
    """Runs the blocks of one page in a folder; `examples` of the repository is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namespace: dict[str, object] = {"__name__": "__main__"}
        self.printed = ""
        (folder / "examples").symlink_to(ROOT / "examples")

    def run(self, block: Block) -> None:
        block.check()
        if block.is_file:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "text" and block.title.startswith("output"):
            compare_output(block, self.printed)
        elif block.runs:
            if block.language == "python":
                self.printed = self._python(block)
            elif (commands := tacit_commands(block)) is not None:
                self.printed = self._tacit(block, commands)
            else:
                self.printed = self._bash(block)

    def _python(self, block: Block) -> str:
        out = io.StringIO()
        source = "\n" * block.line + block.text  # so that tracebacks name lines of the page
        code = compile(source, str(block.page), "exec")
        with contextlib.redirect_stdout(out):
            exec(code, self.namespace)
        return out.getvalue()

    def _tacit(self, block: Block, commands: list[list[str]]) -> str:
        out, errors = io.StringIO(), io.StringIO()
        for arguments in commands:
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(errors),
                mock.patch.dict(os.environ, TERMINAL),
                mock.patch.object(sys, "argv", arguments),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("default")
                code = exit_code()
            printed, problem = out.getvalue(), errors.getvalue()
            assert not code, f"{block.place}\n{printed[-2000:]}\n{problem[-4000:]}"
        return out.getvalue()

    def _bash(self, block: Block) -> str:
        programs = Path(sys.executable).parent
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | TERMINAL | {"PATH": path}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", shortened(block)],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, f"{block.place}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout


def exit_code() -> object:
    """What `tacit` ends with, for the arguments in sys.argv."""
    try:
        main()
    except SystemExit as end:
        return end.code
    return 0


def shortened(block: Block) -> str:
    """The text of a block; if it takes minutes, with less to do."""
    text = block.text
    for option, shorter in SHORTER.items() if block.is_long else ():
        text = re.sub(option, shorter, text)
    return text


def tacit_commands(block: Block) -> list[list[str]] | None:
    """The arguments of each command of a block, if all are `tacit` and need no shell."""
    text = COMMENT.sub("", shortened(block)).replace("\\\n", " ")
    commands = [words for line in text.splitlines() if (words := shlex.split(line))]
    if NEEDS_SHELL.search(text) or any(words[0] != "tacit" for words in commands):
        return None
    return [words for words in commands if words not in RUN_ELSEWHERE]


def compare_output(block: Block, printed: str) -> None:
    """Compare words exactly and numbers roughly; a line `…` stands for any lines."""
    # On a slow machine attacks may end before they are done.
    shown, found = _words(block.text), SLOW.sub("", _words(printed))
    parts = [part.strip() for part in re.split(r"(?:^|(?<= ))…(?: |$)", shown)]
    numbers = "vary" not in block.title
    position = 0
    for number, part in enumerate(parts):
        pattern = _pattern(part)
        match = re.compile(pattern).search(found, position)
        assert match, f"{block.place} shows\n  {part}\nbut the block before it printed\n  {found}"
        if number == 0 and len(parts) == 1:
            assert match.span() == (0, len(found)), f"{block.place}: the output is\n{printed}"
        position = match.end()
        if numbers:
            for ours, theirs in zip(NUMBER.findall(part), match.groups(), strict=True):
                assert _close(ours, theirs), f"{block.place} shows {ours}, printed is {theirs}"


def _words(text: str) -> str:
    """The text on one line, without the frames of tables."""
    return " ".join(re.sub(r"[━─┃│┏┓┗┛┡┩└┘┌┐├┤┬┴┼┳┻╇╈╉╋┯┷╭╮╰╯]+", " ", text).split())


def _pattern(text: str) -> str:
    between = map(re.escape, NUMBER.split(text))
    return f"({NUMBER.pattern})".join(between)


def _close(ours: str, theirs: str) -> bool:
    one, other = (float(text.replace(",", "").replace("−", "-")) for text in (ours, theirs))
    return abs(one - other) <= TOLERANCE * max(abs(one), abs(other))
