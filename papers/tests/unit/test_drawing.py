"""Figures of incomplete and of diverging results say what is there."""

from tacit_papers.framework.artifact import Scale
from tacit_papers.framework.columns import Column, panels
from tacit_papers.framework.outcome import ArtifactResult, Filled
from tacit_papers.framework.registry import ARTIFACTS


def outcome_of(name, values):
    cells = [Filled(key, None, {}, dict(enumerate(repeats))) for key, repeats in values.items()]
    return ArtifactResult(ARTIFACTS[name], Scale(), cells)


def test_a_repeat_that_diverges_is_named_in_the_figure():
    def repeat(loss, error):
        return {"error": 0.0, "curve": {"iteration": [0, 1], "loss": loss, "error": error}}

    fine, gone = repeat([0.5, 0.1], [0.0, 1e-9]), repeat([0.5, 1e22], [1e-9, None])
    outcome = outcome_of("dfl-opt/fig2", {("CFL",): [fine, fine], ("DFL",): [fine, gone]})
    figure = outcome.artifact.draw(outcome)
    assert [axes.get_title() for axes in figure.axes] == ["DFL: 1 of 2 repeats diverge"] * 2
    assert all(axes.get_ylim()[1] <= 100 for axes in figure.axes)


def test_components_that_were_not_measured_leave_one_panel():
    one = {"ssim": 0.5, "curve": {"iteration": [1, 2], "ssim": [0.5, 0.5]}}
    outcome = outcome_of("dfl-opt/fig11", {("DLG", "1", "CFL, gradient"): [one]})
    assert [axes.get_title() for axes in outcome.artifact.draw(outcome).axes] == ["DLG"]


def test_a_column_says_how_many_repeats_have_a_number():
    outcome = outcome_of("defl-vp/table1", {("D-PSGD",): [{"rounds": 3.0}, {"rounds": None}]})
    (axes,) = panels([Column("rounds", "rounds", {}, 1.0)])(outcome).axes
    assert [text.get_text() for text in axes.texts] == ["1 of 2"]


def test_bars_on_a_logarithmic_axis_stay_above_zero():
    outcome = outcome_of(
        "lppa/table2", {("MNIST", "DSGT"): [{"median_mse": 1e-6}, {"median_mse": 1.0}]}
    )
    (axes,) = outcome.artifact.draw(outcome).axes
    (bar,) = axes.collections[0].get_segments()
    assert [round(float(y), 9) for _, y in bar] == [1e-6, 1.0]
