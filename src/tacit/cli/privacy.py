"""`tacit privacy`: what a guarantee costs, before anything is trained."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Column, Table

from tacit.cli.arguments import Json
from tacit.core.errors import Misuse
from tacit.core.missing_numbers import finite_or_none

if TYPE_CHECKING:
    from tacit.privacy.accounting.second_opinion import SecondOpinion
    from tacit.privacy.planning import Plan


def privacy(
    rounds: Annotated[int, typer.Option(help="Number of passes over the data.")],
    epsilon: Annotated[
        float | None, typer.Option(help="ε to keep in the whole run; prints the noise it needs.")
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Instead of ε: the noise in clipping norms; prints the ε it gives."),
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of the guarantee.")] = 1e-5,
    samples: Annotated[
        int | None, typer.Option(help="Training samples of all clients together.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Expected samples in one sum, of all clients together.")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None,
    honest: Annotated[
        int | None,
        typer.Option(help="Clients whose noise is counted on (default: all but one)."),
    ] = None,
    unit: Annotated[
        Literal["sample", "client"],
        typer.Option(help="What is protected: one sample, or all data of one client."),
    ] = "sample",
    iterations_per_round: Annotated[
        int | None, typer.Option(help="Iterations in a round (default: samples / batch).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw ε over rounds, and noise against ε, to this file.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compute ε with Google's dp-accounting, too, if installed."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Plan private training: the noise that a guarantee needs, and what would change it.

    Nothing is trained or read. Noise is in clipping norms, and guarantees hold for the whole run
    and all models in it.
    """
    from tacit.privacy import planning

    training = planning.Training(
        rounds, samples, batch, clients, honest, unit, delta, iterations_per_round
    )
    if epsilon is not None and noise_multiplier is None:
        fixed, plan = "epsilon", planning.plan_noise(training, epsilon)
    elif noise_multiplier is not None and epsilon is None:
        fixed, plan = "noise_multiplier", planning.plan_epsilon(training, noise_multiplier)
    else:
        given = "Neither" if epsilon is None else "Both"
        raise Misuse(
            f"{given} of --epsilon and --noise-multiplier given.",
            "Give one of them: the other follows.",
        )
    by_round = planning.epsilon_by_round(plan)
    others = planning.alternatives(plan, fixed=fixed)
    by_coalition = planning.epsilon_by_coalition(plan)
    opinion = _second_opinion(plan) if check else None
    if plot is not None:
        from tacit.report.privacy_figures import write_privacy_figure

        write_privacy_figure(plan, plot)
    if as_json:
        print(json.dumps(_plain(plan, by_round, others, by_coalition, opinion)))
        return
    console = Console()
    _print_plan(plan, console)
    _print_rounds(by_round, console)
    _print_alternatives(plan, others, console)
    _print_coalitions(by_coalition, console)
    if opinion is not None:
        text = f"{_number(opinion.pld)} by loss distributions, {_number(opinion.rdp)} by Rényi"
        console.print(f"dp-accounting: ε = {text} divergences.", highlight=False)
    if plot is not None:
        print(f"Plot: {plot}")


def _second_opinion(plan: Plan) -> SecondOpinion:
    from tacit.privacy.accounting.second_opinion import second_opinion

    training = plan.training
    arguments = (training.sampling_rate, training.iterations, training.delta)
    return second_opinion(plan.noise_multiplier, *arguments)


def _plain(
    plan: Plan,
    by_round: dict[int, float],
    others: dict[str, Plan],
    by_coalition: dict[int, float],
    opinion: SecondOpinion | None,
) -> dict[str, Any]:
    plain = plan.as_dict() | {
        "epsilon_by_round": [
            {"round": count, "epsilon": finite_or_none(value)} for count, value in by_round.items()
        ],
        "alternatives": [{"change": name} | other.as_dict() for name, other in others.items()],
        "epsilon_by_coalition": [
            {"colluding": size, "epsilon": finite_or_none(value)}
            for size, value in by_coalition.items()
        ],
    }
    if opinion is not None:
        plain["dp_accounting"] = {
            "pld": finite_or_none(opinion.pld),
            "rdp": finite_or_none(opinion.rdp),
        }
    return plain


def _print_plan(plan: Plan, console: Console) -> None:
    training = plan.training
    unit, clients = training.unit, training.clients
    protected = "one training sample" if unit == "sample" else "all data of one client"
    epsilon = f"ε = {_number(plan.epsilon)}, δ = {training.delta:g}"
    console.print(f"{epsilon} for {protected}, in the whole run", style="bold", highlight=False)
    table = Table(Column(style="bold"), Column(justify="right"), Column(), show_header=False)
    noise = _number(plan.noise_multiplier, 4)
    table.add_row("noise multiplier σ", noise, "noise in each sum, in clipping norms")
    per_round = training.iterations // training.rounds
    rounds = f"{training.rounds:,} rounds × {per_round:,}"
    table.add_row("iterations", f"{training.iterations:,}", rounds)
    if unit == "sample":
        rate = f"{100 * training.sampling_rate:.3g} %"
        table.add_row("sampling rate", rate, "chance that an iteration uses a sample")
    average = f"σ / {training.contributions:,} {unit}s: noise in their average"
    table.add_row("relative noise", f"{_number(100 * plan.relative_noise)} %", average)
    if plan.noise_per_client is not None:
        honest = f"σ / √{training.honest_clients:,}: each of {clients:,} clients adds it"
        table.add_row("noise per client", _number(plan.noise_per_client), honest)
    console.print(table, highlight=False)


def _print_rounds(by_round: dict[int, float], console: Console) -> None:
    table = Table("round", *(Column(f"{count:,}", justify="right") for count in by_round))
    table.add_row("ε", *map(_number, by_round.values()))
    console.print(table, highlight=False)


def _print_alternatives(plan: Plan, others: dict[str, Plan], console: Console) -> None:
    names = ["iterations", "σ", "relative", "per client", "ε"]
    if plan.noise_per_client is None:
        names.remove("per client")
    table = Table(Column("change", no_wrap=True), *(Column(n, justify="right") for n in names))
    for change, other in {"as planned": plan, **others}.items():
        per_client = other.noise_per_client
        table.add_row(
            change,
            f"{other.training.iterations:,}",
            _number(other.noise_multiplier, 4),
            f"{_number(100 * other.relative_noise)} %",
            *([] if per_client is None else [_number(per_client)]),
            _number(other.epsilon),
            end_section=other is plan,
        )
    console.print(table, highlight=False)


def _print_coalitions(by_coalition: dict[int, float], console: Console) -> None:
    if not by_coalition:
        return
    columns = (Column(f"{size:,}", justify="right") for size in by_coalition)
    table = Table("colluding clients", *columns)
    table.add_row("ε", *map(_number, by_coalition.values()))
    console.print(table, highlight=False)
    console.print("Colluding clients know their own noise. The others must stay connected.")


def _number(value: float, digits: int = 3) -> str:
    """So many digits, rounded up; ∞ where there is no guarantee."""
    from tacit.privacy.planning import round_up

    if value == 0 or math.isinf(value):
        return "∞" if value else "0"
    value = round_up(value, digits)
    return f"{value:#.{digits}g}".removesuffix(".") if value < 1000 else f"{value:,.0f}"
