"""Texts whose numbers come from stored results, so that none of them can be out of date.

A template is Markdown with places in double braces:

    {{lppa/table1: MNIST · LPPA}}                    mean ± deviation, in the artifact's form
    {{lppa/table1: MNIST · LPPA | paper}}            the paper's number
    {{findings/frontier: masks · lppa | leak .2f}}   another number of the cell, in another form
    {{lppa/table1: MNIST · DSGT minus MNIST · LPPA}} difference of means, paired by seed
    {{lppa/theorem2 claim: the pure ε is Δ/β}}       what we found about a claim
    {{lppa/table1 repeats}}                          seeds per cell
    {{defl-vp/settings cells}}                       how many cells are measured
    {{lppa/search-tables nearest: Rcv1, Table 1}}    the setting of a search nearest to the paper
    {{claims reproduced}}, {{claims partly lppa/table4}}   how many claims have a verdict
    {{claims all}}                                   how many there are
    {{causes open}}, {{causes false lppa/}}          how many are not reproduced for this cause
    {{table findings/who-computes-what: learns}}     all cells of two axes, with texts of this name
"""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.core.errors import Misuse, unknown_name
from tacit.core.storage import read_json, write_text
from tacit_papers.framework.contradictions import Cause
from tacit_papers.framework.results import mean_and_deviation

PLACE = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
WIDTH = 100
REMEDY = "Correct the template, or measure what it names."


@dataclass(frozen=True)
class StoredResults:
    """All result.json of a folder."""

    folder: Path

    @cached_property
    def artifacts(self) -> dict[str, dict[str, Any]]:
        stored = [read_json(path) for path in sorted(self.folder.glob("*/*/result.json"))]
        return {one["artifact"]: one for one in stored}

    def artifact(self, name: str) -> dict[str, Any]:
        if name not in self.artifacts:
            raise unknown_name(f"There are no results of {name!r}.", name, self.artifacts)
        return self.artifacts[name]

    def cell(self, name: str, labels: str) -> dict[str, Any]:
        """The cell whose key has these labels, joined by a dot in the middle."""
        cells = {" · ".join(cell["key"].values()): cell for cell in self.artifact(name)["cells"]}
        if labels not in cells:
            raise unknown_name(f"{name} has no cell {labels!r}.", labels, cells)
        found: dict[str, Any] = cells[labels]
        return found

    def claims(self, name: str = "") -> Iterator[dict[str, Any]]:
        """The claims of one artifact, of those whose names begin so, or of all."""
        for artifact in self.artifacts.values():
            if artifact["artifact"].startswith(name):
                yield from artifact["claims"]


def write_report(results: Path) -> Path:
    """Fill the template in the folder `report` beside a folder of results."""
    folder = results.resolve().parent / "report"
    try:
        template = (folder / "template.md").read_text("utf-8")
    except OSError as problem:
        raise Misuse(
            f"There is no template for a report beside {results}: {problem.strerror}.",
            "In a checkout: tacit reproduce report --out papers/results.",
        ) from None
    path = folder / "README.md"
    write_text(path, fill(template, StoredResults(results)))
    return path


def fill(template: str, results: StoredResults) -> str:
    """The text with a number in every place; raises Misuse if one cannot be filled."""
    return "\n\n".join(map(_wrapped, fill_places(template, results).split("\n\n")))


def fill_places(template: str, results: StoredResults, unknown: str | None = None) -> str:
    """The same with its lines as they are; `unknown` stands for results that do not exist."""

    def filled(place: re.Match[str]) -> str:
        text = " ".join(place[1].split())
        for pattern, value in FORMS:
            if found := pattern.fullmatch(text):
                try:
                    return value(results, **found.groupdict())
                except Misuse:
                    if unknown is None:
                        raise
                    return unknown
        raise Misuse(f"The template has {{{{{text}}}}}, which has no known form.", REMEDY)

    return PLACE.sub(filled, template)


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


def _number(results: StoredResults, name: str, cell: str, part: str | None) -> str:
    found = results.cell(name, cell)
    if part == "paper":
        if found["paper"] is None:
            raise Misuse(f"The paper has no number for {name}, {cell}.", REMEDY)
        return f"{found['paper']['mean']:g}"
    metric, form = _metric_and_form(results, name, part)
    return mean_and_deviation(list(_by_seed(found, metric).values()), form)


def _difference(results: StoredResults, name: str, one: str, other: str, part: str | None) -> str:
    metric, form = _metric_and_form(results, name, part)
    first, second = (_by_seed(results.cell(name, cell), metric) for cell in (one, other))
    paired = [first[seed] - second[seed] for seed in first if seed in second]
    if not paired:
        raise Misuse(f"{name}: {one} and {other} have no seed in common.", REMEDY)
    return f"{statistics.fmean(paired):+{form}}".replace("-", "−")


