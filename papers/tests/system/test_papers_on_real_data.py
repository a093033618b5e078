"""Claims of the DeFL-VP and distributed-optimization papers on their data, shortened for a CPU.

The protocols are those of the examples, with a perceptron and a few rounds.
"""

import os
from pathlib import Path

import pytest

from tacit.config.loading import load_config
from tacit.experiment.axes import Axis
from tacit.experiment.grid import grid

EXAMPLES = Path(__file__).parents[3] / "examples"
SHORT = ["model.name=mlp", "run.evaluate_every=6"]

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not os.environ.get("TACIT_DATA"), reason="TACIT_DATA is not set"),
    pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution"),
]


def accuracies(example, settings, variants, folder):
    config = load_config(EXAMPLES / example, [*SHORT, *settings])
    made = grid(config, [Axis("algorithm", tuple(variants))], folder / "out")
    return [setting.mean for setting in made.settings]


def test_accuracy_is_the_same_with_noise_in_z_as_without(tmp_path):
    """σ_z² = 0 and 10⁻² on MNIST. For ADMM tests/theory has the limit."""
    settings = ["run.rounds=2", "algorithm.solver.mu=0.1"]
    variants = ["pdmm+noise.scale=0.0", "pdmm"]
    plain, noisy = accuracies("pdmm-mnist.toml", settings, variants, tmp_path)
    assert plain > 85
    assert abs(noisy - plain) <= 0.5


def test_variance_reduction_helps_defl_vp_on_heterogeneous_data(tmp_path):
    """Fashion-MNIST, Dirichlet(0.3), ε = 1, same seed."""
    settings = ["algorithm.lr=0.001", "algorithm.epsilon=1.0", "run.rounds=4"]
    variants = ["defl-vp", "defl-vp+variance_reduction=false"]
    reduced, plain = accuracies("defl-vp-fashion-mnist.toml", settings, variants, tmp_path)
    assert reduced > plain + 2
