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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.added_noise import Bound, total_bound
from tacit.auditing.bounds.composition import Release, composed_bound
from tacit.auditing.bounds.dependence import MessageSpans, trace_dependence
from tacit.auditing.bounds.ledger import Ledger, compute_ledger
from tacit.auditing.bounds.secret_rows import NoBound, SecretRows
from tacit.auditing.bounds.steady_noise import steady_loss
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.symbolic.replay import Mismatch
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols, step_on_symbols
from tacit.core.schedules import rate_at
from tacit.engines.setting import Setting
from tacit.graph import Graph
from tacit.tasks.batches import MiniBatchSource

Step = Callable[[int], SymbolicRun]  # iteration t alone
UNKNOWN_STATE = "the state does not follow from messages: no bound is proved"


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
    threat = Threat.of(setting, adversary, victim, delta)
    ledger = compute_ledger(run, threat, mismatches)
    if steps is None or steps <= run.steps:
        return ledger
    if not setting.world.is_static:
        return replace(ledger, run_steps=steps)
    return _with_whole_run(ledger, setting, threat, steps)


def _with_whole_run(ledger: Ledger, setting: Setting, threat: Threat, steps: int) -> Ledger:
    """The ledger with bounds for all iterations, if the first ones have a bound."""
    if math.isinf(ledger.upper.epsilon):
        return replace(ledger, run_steps=steps)
    bound = partial(whole_run_bound, setting.algorithm, setting.graph, threat, steps)
    per_sample = None
    source = setting.task.source
    # Through local parameters, a sample has an influence on all later gradients of its client.
    shared = setting.task.local is None
    if shared and isinstance(source, MiniBatchSource) and not source.parts.has_repeats:
        batches = int(source.parts.sizes[threat.victim]) // source.batch_size
        # One more than an iteration takes, for a gradient of the start.
        gradients = steps * setting.algorithm.gradients_per_step + 1
        per_sample = bound(uses=sample_uses(batches, gradients))
    whole = bound()
    # The whole run contains the audited iterations. If they cost more, it is not what was audited.
    least = (1 - 1e-6) * ledger.upper.epsilon
    if whole is not None and whole.delta <= ledger.upper.delta and whole.epsilon < least:
        return replace(ledger, run_steps=steps)
    return replace(ledger, whole_run=whole, run_steps=steps, per_sample=per_sample)


def whole_run_bound(
    algorithm: Algorithm, graph: Graph, threat: Threat, steps: int, uses: int | None = None
) -> Bound | None:
    """The guarantee for all `steps` iterations of a run; None if the induction fails.

    Args:
        algorithm: What runs.
        graph: On which graph.
        threat: What the guarantee is about.
        steps: The number of iterations.
        uses: In how many gradients the secret takes part at most; None if in all of them.
    """
    begin = run_on_symbols(algorithm, graph, 0, common_start=False)
    # Most algorithms have one kind of iteration, which is looked at several times.
    step = lru_cache(maxsize=2)(partial(step_on_symbols, algorithm, graph))
    kinds = _kinds_of_iterations(step, steps)
    # What `start` sends would have to be counted too.
    if begin.transcript.messages or kinds is None:
        return None
    is_sampled, clip = bool(step(0).samplings), threat.clip
    if clip is None and not is_sampled:
        return None
    if is_sampled:
        # There are no gradients of samples in a state to compare with noise.
        threat = replace(threat, clip=None)
    try:
        bound = composed_bound(_releases(begin, step, kinds, threat), threat, uses)
        if math.isfinite(bound.epsilon):
            return bound
    except NoBound:
        pass  # There may be a bound for iterations that are all alike.
    # Without schedules they are.
    if clip is None or is_sampled or len(kinds) > 1 or algorithm.needs_minimiser:
        return None
    loss = steady_loss(step(0), begin, threat, steps, uses)
    return None if loss is None else total_bound([(loss, 1)], clip, threat.delta)


def _releases(
    begin: SymbolicRun, step: Step, kinds: Counter[int], threat: Threat
) -> Iterator[Release]:
    """All kinds of iterations; raises NoBound where the induction fails."""
    _check_state(threat.view(begin), 0, threat.sensitivity)
    for t, times in kinds.items():
        view = threat.view(step(t))
        budgets = trace_dependence(view, threat.sensitivity)
        _check_state(view, 1, threat.sensitivity)
        yield view, budgets, times


def sample_uses(batches_per_epoch: int, gradients: int) -> int:
    """In how many of so many gradients one sample takes part: at most once in every epoch."""
    return -(-gradients // batches_per_epoch)


def _kinds_of_iterations(step: Step, steps: int) -> Counter[int] | None:
    """Iterations that stand for all with the same step sizes, and how many they stand for.

    None if the algorithm reads the iteration itself, or some schedules only in some iterations:
    what it does later was not compared with numbers.
    """
    if step(0).uses_iteration:
        return None
    schedules = step(0).schedules
    alike: dict[tuple[float, ...], list[int]] = {}
    for t in range(steps):
        alike.setdefault(tuple(rate_at(schedule, t) for schedule in schedules), []).append(t)
    for values, iterations in alike.items():
        read = step(iterations[0]).schedules
        if any(values != tuple(rate_at(schedule, t) for schedule in read) for t in iterations):
            return None
    return Counter({iterations[0]: len(iterations) for iterations in alike.values()})


def _check_state(view: SecretRows, index: int, sensitivity: float) -> None:
    """Raise NoBound unless a state follows from the messages so far and the data of others."""
    run, victim, adversary = view.run, view.victim, view.adversary
    state = run.states[index].values()
    # A field that is not one number per parameter, such as a counter, may change what is done.
    if any(rows.shape[1] > len(run.unknowns) for rows in state) or run.plain_fields:
        raise NoBound(UNKNOWN_STATE)
    padded = np.concatenate([run.wide(rows) for rows in state])
    # What other clients computed must follow from messages, in the state as in messages.
    present = [run.unknowns[column] for column in np.flatnonzero(padded.any(axis=0))]
    secret = [u for u in present if u.kind in ("gradient", "nonlinear") and not adversary.knows(u)]
    others = [u for u in secret if not (u.kind == "gradient" and u.client == victim)]
    # What the victim computed at random, or keeps to itself, is a secret.
    steps = run.nonlinear_steps
    drawn = [u for u in others if not (u in steps and steps[u].declared.deterministic)]
    if any(u.client == victim and u not in view.others for u in drawn):
        raise NoBound(UNKNOWN_STATE)
    extended = replace(view, others=list(dict.fromkeys([*view.others, *others])))
    trace_dependence(extended, sensitivity)
    spans, sent = MessageSpans(view, sensitivity), len(run.transcript.messages)
    if not all(spans.contain(row, sent) for row in padded):
        raise NoBound(UNKNOWN_STATE)
