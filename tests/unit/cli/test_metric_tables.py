from tacit.cli.metric_tables import print_alerts, print_metrics

SPREAD = {"mean": 0.5, "min": 0.25, "max": 0.75, "average_model": None}
SUMMARY = {
    "accuracy": {"mean": 89.9, "min": 89.9, "max": 89.9, "average_model": 89.9},
    "baseline": 89.9,
    "metrics": {"f1": SPREAD, "balanced-accuracy": SPREAD},
}


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def test_accuracy_has_its_baseline_below(capsys):
    print_metrics(SUMMARY)
    accuracy, baseline, f1, balanced = lines(capsys)
    assert accuracy.startswith("accuracy 89.90 %")
    assert baseline.startswith("majority baseline 89.90 %")
    assert f1 == "f1 0.5 (clients 0.25 to 0.75, average model –)"
    assert balanced.startswith("balanced-accuracy 0.5 %")


def test_a_regression_has_neither(capsys):
    print_metrics({"accuracy": None, "baseline": None})
    print_alerts({})
    assert lines(capsys) == []


def test_clients_with_own_test_sets_have_a_table(capsys):
    per_client = {
        "client": [0, 7],
        "accuracy": [89.9, 90.1],
        "loss": [0.5, 0.5],
        "f1": [0.0, 0.25],
        "own_test.loss": [0.5, None],
        "own_test.accuracy": [92.0, None],
        "own_test.baseline": [93.0, None],
        "own_test.f1": [0.5, None],
    }
    print_metrics(SUMMARY | {"own_test": {"f1": SPREAD}, "per_client": per_client})
    text = "\n".join(lines(capsys))
    assert "Each client" in text
    rows = [line for line in text.splitlines() if line.startswith("│")]
    cells = [cell.strip() for cell in rows[0].strip("│").split("│")]
    assert cells == ["0", "89.9 / 92.0", "89.9 / 93.0", "0 / 0.5"]
    assert "90.1 / –" in rows[1]


def test_what_misleads_is_printed_loudly(capsys):
    print_alerts({"alerts": ["The model predicts only class [ill]."]})
    assert lines(capsys) == ["WARNING: The model predicts only class [ill]."]
