"""A promise of differential privacy, and the budget that a run spends to keep it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from tacit.core.checks import check_choice, check_count, check_number
from tacit.core.errors import Misuse
from tacit.privacy.accounting.calibration import calibrate_noise_multiplier, steps_within
from tacit.privacy.accounting.many_runs import Releases
from tacit.privacy.accounting.sampled_gaussian import check_mechanism, sampled_gaussian_epsilon

Unit = Literal["sample", "client"]
UNITS: dict[Unit, str] = {"sample": "one training sample", "client": "all data of one client"}
# The part of δ that calibration always leaves to noise that is not quite Gaussian.
RESERVE = 1e-6


@dataclass(frozen=True)
class Privacy:
    """The guarantee that a run must keep: whole run, all released models, add or remove one unit.

    With dropout or augmentation, the samples of the other units keep their numbers.

    Args:
        epsilon: ε; `math.inf` for masked sums without noise, which have no guarantee.
        delta: δ, less than one over the number of units.
        unit: What is protected: one training "sample", or all data of one "client".
        honest: The number of clients whose noise the guarantee counts on. By default all but one,
            because every client knows its own noise.
        noise_multiplier: The noise, instead of as much as the planned iterations need. A run then
            stops when ε is spent.
        clip: The bound C on the norm of one sample's gradient, or of one client's update; infinite
            for no bound, which needs an infinite ε.
        samples: Training samples of all clients together, a public number; by default those of the
            task.
        sampling_rate: The probability that an iteration draws a sample; by default the batches of
            all clients over all samples.

    Example:
        >>> Privacy(epsilon=3.0).honest_among(clients=10)
        9
    """

    epsilon: float
    delta: float = 1e-5
    unit: Unit = "sample"
    honest: int | None = None
    noise_multiplier: float | None = None
    clip: float = 1.0
    samples: int | None = None
    sampling_rate: float | None = None

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            check_number("noise_multiplier", self.noise_multiplier, above=0, example=1.0)
        hint = "math.inf for masked sums without noise"
        check_number("epsilon", self.epsilon, above=0, infinite=True, example=3, hint=hint)
        if self.noise_multiplier is not None and math.isinf(self.epsilon):
            raise Misuse(
                f"noise_multiplier is {self.noise_multiplier}, but with epsilon = inf no noise is "
                "added.",
                "Give the epsilon at which the run must stop, or leave noise_multiplier out.",
            )
        check_number("delta", self.delta, above=0, below=1, example=1e-5)
        check_choice("unit", self.unit, UNITS)
        if self.honest is not None:
            check_count("honest", self.honest)
        check_number("clip", self.clip, above=0, infinite=True, example=1.0)
        if math.isinf(self.clip) and math.isfinite(self.epsilon):
            raise Misuse(
                "Without clipping one sample can change the sum by any amount, and no noise hides "
                "it.",
                "Give a clipping bound, e.g. clip = 1.0, or epsilon = inf.",
            )
        if self.samples is not None:
            check_count("samples", self.samples)
        if self.sampling_rate is not None:
            check_number("sampling_rate", self.sampling_rate, above=0, at_most=1, example=0.01)

    def check(self, *, samples: int | None = None, clients: int | None = None) -> None:
        """Require that the promise means something for that many samples and clients.

        Raises:
            Misuse: If δ is at least one over the number of units, or more clients are honest than
                there are.
        """
        units = samples if self.unit == "sample" else clients
        if units is not None and math.isfinite(self.epsilon) and self.delta * units >= 1:
            raise Misuse(
                f"delta is {self.delta:g}, but with {units:,} {self.unit}s it must be below "
                f"1/{units} = {1 / units:.2g}: otherwise publishing one of them would be allowed.",
                f"Give a smaller one, e.g. {10.0 ** -math.ceil(math.log10(2 * units)):g}.",
            )
        if clients is not None:
            self.honest_among(clients)

    def honest_among(self, clients: int) -> int:
        """The number of clients, of so many, whose noise the guarantee counts on."""
        check_count("clients", clients)
        if self.honest is None:
            return max(clients - 1, 1)
        if self.honest > clients:
            raise Misuse(
                f"honest is {self.honest}, but there are {clients} clients.",
                f"Give at most {max(clients - 1, 1)}: every client knows its own noise.",
            )
        return self.honest

    def expected_batch(self, samples: int, batch: float) -> float:
        """The expected number of samples in a sum, if clients draw so many of so many together."""
        if self.sampling_rate is None:
            return min(float(samples), batch)
        return self.sampling_rate * samples

    def budget(
        self, sampling_rate: float, steps: int, *, clients: int, extra_delta: float = 0.0
    ) -> Budget:
        """The budget with the least noise that keeps the promise.

        Args:
            sampling_rate: The probability that an iteration uses a unit; 1 uses all.
            steps: Iterations of the whole run.
            clients: The number of clients.
            extra_delta: What noise that is not quite Gaussian costs; calibration leaves room for
                it, and always for a millionth of δ.
        """
        check_number("extra_delta", extra_delta, at_least=0, below=self.delta)
        room = max(extra_delta, RESERVE * self.delta)
        sigma = self.noise_multiplier or calibrate_noise_multiplier(
            self.epsilon, self.delta - room, sampling_rate, steps
        )
        honest = self.honest_among(clients)
        return Budget(
            self.epsilon, self.delta, sigma, sampling_rate, steps, self.unit, honest, extra_delta
        )


@dataclass(frozen=True)
class Budget:
    """What a run spends of a promise, iteration by iteration.

    Args:
        epsilon: The ε promised; infinite without a guarantee.
        delta: The δ promised.
        noise_multiplier: Standard deviation of the noise of `honest` clients together, over the
            most that one unit can change a sum.
        sampling_rate: The probability that an iteration uses a unit; 1 uses all.
        steps: Iterations planned.
        unit: What is protected.
        honest: The number of clients whose noise is counted.
        extra_delta: The part of δ that noise costs for not being quite Gaussian, in the whole run.

    Example:
        >>> budget = Privacy(epsilon=3.0).budget(2048 / 60000, steps=1160, clients=10)
        >>> round(budget.noise_multiplier, 2), round(budget.spent(580), 2)
        (1.8, 2.06)
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    sampling_rate: float
    steps: int
    unit: Unit = "sample"
    honest: int = 1
    extra_delta: float = 0.0

    def __post_init__(self) -> None:
        Privacy(self.epsilon, self.delta, self.unit, self.honest)
        check_mechanism(self.noise_multiplier, self.sampling_rate, self.steps)
        check_number("extra_delta", self.extra_delta, at_least=0, below=self.delta)

    def assumption(self, clients: int) -> str:
        """What the guarantee needs among so many clients.

        Example:
            >>> Budget(3.0, 1e-5, 1.8, 0.03, 100, honest=3).assumption(4)
            'if 3 of 4 clients are honest and connected'
        """
        if self.honest == 1:
            return f"even if only 1 of {clients} clients is honest"
        return f"if {self.honest} of {clients} clients are honest and connected"

    def spent(self, steps: int) -> float:
        """ε after so many iterations."""
        return self._epsilon(self.noise_multiplier, steps)

    @cached_property
    def allowed_steps(self) -> float:
        """The largest number of iterations that stay within ε; infinite without a guarantee."""
        if math.isinf(self.epsilon):
            return math.inf
        delta = self.delta - self.extra_delta
        return steps_within(
            self.epsilon, delta, self.noise_multiplier, self.sampling_rate, near=self.steps
        )

    def epsilon_against(self, honest_left: int, steps: int | None = None) -> float:
        """ε against a coalition that leaves a component of so many honest clients.

        Args:
            honest_left: Honest clients that are still connected with the victim, and itself.
            steps: Iterations; by default those planned.
        """
        check_count("honest_left", honest_left, at_least=0)
        noise = self.noise_multiplier * math.sqrt(honest_left / self.honest)
        return self._epsilon(noise, self.steps if steps is None else steps)

    def with_distance(self, distance: float) -> Budget:
        """This budget for noise within a total variation distance of Gaussian noise, whole run.

        It costs (1 + e^ε)·distance of δ.

        Raises:
            Misuse: If the iterations planned no longer fit.
        """
        check_number("distance", distance, at_least=0, at_most=1)
        if math.isinf(self.epsilon) or distance == 0:
            return self
        extra = distance * (1 + math.exp(min(self.epsilon, 700.0)))
        if extra < self.delta:
            changed = replace(self, extra_delta=max(self.extra_delta, extra))
            # A budget that did not fit before may have less noise than the planned iterations need.
            if changed.spent(self.steps) <= self.epsilon or self.spent(self.steps) > self.epsilon:
                return changed
        raise Misuse(
            f"Noise at a distance of {distance:.2g} from Gaussian noise costs {extra:.2g} of "
            f"delta = {self.delta:g}.",
            f"Calibrate with extra_delta={extra:.2g}, or use noise that is closer.",
        )

    def releases(self, steps: int) -> Releases:
        """What so many iterations release, to be composed with what other runs release."""
        distance = self.extra_delta / (1 + math.exp(min(self.epsilon, 700.0)))
        return Releases(self.noise_multiplier, self.sampling_rate, steps, distance)

    def as_dict(self) -> dict[str, Any]:
        """The budget for JSON, with None for an infinite ε."""
        return asdict(self) | {"epsilon": None if math.isinf(self.epsilon) else self.epsilon}

    def spent_facts(self, steps: int) -> dict[str, Any]:
        """The budget for JSON, and the ε that so many iterations have `spent` of it."""
        spent = self.spent(steps)
        return self.as_dict() | {"spent": None if math.isinf(spent) else spent}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Budget:
        """The budget that `as_dict` wrote.

        Raises:
            Misuse: If keys are missing or unknown, or a value is impossible.
        """
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            wrong = ", ".join(sorted(names ^ set(values)))
            raise Misuse(
                f"A privacy budget has missing or unknown keys: {wrong}.",
                "Use the file as it was written.",
            )
        epsilon = math.inf if values["epsilon"] is None else values["epsilon"]
        return cls(**{**values, "epsilon": epsilon})

    def _epsilon(self, noise_multiplier: float, steps: int) -> float:
        delta = self.delta - self.extra_delta
        return sampled_gaussian_epsilon(noise_multiplier, self.sampling_rate, steps, delta)
