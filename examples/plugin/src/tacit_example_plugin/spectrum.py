"""`tacit spectrum`: how fast messages mix on a graph."""

from __future__ import annotations

from typing import Annotated

import typer


def spectrum(
    kind: Annotated[str, typer.Argument(help="Graph: ring, complete or star.")],
    clients: Annotated[int, typer.Argument(min=2, help="Number of clients.")],
) -> None:
    """Print the spectral gap of a graph with Metropolis weights."""
    import tacit

    make = {name: getattr(tacit.Topology, name) for name in ("ring", "complete", "star")}
    if kind not in make:
        raise tacit.Misuse(f"There is no graph {kind!r} here.", f"Choose one of {', '.join(make)}.")
    graph = make[kind](clients).mixing("metropolis")
    print(f"{kind} of {clients}: spectral gap {graph.spectral_gap:.4f}")
