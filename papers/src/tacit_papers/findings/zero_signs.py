"""Finding: what randomized response does to coordinates that are exactly zero.

The DeFL-VP paper assumes that no coordinate is zero, "or equivalently" that ties are broken
deterministically. In a network of ReLUs the gradient of a unit that no sample of a batch reaches is
zero. As published, its sign is +1: such coordinates move together, in every iteration and at every
client, units die, and more of them are zero. A fair coin keeps them in place on average, at the
same ε. Signs of other gradients move models too: they show the median of a noisy gradient, not its
mean. Variance reduction takes signs of g − h + h̄, which is seldom zero.
"""

from __future__ import annotations

from typing import Any

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit_papers.findings.own_signs import PLAIN, REDUCED, SKEWED, STEPS, config as own_signs
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Scale
from tacit_papers.framework.claims import ordered
from tacit_papers.framework.contradictions import Cause, Contradiction
from tacit_papers.framework.curve_panels import Panel, curve_panels
from tacit_papers.measures.training import DeadCoordinates

PLUS, COIN = "zero is +1", "zero by a coin"
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    PLUS: (PLAIN, {}),
    COIN: (PLAIN, {"zeros": "coin"}),
    REDUCED: (REDUCED, {}),
}
PANELS = [
    Panel("accuracy", "accuracy (%)"),
    Panel("dead", "zero coordinates of gradients (%)"),
    Panel("size", "mean |θ|"),
]


def config(rule: str, scale: Scale) -> Config:
    """The quick version of findings/own-signs on skewed data, for longer."""
    base, options = RULES[rule]
    plain = own_signs(SKEWED, STEPS[SKEWED][0], base, Scale(quick=True)).as_dict()
    plain["algorithm"] |= options
    plain["run"] |= {"rounds": scale.pick(200, 20), "evaluate_every": 10}
    return make_config(plain)


ASCENDING = [(REDUCED,), (COIN,), (PLUS,)]
ARTIFACTS = (
    Artifact(
        name="findings/zero-signs",
        title="DeFL-VP: coordinates that are exactly zero, and what their sign does",
        axes=("rule",),
        cells=lambda scale: [Cell((rule,), DeadCoordinates(config(rule, scale))) for rule in RULES],
        metric="accuracy",
        claims=[
            ordered(
                "without variance reduction signs cost accuracy",
                "4.4 points",
                [(COIN,), (REDUCED,)],
                margin=1.0,
            ),
            ordered(
                "zeros that count as +1 cost accuracy too",
                "not tried",
                [(PLUS,), (COIN,)],
                margin=1.0,
            ),
            ordered("they kill coordinates (%)", "none is zero", ASCENDING, "dead", margin=5.0),
            ordered("and make models grow (mean |θ|)", "not tried", ASCENDING, "size"),
        ],
        contradictions=(
            Contradiction(
                "zeros that count as +1 cost accuracy too",
                Cause.EXPECTATION,
                "Mean accuracies are equal ({{ mean('findings/zero-signs', 'zero is +1') }} % and "
                "{{ mean('findings/zero-signs', 'zero by a coin') }} % with a coin for zeros), "
                "but seeds differ by up to 8.6 points either way, so three seeds show no "
                "difference. Both send something for a zero; a variant that sends nothing was not "
                "measured.",
            ),
        ),
        draw=curve_panels(PANELS, "round"),
        protocol=(
            "2,000 training and 500 test samples of Fashion-MNIST, Dirichlet(0.3), 10 clients on a "
            "random 4-regular graph, CNN with filters 8 and 16, batch 16, 200 rounds of one local "
            "epoch, η = 0.01, ε = 4, C keeps 40 % at random; without variance reduction except for "
            "the last. Coordinates are counted in the gradients of the next batch"
        ),
        quickly="20 rounds",
    ),
)
