"""The section of a report about guarantees."""

import json
import re

import numpy as np
import pytest
from test_report import make_run

from tacit.core.errors import Misuse
from tacit.privacy.guarantee import Privacy
from tacit.report.finished_run import read_run
from tacit.report.groups import group_runs
from tacit.report.privacy_section import PrivateRun, budget_figure, privacy_section
from tacit.report.report import write_report
from tacit.report.spending import Spending

# `make_run` writes 54 iterations of 4 clients on a ring.
PROMISE = Privacy(epsilon=4.0, delta=1e-4)
BUDGET = PROMISE.budget(0.1, steps=54, clients=4)


def private_run(folder, budget=BUDGET, algorithm="private-sgd", **changes):
    privacy = budget.as_dict() | {"spent": budget.spent(54)} | changes
    return make_run(folder, algorithm, privacy=privacy)


def section(*folders):
    return privacy_section(group_runs([read_run(folder) for folder in folders]))


def test_the_promise_and_what_is_spent(tmp_path):
    html = section(private_run(tmp_path / "one"))
    assert "spent at δ = 0.0001 per training sample, if 3 of 4 clients are honest" in html
    assert "one training sample" in html
    assert html.count("<svg") == 1


@pytest.mark.parametrize("simulated", [True, False])
def test_a_simulated_guarantee_is_labelled_where_the_guarantee_is(tmp_path, simulated):
    folder = private_run(tmp_path / "one", simulated=simulated)
    page = write_report([folder], tmp_path / "page.html", title="One").read_text()
    answer, privacy = page.split("<nav")[0], page.split(">Privacy</h2>")[1]
    for part in (answer, privacy):
        assert ("This is a simulation of the guarantee" in part) == simulated


def test_epsilon_against_the_worst_coalition_of_each_size(tmp_path):
    html = section(private_run(tmp_path / "one"))
    rows = html.split("<tbody")[1].split("</tr>")[:4]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    # On a ring of four, two opposite clients cut off each of the others.
    assert [row[0] for row in cells] == ["4", "3", "1", "1"]
    assert [row[2] for row in cells] == ["yes", "yes", "no", "no"]
    assert float(cells[2][1]) == pytest.approx(BUDGET.epsilon_against(1), rel=0.01)


def test_an_algorithm_without_masks_has_no_table_of_sums(tmp_path):
    html = section(private_run(tmp_path / "one", algorithm="decor"))
    assert "Privacy budget" in html
    assert "ε against coalitions" not in html


def test_without_edges_the_coalitions_are_not_computed(tmp_path):
    folder = private_run(tmp_path / "one")
    path = folder / "graph.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"edges": None}))
    assert section(folder).count("not computed") == 2 * 4


def test_without_noise_there_is_a_sentence_only(tmp_path):
    html = section(private_run(tmp_path / "one", epsilon=None, spent=None, noise_multiplier=0.0))
    assert "<p>No guarantee" in html
    assert "<svg" not in html


def test_only_pages_about_a_promise_have_the_section(tmp_path):
    plain, private = make_run(tmp_path / "a", privacy=None), private_run(tmp_path / "b")
    assert section(plain) == ""
    page = write_report([plain, private], tmp_path / "both.html", title="Both").read_text()
    assert ">Privacy</h2>" in page
    assert "<strong>private-sgd</strong>: ε = " in page
    page = write_report([plain], tmp_path / "plain.html", title="Plain").read_text()
    assert ">Privacy</h2>" not in page


def test_the_curve_rises_to_what_is_spent_below_the_promise(tmp_path):
    run = read_run(private_run(tmp_path / "one"))
    spending = Spending(BUDGET, BUDGET.spent(54), 54, 4)
    (axes,) = budget_figure([PrivateRun(0, "one", run, spending)]).axes
    lines = {line.get_gid(): line for line in axes.lines}
    spent = lines["spent-0"].get_ydata()
    assert spent[0] == 0
    assert (np.diff(spent) > 0).all()
    assert spent[-1] == BUDGET.spent(run.history[-1].step) <= BUDGET.epsilon
    assert set(lines["promise-0"].get_ydata()) == {4.0}


def test_a_damaged_budget_is_named(tmp_path):
    with pytest.raises(Misuse, match="delta is 'small'"):
        section(private_run(tmp_path / "one", delta="small"))
