"""Metrics read back as they were written, in the text format of Prometheus."""

import math
import re
import sys
import threading

import pytest

from tacit.peer.monitoring.metrics import DESCRIPTIONS, MAX_SERIES, OTHER, Metrics

SAMPLE = re.compile(r'([a-z_]+)(?:\{([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"\})? (\S+)')
UNESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


def parsed(text):
    """(metric, label value) → number, read strictly: help and type first, no blank lines."""
    assert text.endswith("\n")
    numbers, families, current = {}, {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current, helped = line.removeprefix("# HELP ").split(" ", 1)
            assert current not in families
            assert helped
            families[current] = None
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert name == current
            assert families[name] is None
            assert kind in ("counter", "gauge")
            families[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, label, value, number = match.groups()
            assert name == current
            assert families[name] is not None
            assert label == DESCRIPTIONS[name].label
            value = re.sub(r'\\["\\n]', lambda found: UNESCAPED[found[0]], value or "")
            assert (name, value) not in numbers
            numbers[name, value] = float(number.replace("Inf", "inf"))
    return numbers, families


def test_counters_start_at_zero():
    numbers, families = parsed(Metrics().text())
    plain = {name for name, d in DESCRIPTIONS.items() if d.kind == "counter" and d.label is None}
    assert numbers == {(name, ""): 0 for name in plain}
    assert set(families) == plain


def test_what_was_counted_and_set_is_read_back():
    metrics = Metrics()
    metrics.count("tacit_sent_bytes_total", 100, neighbour="a")
    metrics.count("tacit_sent_bytes_total", 2**60 + 1, neighbour="b")
    metrics.count("tacit_sent_bytes_total", 5, neighbour="a")
    metrics.count("tacit_checkpoints_total")
    metrics.set("tacit_loss", 0.1)
    metrics.set("tacit_loss", 2.5e-30)
    metrics.set("tacit_neighbour_up", 1, neighbour="a")
    metrics.set("tacit_neighbour_up", 0, neighbour="a")
    assert metrics.value("tacit_sent_bytes_total", neighbour="a") == 105
    assert metrics.value("tacit_sent_bytes_total", neighbour="never") == 0
    assert metrics.value("tacit_round") == 0
    assert metrics.total("tacit_sent_bytes_total") == float(2**60 + 106)
    assert metrics.total("tacit_retries_total") == 0
    text = metrics.text()
    assert f'tacit_sent_bytes_total{{neighbour="b"}} {2**60 + 1}\n' in text  # exactly
    numbers, families = parsed(text)
    assert numbers["tacit_sent_bytes_total", "a"] == 105
    assert numbers["tacit_checkpoints_total", ""] == 1
    assert numbers["tacit_loss", ""] == 2.5e-30
    assert numbers["tacit_neighbour_up", "a"] == 0
    assert families["tacit_sent_bytes_total"] == "counter"
    assert families["tacit_loss"] == "gauge"


def test_a_function_is_called_whenever_metrics_are_read():
    metrics, now = Metrics(), [1.5]
    metrics.set_function("tacit_privacy_epsilon_spent", lambda: now[0])
    assert parsed(metrics.text())[0]["tacit_privacy_epsilon_spent", ""] == 1.5
    now[0] = 2.5
    assert parsed(metrics.text())[0]["tacit_privacy_epsilon_spent", ""] == 2.5
    with pytest.raises(KeyError, match="has neighbour, not none"):
        metrics.set_function("tacit_retries_total", lambda: 1.0)


@pytest.mark.parametrize(
    "name",
    ['quo"te', "back\\slash", "line\nbreak", '\\"\n\\n', "Zürich", "}", '"} 1\nforged 2', ""],
)
def test_label_values_are_escaped(name):
    metrics = Metrics()
    metrics.count("tacit_rejected_total", 7, reason=name)
    numbers, _ = parsed(metrics.text())
    assert numbers["tacit_rejected_total", name] == 7


def test_lone_surrogates_are_replaced():
    metrics = Metrics()
    metrics.count("tacit_rejected_total", reason="\ud800")
    metrics.text().encode()


def test_nan_and_infinity():
    for value, word in ((math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf")):
        metrics = Metrics()
        metrics.set("tacit_loss", value)
        assert f"tacit_loss {word}\n" in metrics.text()
        parsed(metrics.text())


def test_unknown_names_and_labels_raise():
    metrics = Metrics()
    for call in (
        lambda: metrics.count("tacit_unknown"),
        lambda: metrics.set("tacit_unknown", 1),
        lambda: metrics.value("tacit_unknown"),
        lambda: metrics.total("tacit_unknown"),
        lambda: metrics.count("tacit_sent_bytes_total", 1),
        lambda: metrics.count("tacit_sent_bytes_total", 1, reason="a"),
        lambda: metrics.set("tacit_loss", 1, neighbour="a"),
    ):
        with pytest.raises(KeyError):
            call()
    for amount in (-1, math.nan):
        with pytest.raises(ValueError, match="counter"):
            metrics.count("tacit_retries_total", amount, neighbour="a")
    assert metrics.total("tacit_retries_total") == 0


def test_unlimited_label_values_are_counted_together():
    metrics = Metrics()
    for number in range(MAX_SERIES + 500):
        metrics.count("tacit_rejected_total", reason=f"reason {number}")
        metrics.count("tacit_rejected_total", reason="reason 0")
    numbers, _ = parsed(metrics.text())
    rejected = {
        label: number for (name, label), number in numbers.items() if name == "tacit_rejected_total"
    }
    assert len(rejected) == MAX_SERIES
    assert rejected[OTHER] == 501
    assert rejected["reason 0"] == MAX_SERIES + 501
    assert metrics.total("tacit_rejected_total") == 2 * (MAX_SERIES + 500)
    metrics.count("tacit_rejected_total", reason="x" * 10_000_000)
    assert len(metrics.text()) < 200_000


@pytest.fixture
def eager_threads():
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_fifty_threads_lose_no_count():
    metrics = Metrics()
    ready = threading.Barrier(51)

    def work(thread):
        ready.wait()
        for number in range(400):
            metrics.count("tacit_messages_sent_total", neighbour=f"n{(thread + number) % 7}")
            metrics.set("tacit_step", number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(50)]
    for thread in threads:
        thread.start()
    ready.wait()
    while any(thread.is_alive() for thread in threads):
        parsed(metrics.text())  # never torn, whenever it is read
    for thread in threads:
        thread.join()
    assert metrics.total("tacit_messages_sent_total") == 20_000
    numbers, _ = parsed(metrics.text())
    assert (
        sum(n for (name, _), n in numbers.items() if name == "tacit_messages_sent_total") == 20_000
    )
