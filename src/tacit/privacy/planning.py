"""What a guarantee costs before anything is trained: noise, iterations, and what would change them.

A plan depends on public numbers only. Noise is relative to the clipping norm: in a sum of B
contributions it has the standard deviation σ in every coordinate, in their average σ/B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tacit.core.checks import check_count, check_positive
from tacit.core.errors import Misuse
from tacit.privacy.accounting.calibration import calibrate_noise_multiplier
from tacit.privacy.accounting.sampled_gaussian import sampled_gaussian_epsilon
from tacit.privacy.guarantee import Budget, Privacy, Unit

# Of a table of coalitions.
MOST_ROWS = 7


@dataclass(frozen=True)
class Training:
    """Who trains on how much data, for how long, and what is protected.

    Args:
        rounds: Passes over the data, or any other number of iterations.
        samples: Training samples of all clients together.
        batch: The expected number of samples in one sum, of all clients together.
        clients: The number of clients.
        honest: The number of clients whose noise counts; by default all but one.
        unit: What is protected: one "sample", or all data of one "client".
        delta: δ of the guarantee.
        iterations_per_round: By default ⌊samples/batch⌋, or 1 if they are not given.
    """

    rounds: int
    samples: int | None = None
    batch: int | None = None
    clients: int | None = None
    honest: int | None = None
    unit: Unit = "sample"
    delta: float = 1e-5
    iterations_per_round: int | None = None

    def __post_init__(self) -> None:
        # Any ε: the other parts of a promise are checked.
        promise = Privacy(1.0, self.delta, self.unit, self.honest)
        check_count("rounds", self.rounds)
        for name in ("samples", "batch", "clients", "iterations_per_round"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        samples_matter = self.unit == "sample"
        needed = ("samples", "batch") if samples_matter else ("clients",)
        if missing := [name for name in needed if getattr(self, name) is None]:
            names = " and ".join(missing)
            raise Misuse(
                f'With unit = "{self.unit}" the guarantee depends on {names}.',
                f"Give {names}, of all clients together." if samples_matter else f"Give {names}.",
            )
        if self.samples and self.batch and self.batch > self.samples:
            raise Misuse(
                f"batch is {self.batch}, but there are {self.samples} samples.",
                f"Give at most {self.samples}: the samples of all clients in one sum.",
            )
        if self.honest is not None and self.clients is None:
            raise Misuse(
                f"honest is {self.honest}, but the number of clients is not given.", "Give clients."
            )
        promise.check(samples=self.samples, clients=self.clients)

    @property
    def sampling_rate(self) -> float:
        """The probability that an iteration uses a unit: clients are not sampled."""
        if self.unit == "client" or not self.batch or not self.samples:
            return 1.0
        return self.batch / self.samples

    @property
    def iterations(self) -> int:
        per_round = self.iterations_per_round
        if per_round is None:
            per_round = self.samples // self.batch if self.samples and self.batch else 1
        return self.rounds * per_round

    @property
    def contributions(self) -> int:
        """The expected number of clipped contributions to one sum."""
        return (self.clients if self.unit == "client" else self.batch) or 1

    @property
    def honest_clients(self) -> int:
        """The number of clients whose noise counts; 1 if nothing is known about them."""
        return Privacy(1.0, honest=self.honest).honest_among(self.clients or 1)


@dataclass(frozen=True)
class Plan:
    """A training with its noise and its guarantee.

    Args:
        training: What is planned.
        epsilon: ε for the whole run.
        noise_multiplier: Standard deviation σ of the noise in a sum, in clipping norms.
    """

    training: Training
    epsilon: float
    noise_multiplier: float

    @property
    def relative_noise(self) -> float:
        """σ/B: the noise in each coordinate of the average gradient, in clipping norms."""
        return self.noise_multiplier / self.training.contributions

    @property
    def noise_per_client(self) -> float | None:
        """σ/√h: what each client adds, so that h honest ones together add σ."""
        if self.training.clients is None:
            return None
        return self.noise_multiplier / math.sqrt(self.training.honest_clients)

    @property
    def budget(self) -> Budget:
        """The budget of a run that follows the plan."""
        training = self.training
        return Budget(
            max(self.epsilon, 1e-12),
            training.delta,
            self.noise_multiplier,
            training.sampling_rate,
            training.iterations,
            training.unit,
            training.honest_clients,
        )

    def as_dict(self) -> dict[str, Any]:
        """The plan for JSON; an infinite ε is None."""
        training = self.training
        return asdict(training) | {
            "honest": None if training.clients is None else training.honest_clients,
            "iterations": training.iterations,
            "sampling_rate": training.sampling_rate,
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "noise_multiplier": self.noise_multiplier,
            "relative_noise": self.relative_noise,
            "noise_per_client": self.noise_per_client,
        }


def plan_noise(training: Training, epsilon: float) -> Plan:
    """The plan with the least noise that keeps ε.

    Example:
        >>> plan = plan_noise(Training(rounds=40, samples=60_000, batch=2_048), epsilon=3.0)
        >>> plan.training.iterations, round(plan.noise_multiplier, 2)
        (1160, 1.8)
    """
    check_positive("epsilon", epsilon, example=3)
    arguments = (training.delta, training.sampling_rate, training.iterations)
    return Plan(training, epsilon, calibrate_noise_multiplier(epsilon, *arguments))


def plan_epsilon(training: Training, noise_multiplier: float) -> Plan:
    """The plan with this much noise, and the ε that follows."""
    check_positive("noise_multiplier", noise_multiplier, example=1)
    arguments = (noise_multiplier, training.sampling_rate, training.iterations, training.delta)
    return Plan(training, sampled_gaussian_epsilon(*arguments), noise_multiplier)


def epsilon_by_round(plan: Plan, points: int = 8) -> dict[int, float]:
    """ε after the first round, after the last, and after about so many between them."""
    training = plan.training
    stride = next(
        size * 10**power
        for power in range(20)
        for size in (1, 2, 5)
        if training.rounds <= points * size * 10**power
    )
    rounds = sorted({1, *range(stride, training.rounds, stride), training.rounds})
    per_round = training.iterations // training.rounds
    sigma, rate, delta = plan.noise_multiplier, training.sampling_rate, training.delta
    return {
        count: sampled_gaussian_epsilon(sigma, rate, count * per_round, delta) for count in rounds
    }


def alternatives(plan: Plan, *, fixed: str) -> dict[str, Plan]:
    """What other trainings need: by what changes, the plan that follows.

    Args:
        plan: The plan to compare with.
        fixed: "epsilon" to change the noise, "noise_multiplier" to change ε.
    """
    plans = {}
    now = plan.training
    for change, training in _variants(now):
        rate, iterations = training.sampling_rate, training.iterations
        if (rate, iterations) == (now.sampling_rate, now.iterations):
            plans[change] = replace(plan, training=training)
        elif fixed == "epsilon":
            plans[change] = plan_noise(training, plan.epsilon)
        else:
            plans[change] = plan_epsilon(training, plan.noise_multiplier)
    return plans


def _variants(training: Training) -> Iterator[tuple[str, Training]]:
    """Trainings that differ from this one in one number, where that is possible."""
    if training.rounds > 1:
        yield "half the rounds", replace(training, rounds=training.rounds // 2)
    yield "twice the rounds", replace(training, rounds=2 * training.rounds)
    samples, batch, clients = training.samples, training.batch, training.clients
    if training.unit == "sample" and samples and batch:
        if batch > 1:
            yield "half the batch", replace(training, batch=batch // 2)
        for factor, name in ((2, "twice"), (4, "four times")):
            if factor * batch <= samples:
                yield f"{name} the batch", replace(training, batch=factor * batch)
    if clients is not None:
        honest = None if training.honest is None else 2 * training.honest
        yield "twice the clients", replace(training, clients=2 * clients, honest=honest)


def epsilon_by_coalition(plan: Plan) -> dict[int, float]:
    """ε against so many colluding clients that leave the others connected; 0 are outsiders.

    Of many possible sizes a few are chosen, among them that for which the plan is made.
    """
    clients = plan.training.clients
    if clients is None:
        return {}
    promised = clients - plan.training.honest_clients
    sizes = sorted({0, 1, promised, clients - 1} | {clients * part // 4 for part in (1, 2, 3)})
    sizes = [size for size in sizes if size < clients]
    if clients <= MOST_ROWS:
        sizes = list(range(clients))
    budget = plan.budget
    return {size: budget.epsilon_against(clients - size) for size in sizes}


def relative_noise_by_epsilon(plan: Plan, points: int = 12) -> dict[int, list[tuple[float, float]]]:
    """Pairs of ε and σ/B, for half the contributions B planned, for those planned and for twice.

    The rounds stay the same, so a larger batch takes fewer iterations.
    """
    low, high = min(0.3, plan.epsilon / 3), max(10.0, 2 * plan.epsilon)
    curves = {}
    for training in _sizes(plan.training):
        most, least = (plan_noise(training, epsilon).noise_multiplier for epsilon in (low, high))
        sigmas = np.geomspace(least, most, points).tolist()
        plans = (plan_epsilon(training, sigma) for sigma in sigmas)
        pairs = [(each.epsilon, each.relative_noise) for each in plans]
        curves[training.contributions] = pairs
    return curves


def _sizes(training: Training) -> Iterator[Training]:
    """Trainings with half, as many and twice the contributions to a sum, where that is possible."""
    size = training.contributions
    for count in (size // 2, size, 2 * size):
        if training.unit == "client" and count:
            yield replace(training, clients=count, honest=None)
        elif count and count <= (training.samples or count):
            yield replace(training, batch=count)


def round_up(value: float, digits: int) -> float:
    """So many significant digits, rounded up: less noise, or a smaller ε, would not be true."""
    if value == 0 or math.isinf(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    # Numbers of few digits stay what they are, although they are binary.
    return math.ceil(value / unit * (1 - 1e-12)) * unit


def epsilon_text(epsilon: float) -> str:
    """ε with three digits, rounded up.

    Example:
        >>> epsilon_text(2.9912), epsilon_text(8.0)
        ('3', '8')
    """
    return "∞" if math.isinf(epsilon) else f"{round_up(epsilon, 3):.4g}"
