"""The claim of the LPPA paper on its data: masks cost no accuracy, own noise does.

Shortened for a CPU: the protocol of examples/lppa-fashion-mnist.toml with a perceptron.
"""

import os
from pathlib import Path

import pytest

from tacit.config.loading import load_config
from tacit.experiment.axes import Axis
from tacit.experiment.grid import grid

PROTOCOL = Path(__file__).parents[3] / "examples" / "lppa-fashion-mnist.toml"
SHORTER = ["model.name=mlp", "algorithm.lr.start=0.05", "run.rounds=6", "run.evaluate_every=6"]


@pytest.mark.realdata
@pytest.mark.skipif(not os.environ.get("TACIT_DATA"), reason="TACIT_DATA is not set")
def test_masks_cost_nothing_and_noise_costs_much(tmp_path):
    masked = "lppa+noise.scale=0.5"  # twenty times the noise of the paper
    axis = Axis("algorithm", ("dsgt", masked, "dp-dsgt"))
    made = grid(load_config(PROTOCOL, SHORTER), [axis], tmp_path / "out")
    accuracy = {setting.label: setting.mean for setting in made.settings}
    assert accuracy["dsgt"] > 72
    assert abs(accuracy[masked] - accuracy["dsgt"]) <= 0.3, accuracy
    noisy = accuracy.pop("dp-dsgt")
    assert noisy < min(accuracy.values()) - 3, accuracy
