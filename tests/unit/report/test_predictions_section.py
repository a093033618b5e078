import json

import pytest

from tacit.core.errors import Misuse
from tacit.experiment.run import run
from tacit.report.figures import svg
from tacit.report.finished_run import StoredConfusion, read_run
from tacit.report.groups import group_runs
from tacit.report.predictions_section import (
    confusion_figure,
    predictions_section,
)
from tacit.report.report import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run that has learnt nothing, with metrics."""
    from tacit.config.loading import make_config

    config = make_config(
        {
            "data": {"name": "mnist-mini", "limit_train": 120, "limit_test": 40},
            "model": {"name": "linear"},
            "graph": {"kind": "ring", "clients": 3},
            "algorithm": {"name": "dsgt", "lr": 1e-9},
            "run": {"rounds": 1, "batch_size": 20, "metrics": ["auc", "f1"]},
        }
    )
    path = tmp_path_factory.mktemp("runs") / "bad"
    run(config, path)
    return path


def change(folder, tmp_path, **keys):
    """A copy of the run with other values in its summary."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps(summary | keys))
    return copy


def test_a_page_shows_predictions_metrics_and_the_baseline(folder, tmp_path):
    page = write_report([folder], tmp_path / "page.html", title="A run").read_text()
    assert "Majority baseline" in page
    assert "Confusion matrix" in page
    assert ">Predictions</h2>" in page
    assert page.count("<h3>AUC</h3>") == page.count("<h3>F1</h3>") == 1
    [group] = group_runs([read_run(folder)])
    last = group.runs[0].last
    tiles = page[page.index('<dl class="tiles">') :].split("</dl>")[0]
    assert f"{last.metrics['auc'].mean:.4g}" in tiles
    assert len(last.per_client["auc"]) == 3
    assert f">{last.per_client['f1'][0]:.4g}</td>" in page


def test_what_misleads_is_said_above_everything(folder, tmp_path):
    alert = "Accuracy 89.90 % does not beat <the> majority baseline."
    copy = change(folder, tmp_path, alerts=[alert])
    page = write_report([copy], tmp_path / "page.html", title="A run").read_text()
    warned = page.index("The accuracy misleads.")
    # Only the answer comes first.
    assert warned < page.index('<h2 id="part-1"')
    assert "does not beat &lt;the&gt; majority" in page
    plain = change(copy, tmp_path / "copy", alerts=[])
    page = write_report([plain], tmp_path / "page.html", title="A run").read_text()
    assert "The accuracy misleads." not in page


def test_clients_have_their_names(folder, tmp_path):
    copy = change(folder, tmp_path, names=["north", "<south>", "west"])
    html = predictions_section(group_runs([read_run(copy)]))
    assert ">north</th>" in html
    assert ">&lt;south&gt;</th>" in html


def test_runs_of_before_have_no_section(folder, tmp_path):
    copy = change(folder, tmp_path)
    summary = json.loads((copy / "summary.json").read_text())
    for key in ("confusion", "metrics", "per_client", "baseline", "alerts"):
        summary.pop(key, None)
    (copy / "summary.json").write_text(json.dumps(summary))
    lines = (copy / "history.jsonl").read_text().splitlines()
    old = [
        {k: v for k, v in json.loads(one).items() if k not in ("baseline", "metrics", "per_client")}
        for one in lines
    ]
    (copy / "history.jsonl").write_text("".join(json.dumps(one) + "\n" for one in old))
    assert predictions_section(group_runs([read_run(copy)])) == ""
    page = write_report([copy, folder], tmp_path / "page.html", title="Both").read_text()
    assert page.count("<h3>AUC</h3>") == 1


@pytest.mark.parametrize("counts", [[[1, 2]], [[1, 2], [3]], [[1, 2, 3], [1, 2, 3]]])
def test_a_matrix_of_another_shape_is_refused(folder, tmp_path, counts):
    confusion = {"classes": ["a", "b"], "counts": counts, "models": 1}
    with pytest.raises(Misuse, match="one row and column per class"):
        read_run(change(folder, tmp_path, confusion=confusion))


def test_the_figure_names_classes_and_has_colours_of_both_themes():
    confusion = StoredConfusion(classes=["healthy", "ill"], counts=[[9, 0], [1, 0]], models=1)
    drawing = svg(confusion_figure(confusion))
    assert "healthy" in drawing
    assert "var(--c0,#0072b2)" in drawing
    assert "var(--c1,#d55e00)" in drawing
    assert ">100</text>" in drawing


def test_many_classes_are_drawn_without_numbers():
    counts = [[int(i == j) for j in range(40)] for i in range(40)]
    confusion = StoredConfusion(classes=[f"c{k}" for k in range(40)], counts=counts, models=1)
    drawing = svg(confusion_figure(confusion))
    assert ">100</text>" not in drawing
    assert ">c38</text>" in drawing
