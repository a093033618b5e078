"""What would change the answer of an audit: other options and algorithms, examined on symbols.

Every candidate runs on the same graph and for the same task. It is judged by the adversaries of the
audit, with the same proofs. Nothing here is measured: neither accuracy nor attacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast, get_type_hints

from tacit.algorithms import ALGORITHMS
from tacit.algorithms.algorithm import Algorithm, options_of
from tacit.auditing.adversary import Adversary
from tacit.auditing.answer import Answer
from tacit.auditing.bounds.added_noise import IDEAL_NOISE, Bound
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.bounds.whole_run import whole_run_bound
from tacit.auditing.judgement import describe_adversary, describe_knowledge, join, lower_first
from tacit.auditing.options import Progress
from tacit.auditing.result import Audit
from tacit.auditing.symbolic.exposure import LEVEL_OF, LEVELS
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.config.algorithms import make_algorithm_for
from tacit.config.build import Experiment
from tacit.config.graphs import make_graph
from tacit.config.loading import make_config
from tacit.config.own_data import check_disclosure
from tacit.config.variants import make_variant
from tacit.core.errors import Misuse
from tacit.core.noise import Gaussian, Laplace
from tacit.core.templates import Phrases
from tacit.graph import Graph
from tacit.privacy.guarantee import Budget
from tacit.privacy.interpretation import VACUOUS, strength
from tacit.privacy.planning import epsilon_text

MAX_CLIENTS = 30  # of graphs on which candidates are examined
MAX_COMPLETE = 12  # clients of complete graphs that are examined
FIRST_LOOK = 3  # iterations in which most candidates already leak
SHOWN = 3  # candidates that are described
FACTORS = (10, 100, 1_000, 10_000)  # of noise
PROMISED = 3.0  # ε of candidates that can keep a promise
# The output of a non-linear step reveals what that step reveals: worse than a sum, at most.
OUTPUT_RANK = LEVELS.index("difference")
_say = Phrases(
    "tacit.experiment", "alternatives.txt.jinja", epsilon=epsilon_text, strength=strength
)


@dataclass(frozen=True)
class Knows:
    """What one adversary learns."""

    rank: int  # of its best leak
    leak: str  # the same in words
    epsilon: float = math.inf  # of the whole run, if it is proved
    is_ideal: bool = False  # proved for ideal real-valued noise only

    @property
    def is_bounded(self) -> bool:
        return math.isfinite(self.epsilon)

    @property
    def badness(self) -> tuple[int, float]:
        """A guarantee that means something is better than any leak that is not proved."""
        is_guaranteed = self.epsilon < VACUOUS and not self.is_ideal
        return (0, self.epsilon) if is_guaranteed else (1 + self.rank, 0.0)


@dataclass(frozen=True, eq=False)
class Candidate:
    """An algorithm with options, and how a configuration gets it."""

    changes: str  # what to write into the configuration
    algorithm: Algorithm
    graph: Graph
    is_own: bool  # the audited algorithm with another option or graph

    @property
    def order(self) -> int:
        """The least change first, then those that keep a guarantee."""
        return 0 if self.is_own else 1 if self.algorithm.keeps_guarantee else 2


def with_alternatives(
    answer: Answer, audit: Audit, experiment: Experiment, progress: Progress | None = None
) -> Answer:
    """The answer with what would change it, and with what nodes may share beside messages.

    `progress` is called as in `tacit.audit`.
    """
    report = progress or (lambda what, done, of: None)
    if not experiment.setting.world.is_static:
        # Proofs for whole runs need iterations that are alike.
        found = _say("fixed_graph_only")
    else:
        found = [*_own_noise(audit, experiment), *_others(audit, experiment, report)]
    if experiment.task.disclosure:
        found = [*_say("declare_columns"), *found]
    shared = _say("shared_scores") if experiment.config.shares_metrics else []
    return replace(answer, changes=found, limits=[*answer.limits, *shared])


def _others(audit: Audit, experiment: Experiment, report: Progress) -> list[str]:
    """Candidates that leak less to some adversaries of the audit and not more to any."""
    if experiment.graph.clients > MAX_CLIENTS:
        return _say("too_many_clients", most=MAX_CLIENTS)
    adversaries = list(dict.fromkeys(result.adversary.passive for result in audit.results))
    corrupt = frozenset[int]().union(*(adversary.corrupt for adversary in adversaries))
    honest = [client for client in audit.victims if client not in corrupt]
    if not honest:
        return []
    examination = Examination(experiment, adversaries, honest[0])
    audited = Candidate("", experiment.algorithm, experiment.graph, True)
    now = examination.knows(audited, audit.iterations)
    before = [knows.badness for knows in now]
    worst = [knows.rank for knows in now]
    first_look = min(FIRST_LOOK, audit.iterations)
    promising = []
    candidates = [*_more_neighbours(experiment), *_candidates(experiment)]
    for number, candidate in enumerate(candidates, 1):
        report("examining what would change the answer", number, len(candidates))
        ranks = [_rank(leakage) for leakage in examination.leakages(candidate, first_look)]
        if all(a <= b for a, b in zip(ranks, worst, strict=True)):
            promising.append((candidate.order, sorted(ranks, reverse=True), candidate))
    better: list[str] = []
    for _, _, candidate in sorted(promising, key=lambda entry: entry[:2]):
        found = examination.knows(candidate, audit.iterations)
        if _is_better(found, before):
            better += _describe(candidate, adversaries, now, found)
        if len(better) == SHOWN:
            break
    if not better:
        return _say("none_better", candidates=len(candidates), iterations=audit.iterations)
    return [*better, *_say("cost_unknown")]


def _is_better(found: list[Knows], before: list[tuple[int, float]]) -> bool:
    after = [knows.badness for knows in found]
    return after != before and all(a <= b for a, b in zip(after, before, strict=True))


def _candidates(experiment: Experiment) -> Iterator[Candidate]:
    """The algorithms that can run on this graph and task, with one switch changed or none."""
    config, audited = experiment.config, experiment.config.algorithm.name
    for name in ALGORITHMS.loadable()[0]:
        kind = ALGORITHMS[name]
        if kind.needs_server and not experiment.algorithm.needs_server:
            continue
        hints = get_type_hints(kind)
        switches = [option for option in options_of(kind) if hints.get(option) is bool]
        for option in ("", *switches):
            label = f"{name}+{option}=true" if option else name
            set_already = getattr(experiment.algorithm, option, None) is True if option else True
            if name == audited and set_already:
                continue
            try:
                variant = make_variant(config, label, [label])
                promise = ""
                if kind.keeps_guarantee and variant.privacy is None:
                    privacy = {"epsilon": PROMISED, "delta": _delta(experiment)}
                    variant = make_config(variant.as_dict() | {"privacy": privacy})
                    promise = f", [privacy] epsilon = {PROMISED:g}"
                check_disclosure(variant, experiment.task.disclosure)
                algorithm, _ = make_algorithm_for(variant, experiment.task, experiment.graph)
                algorithm.check_graph(experiment.graph)
            except Misuse:
                continue
            change = "" if name == audited else f'algorithm.name = "{name}"'
            switch = f"algorithm.{option} = true" if option else ""
            changes = ", ".join(filter(None, (change, switch))) + promise
            yield Candidate(changes, algorithm, experiment.graph, name == audited)


def _more_neighbours(experiment: Experiment) -> Iterator[Candidate]:
    """The same algorithm on a complete graph, where all other clients are neighbours."""
    graph, keys = experiment.graph, experiment.config.graph.model_dump(exclude_none=True)
    complete = graph.clients * (graph.clients - 1)
    if graph.clients > MAX_COMPLETE or len(graph.edges) >= complete:
        return
    changed: dict[str, Any] = {"kind": "complete"}
    changed |= {key: keys[key] for key in ("clients", "mixing", "lazy") if key in keys}
    try:
        variant = make_config(experiment.config.as_dict() | {"graph": changed})
        other = make_graph(variant.graph, variant.run.seed)
        algorithm, _ = make_algorithm_for(variant, experiment.task, other)
        algorithm.check_graph(other)
    except Misuse:
        return
    yield Candidate('graph.kind = "complete"', algorithm, other, True)


def _delta(experiment: Experiment) -> float:
    """A δ below one over the number of samples."""
    dataset = experiment.dataset
    samples = 1 if dataset is None else len(dataset.train.y)
    return min(1e-5, 10.0 ** -math.ceil(math.log10(2 * samples)))


@dataclass(frozen=True, eq=False)
class Examination:
    """What every candidate is examined for: what these adversaries learn about one client."""

    experiment: Experiment
    adversaries: list[Adversary]
    victim: int

    def leakages(self, candidate: Candidate, iterations: int) -> list[Leakage]:
        """What each adversary can compute from the first iterations."""
        common_start = self.experiment.setting.start_alike
        run = run_on_symbols(
            candidate.algorithm, candidate.graph, iterations, common_start=common_start
        )
        return [Leakage(Knowledge(run, adversary), self.victim) for adversary in self.adversaries]

    def knows(self, candidate: Candidate, iterations: int) -> list[Knows]:
        """What each adversary learns, and ε of the whole run where no exact answer rules it out."""
        budget = candidate.algorithm.budget
        delta = 1e-5 if budget is None else budget.delta
        found = []
        leakages = self.leakages(candidate, iterations)
        for adversary, leakage in zip(self.adversaries, leakages, strict=True):
            leak = describe_knowledge(leakage).replace(
                f"see gradients of {leakage.victim_text} ", "see its gradients "
            )
            knows = Knows(_rank(leakage), leak)
            if knows.rank <= LEVELS.index("noisy"):
                bound = _bound(self.experiment, candidate, adversary, self.victim, delta)
                if bound is not None:
                    is_ideal = IDEAL_NOISE in bound.assumptions
                    knows = replace(knows, epsilon=bound.epsilon, is_ideal=is_ideal)
            found.append(knows)
        return found


def _bound(
    experiment: Experiment, candidate: Candidate, adversary: Adversary, victim: int, delta: float
) -> Bound | None:
    """ε of the whole run with another algorithm or graph, if it is proved."""
    threat = Threat.of(experiment.setting, adversary, victim, delta)
    return whole_run_bound(candidate.algorithm, candidate.graph, threat, experiment.steps)


def _rank(leakage: Leakage) -> int:
    if leakage.strongest is None:
        return 0
    level = LEVEL_OF.get(leakage.strongest)
    return OUTPUT_RANK if level is None else LEVELS.index(level)


def _describe(
    candidate: Candidate, adversaries: list[Adversary], now: list[Knows], found: list[Knows]
) -> list[str]:
    """What a candidate changes, adversaries with the same outcome together."""
    outcomes: dict[str, list[str]] = {}
    for adversary, before, after in zip(adversaries, now, found, strict=True):
        is_exact = after.rank > LEVELS.index("noisy")
        same = before == after or (is_exact and before.rank == after.rank)
        (outcome,) = _say("outcome", knows=after, is_exact=is_exact, same=same)
        outcomes.setdefault(outcome, []).append(_who(adversary))
    listed = [(join(who), outcome) for outcome, who in outcomes.items()]
    return _say("change", changes=candidate.changes, outcomes=listed)


def _who(adversary: Adversary) -> str:
    return lower_first(describe_adversary(adversary))


def _own_noise(audit: Audit, experiment: Experiment) -> list[str]:
    """What more noise of the same kind gives: half an ε, or one that is not vacuous."""
    algorithm = experiment.algorithm
    if algorithm.keeps_guarantee:
        found = _more_calibrated_noise(algorithm.budget, experiment)
        return [*found, *_own_noise_alone(audit, algorithm.budget)]
    ledgers = [ledger for result in audit.results for ledger in result.ledgers]
    worst = max(ledgers, key=lambda ledger: ledger.best.epsilon)
    if any("not clipped" in ledger.best.why for ledger in ledgers):
        return _say("not_clipped", client=audit.name_of(worst.victim), why=worst.best.why)
    if not VACUOUS <= worst.best.epsilon < math.inf:
        return []
    adversary = next(result.adversary for result in audit.results if worst in result.ledgers)
    return _more_noise(experiment, adversary, worst.victim, worst.best.epsilon, worst.delta)


def _more_calibrated_noise(budget: Budget | None, experiment: Experiment) -> list[str]:
    if budget is None or not math.isfinite(budget.epsilon):
        return _say("without_noise")
    sigma = budget.noise_multiplier
    return _say(
        "twice_the_noise",
        sigma=sigma,
        epsilon=replace(budget, noise_multiplier=2 * sigma).spent(experiment.steps),
        budget=budget,
        assumption=budget.assumption(experiment.graph.clients),
    )


def _own_noise_alone(audit: Audit, budget: Budget | None) -> list[str]:
    """What a promise that counts on no other client gives, where coalitions learn noisy sums.

    The noise of h honest clients together has deviation σC, so that of each has σC/√h.
    """
    if budget is None or budget.honest == 1 or not audit.coalitions:
        return []
    alone = budget.epsilon_against(1)
    if not budget.epsilon < alone:
        return []
    return _say("own_noise_alone", budget=budget, alone=alone)


def _more_noise(
    experiment: Experiment, adversary: Adversary, victim: int, epsilon: float, delta: float
) -> list[str]:
    """The least power of ten of more noise for which ε is not vacuous."""
    algorithm = experiment.algorithm
    noises = {
        option: value
        for option in options_of(type(algorithm))
        if isinstance(value := getattr(algorithm, option), Laplace | Gaussian) and value.scale > 0
    }
    found = epsilon
    for factor in FACTORS if noises else ():
        changed = {
            option: replace(noise, scale=factor * noise.scale) for option, noise in noises.items()
        }
        louder = Candidate("", replace(cast(Any, algorithm), **changed), experiment.graph, True)
        bound = _bound(experiment, louder, adversary, victim, delta)
        if bound is None:
            return []
        found = bound.epsilon
        if found < VACUOUS:
            return _say(
                "more_noise",
                factor=factor,
                options=changed,
                epsilon=found,
                who=_who(adversary),
                before=epsilon,
                is_ideal=IDEAL_NOISE in bound.assumptions,
            )
    if not noises:
        return []
    return _say("no_noise_helps", factor=FACTORS[-1], epsilon=found, who=_who(adversary))
