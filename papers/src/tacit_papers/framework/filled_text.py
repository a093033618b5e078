"""Texts whose numbers come from stored results, so that none of them can be out of date.

They are Jinja2 templates, in which the methods of `StoredResults` are functions:

    {{ mean('lppa/table1', 'MNIST · LPPA') }}                 mean ± deviation of a cell
    {{ paper('lppa/table1', 'MNIST · LPPA') }}                the paper's number
    {{ mean('findings/frontier', 'masks · lppa', 'leak') }}   another number of the cell
    {{ claim('lppa/theorem2', 'the pure ε is Δ/β') }}         what we found about a claim
    {{ claims('partly', 'lppa/table4') }}                     how many claims have a verdict
"""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError

from tacit.core.errors import Misuse, unknown_name
from tacit.core.storage import read_json, write_text
from tacit_papers.framework.contradictions import Cause
from tacit_papers.framework.results import mean_and_deviation

FORM = ".2f"
WIDTH = 100
REMEDY = "Correct the template, or measure what it names."


@dataclass(frozen=True)
class StoredResults:
    """All result.json of a folder, and what templates can say of them."""

    folder: Path

    @cached_property
    def artifacts(self) -> dict[str, dict[str, Any]]:
        stored = [read_json(path) for path in sorted(self.folder.glob("*/*/result.json"))]
        return {one["artifact"]: one for one in stored}

    def artifact(self, name: str) -> dict[str, Any]:
        if name not in self.artifacts:
            raise unknown_name(f"There are no results of {name!r}.", name, self.artifacts)
        return self.artifacts[name]

    @property
    def functions(self) -> list[Callable[..., str]]:
        """What templates can call."""
        return [
            self.mean,
            self.paper,
            self.difference,
            self.claim,
            self.claims,
            self.causes,
            self.nearest,
            self.repeats,
            self.cells,
            self.table,
        ]

    def mean(self, name: str, labels: str, metric: str | None = None, form: str = FORM) -> str:
        """Mean ± deviation of the cell with these labels, by default of the artifact's metric."""
        return mean_and_deviation(list(self._values(name, labels, metric).values()), form)

    def paper(self, name: str, labels: str) -> str:
        """The paper's number."""
        found = self._cell(name, labels)["paper"]
        if found is None:
            raise Misuse(f"The paper has no number for {name}, {labels}.", REMEDY)
        return f"{found['mean']:g}"

    def difference(
        self, name: str, labels: str, less: str, metric: str | None = None, form: str = FORM
    ) -> str:
        """The mean difference of two cells, paired by seed."""
        first, second = (self._values(name, cell, metric) for cell in (labels, less))
        paired = [first[seed] - second[seed] for seed in first if seed in second]
        if not paired:
            raise Misuse(f"{name}: {labels} and {less} have no seed in common.", REMEDY)
        return f"{statistics.fmean(paired):+{form}}".replace("-", "−")

    def claim(self, name: str, text: str) -> str:
        """What we found about a claim."""
        claims = {one["claim"]: one for one in self.artifact(name)["claims"]}
        found = claims.get(text := _in_one_line(text))
        if found is None:
            raise unknown_name(f"{name} has no claim {text!r}.", text, claims)
        if found["word"] == "not measured":
            raise Misuse(f"{name}: {text!r} is not measured.", REMEDY)
        return str(found["ours"])

    def claims(self, verdict: str, name: str = "") -> str:
        """How many claims of artifacts whose names begin so have a verdict, or "all"."""
        return str(sum(verdict in ("all", one["word"]) for one in self._claims(name)))

    def causes(self, cause: str, name: str = "") -> str:
        """How many claims are not reproduced for this cause."""
        if cause not in list(Cause):
            raise unknown_name(f"There is no cause {cause!r}.", cause, list(Cause))
        return str(sum(one.get("cause") == cause for one in self._claims(name)))

    def nearest(self, name: str, label: str) -> str:
        """The setting whose numbers differ least from the paper's, of cells with a first label.

        The last axis of a search has the numbers that a setting must give together.
        """
        stored, label = self.artifact(name), _in_one_line(label)
        settings: dict[str, list[dict[str, Any]]] = {}
        for cell in stored["cells"]:
            first, *middle, _ = cell["key"].values()
            if first == label and cell["paper"] is not None:
                settings.setdefault(" · ".join(middle), []).append(cell)
        together = len({list(cell["key"].values())[-1] for cell in stored["cells"]})
        complete = {setting: cells for setting, cells in settings.items() if len(cells) == together}
        if not complete:
            raise Misuse(f"{name} has no complete setting of {label!r}.", REMEDY)
        best = min(complete, key=lambda setting: _distance(complete[setting], stored["metric"]))
        numbers = []
        for cell in complete[best]:
            ours = list(_by_seed(cell, stored["metric"]).values())
            numbers.append(
                f"{list(cell['key'].values())[-1]} {mean_and_deviation(ours, FORM)}, "
                f"paper {cell['paper']['mean']:g}"
            )
        return f"“{best}” ({'; '.join(numbers)})"

    def repeats(self, name: str) -> str:
        """How many seeds cells have."""
        counts = {len(cell["repeats"]) for cell in self.artifact(name)["cells"]}
        return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))

    def cells(self, name: str) -> str:
        """How many cells are measured."""
        return str(len(self.artifact(name)["cells"]))

    def table(self, name: str, text: str) -> str:
        """A row per label on the first axis and a column per label on the second, with texts."""
        cells = {
            tuple(cell["key"].values()): str(cell["repeats"][0]["values"].get(text, ""))
            for cell in self.artifact(name)["cells"]
        }
        if not any(cells.values()):
            raise Misuse(f"{name} has no text {text!r}.", REMEDY)
        rows, columns = (list(dict.fromkeys(key[axis] for key in cells)) for axis in (0, 1))
        template = templates().get_template("table.md.jinja")
        return template.render(rows=rows, columns=columns, cells=cells)

    def _cell(self, name: str, labels: str) -> dict[str, Any]:
        """The cell whose key has these labels, joined by a dot in the middle."""
        cells = {" · ".join(cell["key"].values()): cell for cell in self.artifact(name)["cells"]}
        if (labels := _in_one_line(labels)) not in cells:
            raise unknown_name(f"{name} has no cell {labels!r}.", labels, cells)
        found: dict[str, Any] = cells[labels]
        return found

    def _values(self, name: str, labels: str, metric: str | None) -> dict[int, float]:
        return _by_seed(self._cell(name, labels), metric or self.artifact(name)["metric"])

    def _claims(self, name: str) -> Iterator[dict[str, Any]]:
        """The claims of one artifact, of those whose names begin so, or of all."""
        for artifact in self.artifacts.values():
            if artifact["artifact"].startswith(name):
                yield from artifact["claims"]


