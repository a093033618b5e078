"""The answer of an audit to the question whether it is safe to take part."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tacit.core.notebooks import html_table

# From the worst to the best.
Level = Literal["no", "leaks", "unproven", "weak", "proven", "unknown"]


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer, what it rests on, and what it leaves open.

    Attributes:
        level: "no" if data or gradients leak exactly, "leaks" if parts of them do, "unproven"
            without a guarantee that means something, "weak" or "proven" with one, "unknown" if
            nothing was audited.
        verdict: A few words.
        reason: The finding that decided, in one sentence.
        learns: What each adversary gets, one sentence or two each.
        guarantee: What ε means, or why there is none.
        changes: What would change the answer; see `tacit.experiment.alternatives`.
        limits: What was examined and what was not.
    """

    level: Level
    verdict: str
    reason: str
    learns: list[str] = field(default_factory=list)
    guarantee: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        return f"Answer({self.level!r}, {self.verdict!r})"

    @property
    def _parts(self) -> dict[str, list[str]]:
        parts = {
            "What others can learn": self.learns,
            "The guarantee": self.guarantee,
            "What would change the answer": self.changes,
            "What was examined": self.limits,
        }
        return {title: sentences for title, sentences in parts.items() if sentences}

    def __str__(self) -> str:
        lines = [f"Is it safe to take part? {self.verdict}", self.reason]
        for title, sentences in self._parts.items():
            lines += [f"{title}:", *(f"  - {sentence}" for sentence in sentences)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The answer and what it rests on, for notebooks."""
        rows = [[title, " ".join(sentences)] for title, sentences in self._parts.items()]
        title = f"Is it safe to take part? {self.verdict}"
        return html_table(title, rows=[["Why", self.reason], *rows])
