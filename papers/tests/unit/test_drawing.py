"""Figures of incomplete and of diverging results show what is there."""

from filled_results import fill

from tacit_papers.framework.columns import Column, panels


def test_a_repeat_that_diverges_is_named_in_the_figure():
    def repeat(loss, error):
        return {"error": 0.0, "curve": {"iteration": [0, 1], "loss": loss, "error": error}}

    fine, diverged = repeat([0.5, 0.1], [0.0, 1e-9]), repeat([0.5, 1e22], [1e-9, None])
    values = {("CFL",): [fine, fine], ("DFL",): [fine, diverged]}
    artifact, result = fill("dfl-opt/fig2", values.get)
    figure = artifact.draw(result)
    assert [axes.get_title() for axes in figure.axes] == ["DFL: 1 of 2 repeats diverge"] * 2
    assert all(axes.get_ylim()[1] <= 100 for axes in figure.axes)


def test_rows_of_repeats_name_what_diverges_in_their_own_row_only():
    def repeat(loss):
        return {"curve": {"step": [0, 1], "loss": loss, "accuracy": [10.0, 50.0]}}

    fine, diverged = repeat([2.0, 1.0]), repeat([2.0, None])
    values = {
        ("MNIST", "CFL"): [fine, fine],
        ("MNIST", "DFL"): [fine, fine],
        ("CIFAR10, VGG-11", "DFL"): [fine, diverged, diverged],
    }
    artifact, result = fill("dfl-opt/fig10", values.get)
    titles = [axes.get_title() for axes in artifact.draw(result).axes]
    named = "CIFAR10, VGG-11\nDFL: 2 of 3 repeats diverge"
    assert titles == ["MNIST", "MNIST", named, "CIFAR10, VGG-11"]


def test_components_that_were_not_measured_leave_one_panel():
    one = {"ssim": 0.5, "curve": {"iteration": [1, 2], "ssim": [0.5, 0.5]}}
    artifact, result = fill("dfl-opt/fig11", {("DLG", "1", "CFL, gradient"): one}.get)
    assert [axes.get_title() for axes in artifact.draw(result).axes] == ["DLG"]


def test_a_column_shows_how_many_repeats_have_a_number():
    values = {("D-PSGD",): [{"rounds": 3.0}, {"rounds": None}]}
    _, result = fill("defl-vp/table1", values.get)
    (axes,) = panels([Column("rounds", "rounds", {}, 1.0)])(result).axes
    assert [text.get_text() for text in axes.texts] == ["1 of 2"]


def test_bars_on_a_logarithmic_axis_stay_above_zero():
    values = {("MNIST", "DSGT"): [{"median_mse": 1e-6}, {"median_mse": 1.0}]}
    artifact, result = fill("lppa/table2", values.get)
    (axes,) = artifact.draw(result).axes
    (bar,) = axes.collections[0].get_segments()
    assert [round(float(y), 9) for _, y in bar] == [1e-6, 1.0]
