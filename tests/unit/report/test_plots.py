"""Figures: what lines they hold, and that their SVG can stand in a page with others."""

import math
import re

import matplotlib
import numpy as np
import pytest

from tacit.core.errors import Misuse
from tacit.record.history import History, Record, Spread
from tacit.report import plots
from tacit.report.drawings import can_draw, graph_figure, partition_figure
from tacit.report.figures import svg
from tacit.report.finished_run import StoredGraph, StoredPartition
from tacit.report.plots import Series

pytestmark = pytest.mark.layout


def history(losses, accuracies=None, distances=None, every=1):
    records = []
    for k, loss in enumerate(losses):
        accuracy = (
            None
            if accuracies is None
            else Spread(*(accuracies[k] + d for d in (0.0, -5.0, 5.0, 1.0)))
        )
        spread = Spread(loss, loss * 0.5, loss * 2, loss * 0.9)
        distance = 1.0 / (k + 1) if distances is None else distances[k]
        records.append(
            Record(k * every, 10 * k * every, accuracy, spread, distance, 1000 * k, 0.1 * k)
        )
    return History(records)


def axes_of(figure):
    (axes,) = figure.axes
    return axes


def means(figure):
    return [line for line in axes_of(figure).lines if line.get_gid().startswith("mean")]


def texts(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_one_run_shows_mean_range_and_average_model():
    figure = plots.accuracy_figure([Series("lppa", (history([1, 1, 1], [10, 20, 30]),))])
    (mean,) = means(figure)
    np.testing.assert_allclose(mean.get_ydata(), [10, 20, 30])
    (dashed,) = [line for line in axes_of(figure).lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(dashed.get_ydata(), [11, 21, 31])
    (band,) = axes_of(figure).collections
    assert band.get_paths()[0].vertices[:, 1].min() == 5
    assert band.get_paths()[0].vertices[:, 1].max() == 35
    assert set(texts(figure)) == {"mean over clients", "average model", "range over clients"}


def test_several_runs_differ_in_colour_and_in_marker():
    series = [Series(f"run {k}", (history([1, 2, 3]),)) for k in range(20)]
    drawn = means(plots.loss_figure(series))
    assert len({(line.get_color(), line.get_marker()) for line in drawn}) == 20
    assert len({(line.get_color(), line.get_marker()) for line in drawn[:7]}) == 7
    assert (
        len({line.get_marker() for line in drawn[:7]})
        == len({line.get_color() for line in drawn[:7]})
        == 7
    )


def test_seeds_become_a_mean_with_their_range():
    runs = tuple(history([1, 1], [a, a + 10]) for a in (20, 30, 70))
    figure = plots.accuracy_figure([Series("dsgt", runs)])
    np.testing.assert_allclose(means(figure)[0].get_ydata(), [40, 50])
    heights = axes_of(figure).collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (
        20,
        80,
    )  # the means of the seeds, not their clients' range
    assert "range over seeds" in texts(figure)


def test_seeds_are_compared_in_the_rounds_they_share():
    runs = (history([1, 2, 3, 4, 5]), history([3, 5, 7], every=2))
    (line,) = means(plots.loss_figure([Series("dsgt", runs)]))
    assert list(line.get_xdata()) == [0, 2, 4]
    np.testing.assert_allclose(line.get_ydata(), [2, 4, 6])


def test_values_that_are_not_finite_are_gaps():
    losses = [3.0, 2.0, math.nan, 1.5, 1.4, math.inf, 1.2]
    figure = plots.loss_figure([Series("lppa", (history(losses),))])
    (line,) = means(figure)
    assert list(np.isnan(line.get_ydata())) == [False, False, True, False, False, True, False]
    assert line.get_markevery() == [6]  # alone between gaps: seen only by its marker
    stroke = line.get_color()
    drawn = re.findall(r'<path d="([^"]*)" clip-path[^>]*stroke: var\(--c0,' + stroke, svg(figure))
    assert max(path.count("M") for path in drawn) >= 2


@pytest.mark.parametrize(
    ("losses", "scale"), [([1, 0.5], "linear"), ([100, 0.1], "log"), ([100, -1], "linear")]
)
def test_loss_is_logarithmic_beyond_two_decades(losses, scale):
    figure = plots.loss_figure([Series("lppa", (history([float(x) for x in losses]),))])
    assert axes_of(figure).get_yscale() == scale


def test_consensus_is_logarithmic_unless_always_zero():
    falling = plots.consensus_figure(
        [Series("a", (history([1, 1, 1], distances=[0.0, 1.0, 1e-6]),))]
    )
    assert axes_of(falling).get_yscale() == "log"
    zero = plots.consensus_figure([Series("a", (history([1, 1], distances=[0.0, 0.0]),))])
    assert axes_of(zero).get_yscale() == "linear"
    assert "10⁻⁶" in svg(falling)


def deviations(*values, every=1):
    spread = Spread(1.0, 1.0, 1.0, 1.0)
    records = [
        Record(k, every * k, None, spread, 0.1, k, 0.1, value) for k, value in enumerate(values)
    ]
    return History(records)


def test_deviations_are_drawn_in_decibels_over_iterations():
    runs = (deviations(1.0, 0.1, 0.0, 0.001, None, every=50),)
    figure = plots.msd_figure([Series("dsgt", runs)])
    (line,) = means(figure)
    assert list(line.get_xdata()) == [0, 50, 100, 150, 200]
    np.testing.assert_allclose(line.get_ydata(), [0, -10, np.nan, -30, np.nan], atol=1e-12)
    assert axes_of(figure).get_ylabel() == "MSD (dB)"
    assert axes_of(figure).get_xlabel() == "iteration"


def test_seeds_are_averaged_before_they_become_decibels():
    figure = plots.msd_figure([Series("dsgt", (deviations(1.0, 0.02), deviations(3.0, 0.18)))])
    np.testing.assert_allclose(means(figure)[0].get_ydata(), [10 * math.log10(2), -10])
    heights = axes_of(figure).collections[0].get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(10 * math.log10(3))
    assert heights.min() == pytest.approx(10 * math.log10(0.02))
    assert "range over seeds" in texts(figure)


def test_many_runs_show_only_means():
    series = [Series(f"run {k}", (history([1, 2]),)) for k in range(plots.MAX_RANGES + 1)]
    assert len(axes_of(plots.loss_figure(series)).lines) == len(series)
    assert not axes_of(plots.loss_figure(series)).collections
    assert len(axes_of(plots.loss_figure(series[:-1])).lines) == 2 * len(series[:-1])


def test_bytes_have_their_own_axis():
    series = [Series("a", (history([1, 1, 1], [10, 20, 30]),))]
    np.testing.assert_allclose(means(plots.bytes_figure(series))[0].get_ydata(), [0, 1000, 2000])
    np.testing.assert_allclose(
        means(plots.accuracy_by_bytes_figure(series))[0].get_xdata(), [0, 1000, 2000]
    )
    assert "2 kB" in svg(plots.bytes_figure(series))


def test_long_and_empty_histories():
    long = Series("long", (history([1.0 + k % 7 for k in range(5_000)]),))
    (line,) = means(plots.loss_figure([long]))
    assert len(line.get_xdata()) <= 1_001
    assert line.get_xdata()[-1] == 4_999
    assert "<svg" in svg(plots.loss_figure([Series("empty", (History(),)), long]))


# --- graphs and partitions ---


def graph(clients=3, edges=((0, 1), (1, 2), (2, 0)), directed=False, positions=None):
    return StoredGraph(
        description="a graph", clients=clients, directed=directed, edges=edges, positions=positions
    )


def strokes(figure):
    """The path of all edges: the first artist added."""
    patches = [patch for patch in axes_of(figure).patches if patch.get_facecolor()[3] == 0]
    return patches[0].get_path()


def lines_in(path):
    return int((path.codes == path.MOVETO).sum())


def test_clients_are_numbered_up_to_forty():
    small = graph_figure(graph())
    assert [text.get_text() for text in axes_of(small).texts] == ["0", "1", "2"]
    ring = [(k, (k + 1) % 41) for k in range(41)]
    assert not axes_of(graph_figure(graph(41, ring))).texts


def test_an_undirected_edge_is_one_line_however_often_it_is_listed():
    once = strokes(graph_figure(graph()))
    twice = strokes(graph_figure(graph(edges=((0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)))))
    assert lines_in(once) == lines_in(twice) == 3
    assert once.CURVE3 not in once.codes


def test_directed_edges_have_arrows_and_curve_where_both_ways_exist():
    one_way = graph_figure(graph(directed=True))
    assert strokes(one_way).CURVE3 not in strokes(one_way).codes
    assert len(axes_of(one_way).patches) == 3  # lines, arrow heads, clients
    both = strokes(graph_figure(graph(edges=((0, 1), (1, 0), (1, 2)), directed=True)))
    assert lines_in(both) == 3
    assert (both.codes == both.CURVE3).sum() == 4  # two curves of two points each


def test_an_edge_goes_around_a_client_in_its_way():
    in_a_row = ((0.0, 0.0), (1.0, 0.0), (2.0, 0.0))
    path = strokes(graph_figure(graph(edges=((0, 1), (1, 2), (0, 2)), positions=in_a_row)))
    assert (path.codes == path.CURVE3).sum() == 2


def test_too_many_edges_cannot_be_drawn():
    assert can_draw(graph())
    assert not can_draw(graph(edges=None))
    crowded = graph(70, [(a, b) for a in range(70) for b in range(a)])
    assert not can_draw(crowded)
    with pytest.raises(Misuse, match="too many edges"):
        graph_figure(crowded)


def test_a_bar_per_client_and_a_colour_per_class():
    partition = StoredPartition(description="two", classes=["cat", "_dog"], counts=[[3, 1], [0, 5]])
    figure = partition_figure(partition)
    cats, dogs = axes_of(figure).patches
    assert cats.get_facecolor() != dogs.get_facecolor()
    assert dogs.get_path().get_extents().y1 == 5
    assert [lines_in(patch.get_path()) for patch in (cats, dogs)] == [1, 2]
    assert [text.strip() for text in texts(figure)] == ["cat", "_dog"]


def test_many_clients_are_sampled_and_many_classes_named_in_part():
    partition = StoredPartition(
        description="many", classes=[f"c{k}" for k in range(100)], counts=[[1] * 100] * 1000
    )
    figure = partition_figure(partition)
    assert axes_of(figure).get_xlabel() == "200 of 1,000 clients, evenly spaced"
    assert len(texts(figure)) < 20
    assert {"c0", "c99"} <= set(texts(figure))


# --- svg ---


def test_svg_is_the_same_each_time_and_leaves_settings_alone():
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context(
        {"lines.linewidth": 9, "svg.fonttype": "path", "axes.facecolor": "red"}
    ):
        first = svg(plots.loss_figure([Series("a", (history([1, 2]),))]))
    second = svg(plots.loss_figure([Series("a", (history([1, 2]),))]))
    assert first == second
    assert dict(matplotlib.rcParams) == before


def test_svg_texts_are_kept_exactly():
    labels = ["lr=0.00125 #0072b2", "cost $5$ <b>&amp;", "_hidden", "学習"]
    drawing = svg(plots.loss_figure([Series(label, (history([1, 2]),)) for label in labels]))
    assert ">lr=0.00125 #0072b2<" in drawing
    assert "cost $5$ &lt;b&gt;&amp;amp;" in drawing
    assert "_hidden" in drawing
    assert "学習" in drawing


def test_svg_has_title_theme_and_no_fixed_size():
    drawing = svg(plots.loss_figure([Series("a", (history([1, 2]),))]), "Loss of <a>", "falls")
    opening = drawing[: drawing.index(">")]
    assert 'role="img"' in opening
    assert "width" not in opening
    assert "<title>Loss of &lt;a&gt;</title><desc>falls</desc>" in drawing
    assert "var(--ink,#1b1f24)" in drawing
    assert "var(--c0,#0072b2)" in drawing


def test_ids_are_prefixed_and_all_references_met():
    drawings = [
        svg(
            draw(
                [
                    Series("a", (history([1, 2], [3, 4]),)),
                    Series("b", (history([2, 2]),)),
                ]
            )
        )
        for draw in (plots.loss_figure, plots.accuracy_figure, plots.bytes_figure)
    ]
    ids = [found for drawing in drawings for found in re.findall(r' id="([^"]+)"', drawing)]
    assert len(ids) == len(set(ids)) > 0
    for drawing in drawings:
        own = set(re.findall(r' id="([^"]+)"', drawing))
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawing)) == own


def test_several_records_of_one_round_are_drawn_over_iterations():
    spread = Spread(1.0, 1.0, 1.0, 1.0)
    records = [Record(step // 13, step, None, spread, 0.1, step, 0.0) for step in range(0, 30, 5)]
    axes = axes_of(plots.loss_figure([Series("dsgt", (History(records),))]))
    assert axes.get_xlabel() == "iteration"
    assert axes.lines[0].get_xdata().tolist() == [0, 5, 10, 15, 20, 25]
