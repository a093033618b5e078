import re

import pytest

from tacit.config.build import build
from tacit.config.loading import with_keys
from tacit.config.variants import make_variant
from tacit.core.errors import Misuse
from tacit.experiment import demo
from tacit.experiment.run import ProgressListener


def quiet(label, seed):
    return ProgressListener()


@pytest.fixture
def short(monkeypatch):
    """The demonstration with one round on few digits."""
    config = with_keys(
        with_keys(demo.demo_config(), "run", rounds=1), "data", limit_train=800, limit_test=50
    )
    monkeypatch.setattr(demo, "demo_config", lambda: config)
    return config


def test_the_four_algorithms_are_shown_with_what_a_neighbour_sees(short, tmp_path):
    shown = demo.run_demo(tmp_path / "out", quiet)
    assert [line.label for line in shown.rows] == ["dsgt", "dp-dsgt", "lppa", "private-sgd"]
    assert [line.protection for line in shown.rows] == [
        "no protection",
        "own noise",
        "noise that cancels",
        "masked sums, ε = 3",
    ]
    errors = [line.first_message_error for line in shown.rows]
    assert errors[0] == 0
    assert min(errors[1:3]) > 0.5
    # A neighbour sees no gradient of private-sgd.
    assert errors[3] is None
    assert shown.rows[3].as_dict()["epsilon"] == 3
    page = shown.report.read_text()
    assert shown.report == tmp_path / "out" / "report.html"
    assert "What a neighbour sees" in page
    answer = page.index("Is it safe to take part?")
    assert answer < page.index("<nav")
    verdicts = re.findall(r'class="verdict-cell (\w+)"', page)
    assert verdicts == ["no", "leaks", "no", "weak"]
    assert f"{100 * errors[2]:.0f} %" in page


def test_the_error_grows_with_the_noise(short):
    louder = with_keys(short, "algorithm", noise={"law": "laplace", "scale": 0.1})
    for name in ("dp-dsgt", "lppa"):
        few, many = (
            demo.first_message_error(build(make_variant(config, name, [name])))
            for config in (short, louder)
        )
        assert many == pytest.approx(10 * few, rel=1e-3)


def test_a_folder_that_is_not_empty_is_refused_before_training(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(Misuse, match="not empty"):
        demo.run_demo(tmp_path, quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_accuracies_and_errors_are_formatted():
    def cells(accuracy, error):
        summary = {"algorithm": "a", "accuracy": {"mean": accuracy}}
        return demo.DemoRow(summary, "p", error).cells

    assert cells(90.06, 1.234) == ["a", "p", "90.1 %", "123 %"]
    assert cells(None, 0.0) == ["a", "p", "–", "0 % (sees it all)"]
    assert cells(None, None) == ["a", "p", "–", "nothing but the noisy sum"]


def test_the_audit_proves_the_guarantee_that_the_demonstration_states():
    experiment = build(demo.private_config(demo.demo_config()))
    budget = experiment.algorithm.budget
    audits = demo.audit_all({"private-sgd": experiment})
    results = audits["private-sgd"].results
    one, both = (result.ledgers[0].best.epsilon for result in results)
    assert one == pytest.approx(budget.spent(experiment.steps), rel=1e-3)
    assert one <= budget.epsilon == 3
    # Client 0 alone is left, with its own noise.
    assert both == pytest.approx(budget.epsilon_against(1), rel=1e-3)
    sentence = demo.audit_sentences(audits)[-1]
    assert "private-sgd, with ε = 3 per training sample against one neighbour" in sentence


def test_the_audit_says_so_if_no_algorithm_has_a_guarantee(short):
    experiment = build(make_variant(short, "lppa", ["lppa"]))
    sentences = demo.audit_sentences(demo.audit_all({"lppa": experiment}))
    assert sentences[-1] == "Differential privacy: none of them."
