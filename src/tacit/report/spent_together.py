"""What several runs on the same rows have spent of the rows' privacy together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.core.missing_numbers import finite_or_none
from tacit.core.templates import paragraphs
from tacit.privacy.accounting.many_runs import composed_epsilon
from tacit.privacy.guarantee import Unit
from tacit.report.finished_run import FinishedRun
from tacit.report.rendering import templates
from tacit.report.spending import PER_UNIT, Spending

# The keys that say which rows a run trains on. Others of [data] choose some of them.
SOURCES = ("data.name", "data.files", "data.file", "data.function")


@dataclass(frozen=True)
class SpentTogether:
    """What the runs on the same rows have spent.

    Attributes:
        runs: How many runs keep a guarantee.
        without_guarantee: How many do not, on the same rows.
        apart: How many keep one that does not compose with these, on the same rows.
        simulated: Of how many of `runs` samples and noise follow from the seed.
        unfinished: How many have not ended; what they have spent is not known.
        epsilon: ε of the runs with a guarantee, composed.
        delta: The smallest δ that one of them promised.
        unit: What is protected.
        assumptions: What the guarantees need.
    """

    runs: int
    without_guarantee: int
    apart: int
    simulated: int
    unfinished: int
    epsilon: float
    delta: float
    unit: Unit
    assumptions: tuple[str, ...]

    def sentences(self) -> list[str]:
        """What is spent, for which clients it holds, and what it leaves out."""
        template = templates().get_template("spent.txt.jinja")
        return paragraphs(template, "together", spent=self, per_unit=PER_UNIT[self.unit])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, None for an infinite ε."""
        plain = asdict(self) | {"epsilon": finite_or_none(self.epsilon)}
        return plain | {"assumptions": list(self.assumptions)}


def spent_together(runs: Sequence[FinishedRun]) -> list[SpentTogether]:
    """What runs spent that train on the same rows, composed; nothing if none has a guarantee.

    Clients of different partitions hold different rows: guarantees for all data of one client are
    composed for each partition by itself.
    """
    private: dict[tuple[str, str, Unit], list[tuple[FinishedRun, Spending]]] = {}
    promised: Counter[str] = Counter()
    for run in runs:
        spending = run.spending
        if spending is not None and spending.has_guarantee:
            unit = spending.budget.unit
            clients = _clients_rows(run) if unit == "client" else ""
            private.setdefault((_rows(run), clients, unit), []).append((run, spending))
            promised[_rows(run)] += 1
    spent = []
    for (rows, _, unit), members in private.items():
        same = [run for run in runs if _rows(run) == rows]
        unfinished = sum(not run.is_finished and "privacy.epsilon" in run.settings for run in same)
        delta = min(spending.budget.delta for _, spending in members)
        releases = [
            spending.budget.releases(spending.steps + spending.repeated) for _, spending in members
        ]
        spent.append(
            SpentTogether(
                runs=len(members),
                without_guarantee=len(same) - promised[rows] - unfinished,
                apart=promised[rows] - len(members),
                simulated=sum(spending.simulated for _, spending in members),
                unfinished=unfinished,
                epsilon=composed_epsilon(releases, delta),
                delta=delta,
                unit=unit,
                assumptions=tuple(dict.fromkeys(spending.assumption for _, spending in members)),
            )
        )
    return spent


def _rows(run: FinishedRun) -> str:
    """What identifies the rows that a run trains on."""
    return json.dumps([run.settings.get(key) for key in SOURCES], default=str)


def _clients_rows(run: FinishedRun) -> str:
    """What identifies which of them each client holds."""
    settings = run.settings
    if "data.name" not in settings:
        # A run that was made in Python: all runs of a grid have the same task.
        return ""
    if any(settings.get(f"data.{key}") for key in ("files", "client", "function")):
        return ""
    keys = [key for key in settings if key.startswith(("data.", "partition."))]
    chosen = {key: settings[key] for key in keys}
    chosen.setdefault("partition.seed", settings.get("run.seed"))
    return json.dumps([run.clients, chosen], sort_keys=True, default=str)
