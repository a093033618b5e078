"""Results say in a line what they are, and have a table for notebooks."""

import pytest
import torch

import tacit
from tacit.core.notebooks import html_table


@pytest.fixture(scope="module")
def run():
    task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.ones(5, 2))
    graph = tacit.Topology.ring(5).mixing("metropolis")
    return tacit.simulate(tacit.DSGT(lr=0.1), task, graph, steps=4)


@pytest.fixture(scope="module")
def results(run):
    return {
        "Graph": run.setting.graph,
        "Task": run.setting.task,
        "Run": run,
        "History": run.history,
        "Audit": tacit.audit(run, "curious(1)", attacks=False),
        "Dataset": tacit.data.load("mnist-mini"),
    }


@pytest.mark.parametrize("kind", ["Graph", "Task", "Run", "History", "Audit", "Dataset"])
def test_results_have_a_line_and_a_table(kind, results):
    line = repr(results[kind])
    assert line.startswith(f"{kind}(")
    assert "\n" not in line
    assert len(line) < 200
    html = results[kind]._repr_html_()
    assert html.startswith("<p><b>")
    assert "<svg" in html if kind == "Graph" else "<td>" in html


def test_details_are_in_the_tables(results):
    assert results["Graph"]._repr_html_().count("<line") == 5
    assert "dsgt" in results["Run"]._repr_html_()
    assert "exposed" in results["Audit"]._repr_html_()
    assert "curious(1)" in str(results["Audit"])
    assert repr(results["Dataset"].train).startswith("Split(")


def test_a_large_graph_is_not_drawn():
    assert "<svg" not in tacit.Topology.ring(500).mixing("metropolis")._repr_html_()


def test_cells_are_escaped():
    assert html_table("a<b", ["<i>"], [["&"]]) == (
        "<p><b>a&lt;b</b></p><table><tr><th>&lt;i&gt;</th></tr><tr><td>&amp;</td></tr></table>"
    )


def test_a_history_as_a_data_frame(run):
    pytest.importorskip("pandas")
    table = run.history.to_pandas()
    assert list(table["loss.mean"]) == run.history.column("loss.mean")
    assert list(table["step"]) == [record.step for record in run.history]
    assert list(table.columns[:2]) == ["round", "step"]
    assert "accuracy.mean" not in table
