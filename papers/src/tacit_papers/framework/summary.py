"""results/README.md: every claim with the paper's number, ours, and the verdict."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tacit.core.storage import write_text
from tacit_papers.framework.contradictions import Cause
from tacit_papers.framework.filled_text import StoredResults, fill_places, templates

MARKS = {"reproduced": "✓", "partly": "◐", "not reproduced": "✗", "not measured": "–"}


def write_summary(out: Path) -> Path:
    """Write the page about all artifacts in a folder."""
    stored = StoredResults(out)
    results, path = list(stored.artifacts.values()), out / "README.md"
    page = templates().get_template("results.md.jinja")
    text = page.render(
        results=[
            one | {"arguments": _arguments(one, stored), "repeats": _repeats(one)}
            for one in results
        ],
        causes=list(Cause),
        papers=_papers(results),
        counts=_causes(results),
        marks=MARKS,
    )
    write_text(path, text.rstrip() + "\n")
    return path


def _repeats(stored: dict[str, Any]) -> str:
    repeats = {len(cell["repeats"]) for cell in stored["cells"]}
    return "–".join(map(str, sorted({min(repeats), max(repeats)})))


def _causes(results: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Claims that are not reproduced, by cause and paper."""
    return Counter(
        (claim["cause"], stored["artifact"].split("/")[0])
        for stored in results
        for claim in stored["claims"]
        if claim.get("cause")
    )


def _papers(results: list[dict[str, Any]]) -> list[str]:
    return sorted({paper for _, paper in _causes(results)})


def _arguments(
    stored: dict[str, Any], results: StoredResults
) -> list[tuple[list[str], Cause, str]]:
    """Why claims are not reproduced, once for all claims with the same argument."""
    explained: dict[tuple[str, str], list[str]] = {}
    for claim in stored["claims"]:
        if claim.get("cause"):
            explained.setdefault((claim["cause"], claim["argument"]), []).append(claim["claim"])
    # Arguments have numbers of other artifacts, which a folder may lack.
    return [
        (claims, Cause(cause), fill_places(argument, results, unknown="(not measured)"))
        for (cause, argument), claims in explained.items()
    ]
