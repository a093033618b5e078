"""How the nodes of a federation are: the table of `tacit federation status` and `up`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tacit.peer.federation.client import NodeReport

STYLES = {"training": "green", "finished": "bold green", "waiting": "yellow", "saving": "bold red"}


def status_table(title: str, answers: Sequence[NodeReport], ended: Sequence[str] = ()) -> Group:
    """A row per node, and below what there is to say of some; those in `ended` have done all that was asked."""
    furthest = max(
        (answer.status.step for answer in answers if answer.status is not None), default=0
    )
    table = Table(title=title, title_justify="left")
    for name in ("node", "state"):
        table.add_column(name)
    for name in ("round", "iteration", "lag", "loss", "accuracy", "sent"):
        table.add_column(name, justify="right")
    generation = max((answer.status.generation for answer in answers if answer.status is not None), default=0)
    remarks = []
    for answer in answers:
        name = answer.member.name
        if answer.status is not None:
            table.add_row(name, *_cells(answer.status, furthest))
            remarks += [f"{name} {remark}" for remark in _remarks(answer.status, generation)]
        elif name in ended:
            table.add_row(name, Text("ended", style="bold green"))
        else:
            table.add_row(name, Text("not reached", style="red"))
            remarks.append(
                f"{name} does not answer ({answer.problem}): it has ended, or does not run"
            )
    return Group(table, *(Text(remark) for remark in remarks))


def _cells(status: Any, furthest: int) -> list[str | Text]:
    """One node."""
    lag = furthest - status.step
    return [
        Text(status.phase, style=STYLES.get(status.phase, "")),
        f"{status.step // max(1, status.round_length)}",
        f"{status.step}/{status.steps}",
        f"{lag}" if lag else "",
        f"{status.loss:.4f}" if status.HasField("loss") else "",
        f"{status.accuracy:.2f} %" if status.HasField("accuracy") else "",
        _size(status.bytes_sent),
    ]


def _remarks(status: Any, generation: int) -> list[str]:
    """What keeps a node, and what it has refused."""
    said = [f"cannot go on: {status.problem}"] if status.problem else []
    if status.generation < generation:
        said.append(f"still goes by the roster of generation {status.generation}")
    if status.waiting_for:
        said.append(f"waits for {', '.join(status.waiting_for)}")
    if status.rejected:
        said.append(f"has refused {status.rejected} messages or callers")
    return said


def _size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