@cache
def templates() -> Environment:
    """The templates of pages in Markdown."""
    return Environment(
        loader=PackageLoader("tacit_papers"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def write_report(results: Path) -> Path:
    """Fill the template in the folder `report` beside a folder of results."""
    folder = results.resolve().parent / "report"
    try:
        template = (folder / "README.md.jinja").read_text("utf-8")
    except OSError as problem:
        raise Misuse(
            f"There is no template for a report beside {results}: {problem.strerror}.",
            "In a checkout: tacit reproduce report --out papers/results.",
        ) from None
    path = folder / "README.md"
    write_text(path, fill(template, StoredResults(results)))
    return path


def fill(template: str, results: StoredResults) -> str:
    """The text with its numbers, in lines of equal length; raises Misuse if it lacks one."""
    return "\n\n".join(map(_wrapped, fill_places(template, results).split("\n\n")))


def fill_places(template: str, results: StoredResults, unknown: str | None = None) -> str:
    """The same with its lines as they are; `unknown` stands for results that do not exist."""

    def forgiving(function: Callable[..., str]) -> Callable[..., str]:
        def call(*arguments: str, **options: str) -> str:
            try:
                return function(*arguments, **options)
            except Misuse:
                if unknown is None:
                    raise
                return unknown

        return call

    functions = {function.__name__: forgiving(function) for function in results.functions}
    try:
        return templates().from_string(template).render(functions)
    except (TemplateError, TypeError) as problem:
        raise Misuse(f"The template cannot be filled: {problem}.", REMEDY) from None


def _in_one_line(text: str) -> str:
    """A label that the template breaks into lines."""
    return " ".join(text.split())


def _wrapped(block: str) -> str:
    """A paragraph or list in lines of equal length; tables, headings and pictures as they are."""
    if block.startswith(("|", "#", "!")):
        return block
    parts = re.split(r"\n(?=- )", block.strip("\n"))
    lines = [
        textwrap.fill(
            " ".join(part.split()),
            WIDTH,
            subsequent_indent="  " if part.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in parts
    ]
    return "\n".join(lines) + ("\n" if block.endswith("\n") else "")


def _distance(cells: list[dict[str, Any]], metric: str) -> float:
    ours = [statistics.fmean(_by_seed(cell, metric).values()) for cell in cells]
    papers = [float(cell["paper"]["mean"]) for cell in cells]
    return sum(abs(one - paper) for one, paper in zip(ours, papers, strict=True))


def _mean(cell: dict[str, Any], metric: str) -> str:
    return mean_and_deviation(list(_by_seed(cell, metric).values()), ".2f")


def _by_seed(cell: dict[str, Any], metric: str) -> dict[int, float]:
    values = {one["seed"]: one["values"] for one in cell["repeats"]}
    missing = [seed for seed, one in values.items() if not isinstance(one.get(metric), int | float)]
    if missing:
        names = " · ".join(cell["key"].values())
        raise Misuse(f"{names} has no number {metric!r} for seed {missing[0]}.", REMEDY)
    return {seed: float(one[metric]) for seed, one in values.items()}