def _claim(results: StoredResults, name: str, claim: str) -> str:
    claims = {one["claim"]: one for one in results.artifact(name)["claims"]}
    if claim not in claims:
        raise unknown_name(f"{name} has no claim {claim!r}.", claim, claims)
    if claims[claim]["word"] == "not measured":
        raise Misuse(f"{name}: {claim!r} is not measured.", REMEDY)
    return str(claims[claim]["ours"])


def _nearest(results: StoredResults, name: str, label: str) -> str:
    """The setting whose numbers differ least from the paper's, of the cells with a first label.

    The last axis of a search has the numbers that a setting must give together.
    """
    stored = results.artifact(name)
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
    numbers = [
        f"{list(cell['key'].values())[-1]} {_mean(cell, stored['metric'])}, "
        f"paper {cell['paper']['mean']:g}"
        for cell in complete[best]
    ]
    return f"“{best}” ({'; '.join(numbers)})"


def _distance(cells: list[dict[str, Any]], metric: str) -> float:
    ours = [statistics.fmean(_by_seed(cell, metric).values()) for cell in cells]
    papers = [float(cell["paper"]["mean"]) for cell in cells]
    return sum(abs(one - paper) for one, paper in zip(ours, papers, strict=True))


def _mean(cell: dict[str, Any], metric: str) -> str:
    return mean_and_deviation(list(_by_seed(cell, metric).values()), ".2f")


def _repeats(results: StoredResults, name: str) -> str:
    counts = {len(cell["repeats"]) for cell in results.artifact(name)["cells"]}
    return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))


def _cells(results: StoredResults, name: str) -> str:
    return str(len(results.artifact(name)["cells"]))


def _count(results: StoredResults, verdict: str, name: str | None) -> str:
    return str(sum(verdict in ("all", one["word"]) for one in results.claims(name or "")))


def _count_cause(results: StoredResults, cause: str, name: str | None) -> str:
    if cause not in list(Cause):
        raise unknown_name(f"There is no cause {cause!r}.", cause, list(Cause))
    return str(sum(one.get("cause") == cause for one in results.claims(name or "")))


def _table(results: StoredResults, name: str, text: str) -> str:
    """A row per label on the first axis, a column per label on the second; "" where none is."""
    cells = {
        tuple(cell["key"].values()): str(cell["repeats"][0]["values"].get(text, ""))
        for cell in results.artifact(name)["cells"]
    }
    if not any(cells.values()):
        raise Misuse(f"{name} has no text {text!r}.", REMEDY)
    rows, columns = (list(dict.fromkeys(key[axis] for key in cells)) for axis in (0, 1))
    lines = [["", *columns], ["---"] * (1 + len(columns))]
    lines += [[row, *(cells.get((row, column), "") for column in columns)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _by_seed(cell: dict[str, Any], metric: str) -> dict[int, float]:
    values = {one["seed"]: one["values"] for one in cell["repeats"]}
    missing = [seed for seed, one in values.items() if not isinstance(one.get(metric), int | float)]
    if missing:
        names = " · ".join(cell["key"].values())
        raise Misuse(f"{names} has no number {metric!r} for seed {missing[0]}.", REMEDY)
    return {seed: float(one[metric]) for seed, one in values.items()}


def _metric_and_form(results: StoredResults, name: str, part: str | None) -> tuple[str, str]:
    """A metric and a format such as .2f or ,.0f; by default the artifact's, with two digits."""
    metric, form = results.artifact(name)["metric"], ".2f"
    for word in (part or "").split():
        if re.fullmatch(r",?\.\d[fge]", word):
            form = word
        else:
            metric = word
    return metric, form


ARTIFACT, PART = r"(?P<name>[\w-]+/[\w-]+)", r"(?: \| (?P<part>[^|]+))?"
FORMS: list[tuple[re.Pattern[str], Callable[..., str]]] = [
    (re.compile(r"claims (?P<verdict>[a-z ]+?)(?: (?P<name>[\w-]+/[\w-]*))?"), _count),
    (re.compile(r"causes (?P<cause>[a-z]+)(?: (?P<name>[\w-]+/[\w-]*))?"), _count_cause),
    (re.compile(rf"table {ARTIFACT}: (?P<text>\w+)"), _table),
    (re.compile(rf"{ARTIFACT} repeats"), _repeats),
    (re.compile(rf"{ARTIFACT} cells"), _cells),
    (re.compile(rf"{ARTIFACT} claim: (?P<claim>.+)"), _claim),
    (re.compile(rf"{ARTIFACT} nearest: (?P<label>.+)"), _nearest),
    (re.compile(rf"{ARTIFACT}: (?P<one>.+) minus (?P<other>.+?){PART}"), _difference),
    (re.compile(rf"{ARTIFACT}: (?P<cell>.+?){PART}"), _number),
]
