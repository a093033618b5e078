"""The figure of a plan: its curves, and the files it is written to."""

import matplotlib.image
import numpy as np
import pytest

from support.misuse import assert_mentions, misuse_message
from tacit.privacy.planning import Training, plan_epsilon, plan_noise
from tacit.report.privacy_figures import privacy_figure, write_privacy_figure

pytestmark = pytest.mark.layout

SMALL = Training(rounds=6, samples=1_000, batch=50, delta=1e-4)


@pytest.fixture(scope="module")
def plan():
    return plan_noise(SMALL, 2.0)


def test_the_figure_has_epsilon_over_rounds_and_noise_against_epsilon(plan):
    left, right = privacy_figure(plan).axes
    (curve,) = [line for line in left.lines if line.get_gid() == "epsilon"]
    assert curve.get_xdata()[0] == 0
    assert curve.get_xdata()[-1] == 6
    assert (np.diff(curve.get_xdata()) > 0).all()
    assert (np.diff(curve.get_ydata()) > 0).all()
    assert curve.get_ydata()[-1] == pytest.approx(2.0, rel=2e-3)
    curves = [line for line in right.lines if line.get_gid() == "noise"]
    assert [line.get_label() for line in curves] == ["batch 25", "batch 50", "batch 100"]
    (point,) = [line for line in right.lines if line.get_label() == "this plan"]
    assert point.get_ydata()[0] == pytest.approx(100 * plan.relative_noise)
    assert right.get_xscale() == right.get_yscale() == "log"


def test_clients_instead_of_samples():
    plan = plan_epsilon(Training(rounds=1, clients=8, unit="client", delta=1e-2), 4.0)
    figure = privacy_figure(plan)
    labels = [line.get_label() for line in figure.axes[1].lines if line.get_gid() == "noise"]
    assert labels == ["4 clients", "8 clients", "16 clients"]
    assert "one client" in figure.get_suptitle()


@pytest.mark.parametrize("name", ["plan.png", "plan.SVG", "plan.pdf"])
def test_files(plan, tmp_path, name):
    write_privacy_figure(plan, tmp_path / name)
    assert (tmp_path / name).stat().st_size > 5_000
    if name.endswith("png"):
        assert matplotlib.image.imread(tmp_path / name).shape[:2] == (640, 1536)


def test_files_that_cannot_be_written(plan, tmp_path):
    message = misuse_message(write_privacy_figure, plan, tmp_path / "plan.gif")
    assert_mentions(message, "plan.gif", ".png")
    message = misuse_message(write_privacy_figure, plan, tmp_path / "none" / "plan.png")
    assert_mentions(message, "no folder", "none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("noise", [1e-7, 1e8])
def test_a_plan_without_a_finite_epsilon_is_not_drawn(noise):
    assert_mentions(misuse_message(privacy_figure, plan_epsilon(SMALL, noise)), "nothing to draw")
