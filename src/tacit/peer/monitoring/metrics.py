"""Counters and gauges of a node in the text format of Prometheus (exposition format 0.0.4)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

MAX_SERIES = 1_000  # per metric; further label values are counted together under OTHER
OTHER = "other"
MAX_CHARACTERS = 200  # of a label value


@dataclass(frozen=True)
class MetricDescription:
    """Type, help text and label of a metric. Counters only grow; gauges go both ways."""

    kind: Literal["counter", "gauge"]
    help: str
    label: str | None = None


_gauge = partial(MetricDescription, "gauge")
_counter = partial(MetricDescription, "counter")
DESCRIPTIONS: Mapping[str, MetricDescription] = {
    "tacit_generation": _gauge("Generation of the roster that the node uses."),
    "tacit_suspended_members": _gauge("Members that the others go on without."),
    "tacit_step": _gauge("Iterations done."),
    "tacit_steps": _gauge("Iterations of the whole run."),
    "tacit_round": _gauge("Rounds done."),
    "tacit_loss": _gauge("Loss of the node's model at its last evaluation."),
    "tacit_accuracy_percent": _gauge("Accuracy of the node's model at its last evaluation."),
    "tacit_baseline_percent": _gauge("Accuracy of always predicting the most frequent class."),
    "tacit_privacy_epsilon_spent": _gauge("ε spent, if a guarantee was promised."),
    "tacit_privacy_epsilon": _gauge("ε promised for the whole run."),
    "tacit_privacy_delta": _gauge("δ promised for the whole run."),
    "tacit_privacy_sums": _gauge("Iterations paid from the budget, under all rosters."),
    "tacit_repeated_iterations_total": _counter(
        "Iterations that were repeated after a change of the roster."
    ),
    "tacit_sent_bytes_total": _counter("Bytes of messages sent.", "neighbour"),
    "tacit_received_bytes_total": _counter("Bytes of messages received.", "neighbour"),
    "tacit_messages_sent_total": _counter("Messages sent.", "neighbour"),
    "tacit_messages_received_total": _counter("Messages received.", "neighbour"),
    "tacit_equivocations_total": _counter(
        "Members that are proved to have sent different messages under one address.", "member"
    ),
    "tacit_rejected_total": _counter("Rejected messages and callers.", "reason"),
    "tacit_retries_total": _counter("Calls repeated after a failure.", "neighbour"),
    "tacit_wait_seconds_total": _counter("Time spent waiting for messages.", "neighbour"),
    "tacit_step_seconds_total": _counter("Time spent on iterations, including waiting."),
    "tacit_checkpoints_total": _counter("Checkpoints written."),
    "tacit_checkpoint_failures_total": _counter("Checkpoints that could not be written."),
    "tacit_checkpoint_step": _gauge("Iterations in the newest checkpoint."),
    "tacit_outbox_bytes": _gauge("Bytes of messages kept for neighbours."),
    "tacit_outbox_messages": _gauge("Messages kept for neighbours."),
    "tacit_transcript_bytes": _gauge("Bytes of the transcript, if one is kept."),
    "tacit_neighbour_up": _gauge("1 while a neighbour responds, otherwise 0.", "neighbour"),
    "tacit_connections": _gauge("Open connections from callers."),
    "tacit_connections_pending": _gauge("Connections without an accepted call yet."),
    "tacit_connections_refused_total": _counter(
        "Connections that ended before a call was accepted.", "reason"
    ),
    "tacit_relay_waiting": _gauge("Connections of members that wait at this relay."),
    "tacit_relay_tunnels": _gauge("Connections between members through this relay."),
    "tacit_relay_forwarded_bytes_total": _counter("Bytes forwarded by this relay.", "caller"),
    "tacit_relay_refused_total": _counter("Requests that this relay refused.", "reason"),
    "tacit_certificate_expiry_seconds": _gauge("Unix time at which the certificate expires."),
    "tacit_start_seconds": _gauge("Unix time at which the node started."),
}
# Computed from the node's data.
SCORES = ("tacit_loss", "tacit_accuracy_percent", "tacit_baseline_percent")


class Metrics:
    """The metrics of one node, safe to use from many threads.

    A metric that has a label takes it as a keyword argument, as in
    `metrics.count("tacit_retries_total", neighbour="berlin")`. An unknown metric or label raises
    KeyError.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # metric → label value ("" for a metric without label) → number
        self._series: dict[str, dict[str, float]] = {name: {} for name in DESCRIPTIONS}
        self._functions: dict[str, Callable[[], float]] = {}
        for name, description in DESCRIPTIONS.items():
            # Present from the start, so that Prometheus sees the first increase.
            if description.kind == "counter" and description.label is None:
                self._series[name][""] = 0

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a metric."""
        if not amount >= 0 and DESCRIPTIONS[name].kind == "counter":
            raise ValueError(f"{name} is a counter: it cannot grow by {amount}.")
        key = _label_value(name, labels)
        with self._lock:
            series = self._series[name]
            key = _bounded(series, key)
            series[key] = series.get(key, 0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        key = _label_value(name, labels)
        with self._lock:
            series = self._series[name]
            series[_bounded(series, key)] = value

    def set_function(self, name: str, compute: Callable[[], float]) -> None:
        """Compute a metric without label whenever all metrics are read."""
        _label_value(name, {})
        self._functions = {**self._functions, name: compute}

    def value(self, name: str, **labels: str) -> float:
        """One number; 0 if it was never set."""
        key = _label_value(name, labels)
        with self._lock:
            return float(self._series[name].get(key, 0))

    def total(self, name: str) -> float:
        """The sum over all label values."""
        with self._lock:
            return float(sum(self._series[name].values()))

    def text(self, *, scores: bool = True) -> str:
        """All metrics in the text format of Prometheus; loss and accuracy only with `scores`."""
        for name, compute in self._functions.items():
            self.set(name, compute())
        with self._lock:
            copies = {name: dict(series) for name, series in self._series.items() if series}
        if not scores:
            copies = {name: series for name, series in copies.items() if name not in SCORES}
        lines = []
        for name, series in copies.items():
            description = DESCRIPTIONS[name]
            lines += [f"# HELP {name} {description.help}", f"# TYPE {name} {description.kind}"]
            for key, value in sorted(series.items()):
                label = f'{{{description.label}="{_escape(key)}"}}' if description.label else ""
                lines.append(f"{name}{label} {_format(value)}")
        return "\n".join(lines) + "\n"


def _label_value(name: str, labels: dict[str, str]) -> str:
    label = DESCRIPTIONS[name].label
    if set(labels) != ({label} if label else set()):
        raise KeyError(f"{name} has {label or 'no label'}, not {', '.join(labels) or 'none'}")
    # Names come from peers: bound their length and replace lone surrogates.
    return str(labels[label])[:MAX_CHARACTERS].encode("utf-8", "replace").decode() if label else ""


def _bounded(series: dict[str, float], key: str) -> str:
    return key if key in series or len(series) < MAX_SERIES - 1 else OTHER


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _format(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(float(value))
