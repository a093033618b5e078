"""Approximate knowledge: what follows from messages if gradients change little.

Between two iterations a client's gradient on all its data changes little (gossip reconstruction:
Mrini, Cyffers & Bellet 2024). Suppose it takes a random walk,

    gᵢᵏ = gᵢ⁰ + dᵢ¹ + … + dᵢᵏ,   with steps dᵢᵏ of standard deviation τ.

Then one secret gᵢ⁰ is left of all gradients of a client, and the steps are noise like any other:
the best estimate of gᵢ⁰ is the one that `LinearKnowledge` finds. Its error is τ times a factor that
depends on the algorithm and the graph alone. Combinations of messages in which every gᵢ⁰ cancels
have values that are steps and noise; their size shows whether the assumption fits.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.noise import Gaussian
from tacit.record.unknowns import Unknown

SLOW = 0.1  # τ relative to the least noise of the algorithm, if it has any


def with_slow_gradients(run: SymbolicRun, adversary: Adversary) -> SymbolicRun:
    """The run in which gradients that the adversary does not have take a random walk."""
    steps: dict[int, list[Unknown]] = {}
    for client in range(run.clients):
        gradients = run.gradients(client)
        if gradients and not adversary.knows(gradients[0]):
            steps[client] = [Unknown("noise", g.when, client, tag="change") for g in gradients[1:]]
    noise = [law.variance**0.5 for unknown, law in run.laws.items() if not adversary.knows(unknown)]
    law = Gaussian(SLOW * min(noise) if noise else 1.0)
    added = [step for own in steps.values() for step in own]
    unknowns = [*run.unknowns, *added]
    columns = {unknown: column for column, unknown in enumerate(unknowns)}
    walks = [
        ([columns[g] for g in run.gradients(client)], [columns[step] for step in own])
        for client, own in steps.items()
    ]

    def walked(rows: Tensor) -> Tensor:
        wide = torch.zeros(len(rows), len(unknowns), dtype=rows.dtype)
        wide[:, : rows.shape[1]] = rows
        for gradients, own in walks:
            # Step k is in all gradients from k on.
            totals = wide[:, gradients].flip(1).cumsum(1).flip(1)
            wide[:, gradients] = 0.0
            wide[:, gradients[0]] = totals[:, 0]
            wide[:, own] = totals[:, 1:]
        return wide

    plain = run.plain_messages
    messages = [
        message if index in plain else replace(message, rows=walked(message.rows))
        for index, message in enumerate(run.transcript.messages)
    ]
    return replace(
        run,
        transcript=replace(run.transcript, messages=messages),
        unknowns=unknowns,
        laws=run.laws | dict.fromkeys(added, law),
    )
