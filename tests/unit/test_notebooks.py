"""Results say in a line what they are, and have a table for notebooks."""

from html import escape

import pytest
import torch
from rich.console import Console

import tacit
from tacit.core.notebooks import html_table


@pytest.fixture(scope="module")
def run():
    task = tacit.quadratic(torch.eye(2).repeat(5, 1, 1), torch.ones(5, 2))
    graph = tacit.Topology.ring(5).mixing("metropolis")
    return tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=4)


@pytest.fixture(scope="module")
def results(run):
    return {
        "Graph": run.setting.graph,
        "Objective": run.setting.task,
        "Run": run,
        "History": run.history,
        "Audit": tacit.audit(run, "curious(1)", attacks=False),
        "Dataset": tacit.data.load("mnist-mini"),
    }


def test_the_answer_of_an_audit_in_plain_language(results):
    answer = results["Audit"].answer
    assert answer.level == "no"
    assert answer.verdict == "No: gradients leak exactly"
    assert repr(answer) == "Answer('no', 'No: gradients leak exactly')"
    text, html = str(answer), answer._repr_html_()
    assert text.startswith("Is it safe to take part? No: gradients leak exactly\n")
    for sentence in (answer.reason, *answer.learns, *answer.guarantee, *answer.limits):
        assert sentence in text
        assert escape(sentence) in html
    assert "What would change" not in text


@pytest.mark.parametrize("kind", ["Graph", "Objective", "Run", "History", "Audit", "Dataset"])
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


def test_the_bar_in_a_notebook_needs_no_widgets(monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data)

    def show(data, raw, display_id):
        shown.append(data)
        return Handle()

    monkeypatch.setattr(display, "display", show)
    monkeypatch.setattr("rich._console", Console(force_jupyter=True))
    task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
    graph = tacit.Topology.ring(3).mixing("metropolis")
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=20, progress=True)
    assert shown[0]["text/plain"] == "0 of 20 iterations"
    last = f"20 of 20 iterations: {run.history[-1].describe()}"
    assert shown[-1]["text/plain"] == last
    assert shown[-1]["text/html"] == f'<progress value="20" max="20"></progress> {last}'
