"""What a node counts, and how it looks to Prometheus (text exposition format 0.0.4)."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SETS = 1_000  # label sets of one name; what comes later is counted together
OTHER = "other"
LENGTH = 200  # characters of a label's value


@dataclass(frozen=True)
class MetricDescription:
    """What a name means: counters only grow, gauges go both ways; `label` tells its series apart."""

    kind: Literal["counter", "gauge"]
    help: str
    label: str | None = None


DESCRIPTIONS: Mapping[str, MetricDescription] = {
    "tacit_epoch": MetricDescription("gauge", "Number of the roster that the node goes by."),
    "tacit_step": MetricDescription("gauge", "Iterations done."),
    "tacit_steps": MetricDescription("gauge", "Iterations of the whole run."),
    "tacit_round": MetricDescription("gauge", "Rounds done."),
    "tacit_loss": MetricDescription("gauge", "Loss of the node's model when it was last judged."),
    "tacit_accuracy_percent": MetricDescription(
        "gauge", "Accuracy of the node's model when it was last judged."
    ),
    "tacit_sent_bytes_total": MetricDescription("counter", "Bytes of letters sent.", "neighbour"),
    "tacit_received_bytes_total": MetricDescription(
        "counter", "Bytes of letters received.", "neighbour"
    ),
    "tacit_letters_sent_total": MetricDescription("counter", "Letters sent.", "neighbour"),
    "tacit_letters_received_total": MetricDescription("counter", "Letters received.", "neighbour"),
    "tacit_rejected_total": MetricDescription("counter", "Messages and callers refused.", "reason"),
    "tacit_retries_total": MetricDescription(
        "counter", "Calls made again after a failure.", "neighbour"
    ),
    "tacit_wait_seconds_total": MetricDescription(
        "counter", "Time spent waiting for a neighbour's letter.", "neighbour"
    ),
    "tacit_step_seconds_total": MetricDescription(
        "counter", "Time spent on iterations, waiting included."
    ),
    "tacit_checkpoints_total": MetricDescription("counter", "Checkpoints written."),
    "tacit_checkpoint_failures_total": MetricDescription(
        "counter", "Checkpoints that could not be written."
    ),
    "tacit_checkpoint_step": MetricDescription("gauge", "Iterations in the newest checkpoint."),
    "tacit_outbox_bytes": MetricDescription("gauge", "Bytes of letters kept for neighbours."),
    "tacit_outbox_letters": MetricDescription("gauge", "Letters kept for neighbours."),
    "tacit_neighbour_up": MetricDescription(
        "gauge", "1 while a neighbour answers, else 0.", "neighbour"
    ),
    "tacit_certificate_expiry_seconds": MetricDescription(
        "gauge", "Unix time at which the certificate ends."
    ),
    "tacit_start_seconds": MetricDescription("gauge", "Unix time at which the node started."),
}


class Metrics:
    """Counters and gauges of one node, safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # name → value of its label ("" where it has none) → number
        self._numbers: dict[str, dict[str, float]] = {name: {} for name in DESCRIPTIONS}
        for name, described in DESCRIPTIONS.items():
            if described.kind == "counter" and described.label is None:
                self._numbers[name][""] = (
                    0  # there from the start, so that the first growth is seen
                )

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a number; a counter never goes down."""
        if not amount >= 0 and DESCRIPTIONS[name].kind == "counter":
            raise ValueError(f"{name} is a counter: it cannot grow by {amount}.")
        key = _key(name, labels)
        with self._lock:
            series = self._numbers[name]
            key = _bounded(series, key)
            series[key] = series.get(key, 0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a number to a value."""
        key = _key(name, labels)
        with self._lock:
            series = self._numbers[name]
            series[_bounded(series, key)] = value

    def value(self, name: str, **labels: str) -> float:
        """One number; 0 if nothing was ever said of it."""
        key = _key(name, labels)
        with self._lock:
            return float(self._numbers[name].get(key, 0))

    def total(self, name: str) -> float:
        """The sum over all labels."""
        with self._lock:
            return float(sum(self._numbers[name].values()))

    def text(self) -> str:
        """All numbers as Prometheus reads them."""
        with self._lock:
            taken = {name: dict(series) for name, series in self._numbers.items() if series}
        lines = []
        for name, series in taken.items():
            described = DESCRIPTIONS[name]
            lines += [f"# HELP {name} {described.help}", f"# TYPE {name} {described.kind}"]
            for key in sorted(series):
                label = (
                    "" if described.label is None else f'{{{described.label}="{_escaped(key)}"}}'
                )
                lines.append(f"{name}{label} {_number(series[key])}")
        return "\n".join(lines) + "\n"


def _key(name: str, labels: dict[str, str]) -> str:
    """The value of a name's label; other labels than its own are a mistake in the program."""
    label = DESCRIPTIONS[name].label
    if set(labels) != ({label} if label else set()):
        raise KeyError(f"{name} has {label or 'no label'}, not {', '.join(labels) or 'none'}")
    # What peers are called came from outside: no half characters, no books.
    return str(labels[label])[:LENGTH].encode("utf-8", "replace").decode() if label else ""


def _bounded(series: dict[str, float], key: str) -> str:
    return key if key in series or len(series) < SETS - 1 else OTHER


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(float(value))
