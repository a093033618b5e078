"""A bound for the whole run, however long, by induction over its iterations.

If after an iteration the whole state follows from messages and from the data of the other clients,
the next iteration starts from a state that is the same in both worlds: what it costs does not
depend on the ones before, and the costs compose. Iteration t is run alone on symbols, from a state
of unknowns that count as known:

    base    the state after `start` contains no secret
    step    the secrets in the state after iteration t are those of combinations of its messages

Iterations with the same step sizes and noise cost the same, so a run of any length with constant
ones needs a single step on symbols. Algorithms whose state keeps a secret (a tracker, a term
without noise) have another bound if all their iterations are alike: see `steady_noise`.

Runs that differ in one sample differ in the gradients of its batches alone: with batches cut from a
new order of the data in every epoch, one per epoch. The other iterations cost nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound, total_bound
from tacit.auditing.bounds.composition import Release, composed_bound
from tacit.auditing.bounds.dependence import MessageSpans, trace_dependence
from tacit.auditing.bounds.ledger import Ledger, compute_ledger, ledger_adversary
from tacit.auditing.bounds.secret_rows import SecretRows
from tacit.auditing.bounds.steady_noise import steady_loss
from tacit.auditing.symbolic.replay import Mismatch
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols, step_on_symbols
from tacit.core.schedules import rate_at
from tacit.engines.setting import Setting
from tacit.graph import Graph
from tacit.privacy.clipping import Clip
from tacit.tasks.batches import MiniBatchSource


def ledger_of(
    setting: Setting,
    run: SymbolicRun,
    adversary: Adversary,
    victim: int,
    *,
    delta: float,
    mismatches: Sequence[Mismatch] = (),
    steps: int | None = None,
) -> Ledger:
    """`compute_ledger` of a setting, with bounds for all its `steps` where these are more."""
    ledger = compute_ledger(
        run,
        adversary,
        victim,
        clip=setting.task.clip,
        parameters=setting.task.parameters,
        delta=delta,
        mismatches=mismatches,
    )
    if steps is None or steps <= run.steps:
        return ledger
    if not setting.world.is_static:
        return replace(ledger, run_steps=steps)
    return _with_whole_run(ledger, setting, adversary, steps)


def _with_whole_run(ledger: Ledger, setting: Setting, adversary: Adversary, steps: int) -> Ledger:
    """The ledger with bounds for all iterations, if the first ones have a bound."""
    if math.isinf(ledger.upper.epsilon):
        return replace(ledger, run_steps=steps)
    bound = partial(whole_run_bound_of, setting, adversary, ledger.victim, steps, ledger.delta)
    per_sample = None
    source = setting.task.source
    # Through local parameters, a sample has an influence on all later gradients of its client.
    shared = setting.task.local is None
    if shared and isinstance(source, MiniBatchSource) and not source.parts.has_repeats:
        batches = int(source.parts.sizes[ledger.victim]) // source.batch_size
        # One more than an iteration takes, for a gradient of the start.
        gradients = steps * setting.algorithm.gradients_per_step + 1
        per_sample = bound(uses=sample_uses(batches, gradients))
    whole = bound()
    # The whole run contains the audited iterations. If they cost more, it is not what was audited.
    least = (1 - 1e-6) * ledger.upper.epsilon
    if whole is not None and whole.delta <= ledger.upper.delta and whole.epsilon < least:
        return replace(ledger, run_steps=steps)
    return replace(ledger, whole_run=whole, run_steps=steps, per_sample=per_sample)


def whole_run_bound_of(
    setting: Setting,
    adversary: Adversary,
    victim: int,
    steps: int,
    delta: float,
    uses: int | None = None,
) -> Bound | None:
    """`whole_run_bound` of the algorithm, graph and task of a setting."""
    return whole_run_bound(
        setting.algorithm,
        setting.graph,
        adversary,
        victim,
        steps,
        clip=setting.task.clip,
        parameters=setting.task.parameters,
        delta=delta,
        uses=uses,
    )


def whole_run_bound(
    algorithm: Algorithm,
    graph: Graph,
    adversary: Adversary,
    victim: int,
    steps: int,
    *,
    clip: Clip | None,
    parameters: int,
    delta: float,
    uses: int | None = None,
) -> Bound | None:
    """The guarantee for all `steps` iterations of a run; None if the induction fails.

    Args:
        algorithm: What runs.
        graph: On which graph.
        adversary: What the guarantee is against; it reads all messages that are not private.
        victim: The client whose data are at stake.
        steps: The number of iterations.
        clip: How gradients are clipped; None if they are not.
        parameters: P, the number of coordinates of a gradient.
        delta: δ of the guarantee, where it is not pure.
        uses: In how many gradients the secret takes part at most; None if in all of them.
    """
    stronger = ledger_adversary(adversary)
    begin = run_on_symbols(algorithm, graph, 0, common_start=False)
    representatives = _representatives(algorithm, graph, steps)
    # What `start` sends would have to be counted too.
    if begin.transcript.messages or representatives is None:
        return None
    first = step_on_symbols(algorithm, graph, 0)
    is_sampled = bool(first.samplings)
    if clip is None and not is_sampled:
        return None
    # There are no gradients of samples in a state to compare with noise.
    unit = 1.0 if clip is None or is_sampled else clip.sensitivity
    iterations = _iterations(algorithm, graph, begin, representatives, stronger, victim, unit)
    bound = composed_bound(iterations, clip, parameters, delta, uses)
    if math.isfinite(bound.epsilon):
        return bound
    # Without schedules all iterations are alike.
    if clip is None or is_sampled or len(representatives) > 1 or algorithm.needs_minimiser:
        return None
    loss = steady_loss(first, begin, stronger, victim, steps, clip, uses)
    return None if loss is None else total_bound([(loss, 1)], clip, delta)


def _iterations(
    algorithm: Algorithm,
    graph: Graph,
    begin: SymbolicRun,
    representatives: Counter[int],
    stronger: Adversary,
    victim: int,
    sensitivity: float,
) -> Iterator[Release | None]:
    """All kinds of iterations; None, at last, if the state after one does not follow from messages.

    That is where the induction fails.
    """
    if not _state_is_known(SecretRows.of(begin, stronger, victim), 0, sensitivity):
        yield None
        return
    for t, times in representatives.items():
        view = SecretRows.of(step_on_symbols(algorithm, graph, t), stronger, victim)
        budgets, obstacle = trace_dependence(view, sensitivity)
        if obstacle is not None or not _state_is_known(view, 1, sensitivity):
            yield None
            return
        yield view, list(budgets.values()), times


def sample_uses(batches_per_epoch: int, gradients: int) -> int:
    """In how many of so many gradients one sample takes part: at most once in every epoch."""
    return -(-gradients // batches_per_epoch)


def _representatives(algorithm: Algorithm, graph: Graph, steps: int) -> Counter[int] | None:
    """Iterations that stand for all with the same step sizes, and how many they stand for.

    None if the algorithm reads the iteration itself, or some schedules only in some iterations:
    what it does later was not compared with numbers.
    """
    first_step = step_on_symbols(algorithm, graph, 0)
    if first_step.uses_iteration:
        return None
    schedules = first_step.schedules
    alike: dict[tuple[float, ...], list[int]] = {}
    for t in range(steps):
        alike.setdefault(tuple(rate_at(schedule, t) for schedule in schedules), []).append(t)
    for values, iterations in alike.items():
        read = step_on_symbols(algorithm, graph, iterations[0]).schedules
        if any(values != tuple(rate_at(schedule, t) for schedule in read) for t in iterations):
            return None
    return Counter({iterations[0]: len(iterations) for iterations in alike.values()})


def _state_is_known(view: SecretRows, index: int, sensitivity: float) -> bool:
    """Whether a state follows from the messages so far and from the data of other clients."""
    run, victim, adversary = view.run, view.victim, view.adversary
    state = run.states[index].values()
    # A field that is not one number per parameter, such as a counter, may change what is done.
    if any(rows.shape[1] > len(run.unknowns) for rows in state) or run.plain_fields:
        return False
    padded = np.concatenate([run.wide(rows) for rows in state])
    # What other clients computed must follow from messages, in the state as in messages.
    present = [run.unknowns[column] for column in np.flatnonzero(padded.any(axis=0))]
    secret = [u for u in present if u.kind in ("gradient", "nonlinear") and not adversary.knows(u)]
    others = [u for u in secret if not (u.kind == "gradient" and u.client == victim)]
    # What the victim computed at random, or keeps to itself, is a secret.
    steps = run.nonlinear_steps
    drawn = [u for u in others if not (u in steps and steps[u].declared.deterministic)]
    if any(u.client == victim and u not in view.others for u in drawn):
        return False
    extended = replace(view, others=list(dict.fromkeys([*view.others, *others])))
    _, obstacle = trace_dependence(extended, sensitivity)
    if obstacle is not None:
        return False
    spans = MessageSpans(view, sensitivity)
    sent = len(run.transcript.messages)
    return all(spans.contain(row, sent) for row in padded)
