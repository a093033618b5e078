"""What a node counts is what Prometheus reads."""

import math
import re
import sys
import threading

import pytest

from tacit.peer.monitoring.metrics import DESCRIPTIONS, OTHER, SETS, Metrics

SAMPLE = re.compile(r'([a-z_]+)(?:\{([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"\})? (\S+)')
UNESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


def parsed(text):
    """(name, label's value) → number, read strictly: each family once, its help and type first, and no blank line."""
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


def test_a_fresh_node_has_counted_nothing():
    numbers, families = parsed(Metrics().text())
    plain = {name for name, d in DESCRIPTIONS.items() if d.kind == "counter" and d.label is None}
    assert numbers == {(name, ""): 0 for name in plain}
    assert set(families) == plain


def test_all_names_are_described_and_counters_end_as_they_should():
    assert len(DESCRIPTIONS) == 22
    for name, described in DESCRIPTIONS.items():
        assert re.fullmatch(r"tacit_[a-z_]+", name)
        assert name.endswith("_total") == (described.kind == "counter")
        assert "\n" not in described.help
        assert "\\" not in described.help


def test_what_was_counted_and_set_is_read_back():
    measures = Metrics()
    measures.count("tacit_sent_bytes_total", 100, neighbour="a")
    measures.count("tacit_sent_bytes_total", 2**60 + 1, neighbour="b")
    measures.count("tacit_sent_bytes_total", 5, neighbour="a")
    measures.count("tacit_checkpoints_total")
    measures.set("tacit_loss", 0.1)
    measures.set("tacit_loss", 2.5e-30)
    measures.set("tacit_neighbour_up", 1, neighbour="a")
    measures.set("tacit_neighbour_up", 0, neighbour="a")
    assert measures.value("tacit_sent_bytes_total", neighbour="a") == 105
    assert measures.value("tacit_sent_bytes_total", neighbour="never") == 0
    assert measures.value("tacit_round") == 0
    assert measures.total("tacit_sent_bytes_total") == float(2**60 + 106)
    assert measures.total("tacit_retries_total") == 0
    text = measures.text()
    assert f'tacit_sent_bytes_total{{neighbour="b"}} {2**60 + 1}\n' in text  # exactly
    numbers, families = parsed(text)
    assert numbers["tacit_sent_bytes_total", "a"] == 105
    assert numbers["tacit_checkpoints_total", ""] == 1
    assert numbers["tacit_loss", ""] == 2.5e-30
    assert numbers["tacit_neighbour_up", "a"] == 0
    assert families["tacit_sent_bytes_total"] == "counter"
    assert families["tacit_loss"] == "gauge"


def test_every_name_can_be_written_and_read():
    measures = Metrics()
    for place, (name, described) in enumerate(DESCRIPTIONS.items()):
        labels = {described.label: "z"} if described.label else {}
        (measures.count if described.kind == "counter" else measures.set)(name, place, **labels)
    numbers, families = parsed(measures.text())
    assert list(numbers.values()) == list(range(len(DESCRIPTIONS)))
    assert families == {name: described.kind for name, described in DESCRIPTIONS.items()}


@pytest.mark.parametrize(
    "name",
    ['quo"te', "back\\slash", "line\nbreak", '\\"\n\\n', "Zürich", "}", '"} 1\nforged 2', ""],
)
def test_label_values_are_escaped(name):
    measures = Metrics()
    measures.count("tacit_rejected_total", 7, reason=name)
    numbers, _ = parsed(measures.text())
    assert numbers["tacit_rejected_total", name] == 7


def test_half_characters_can_be_sent_all_the_same():
    measures = Metrics()
    measures.count("tacit_rejected_total", reason="\ud800")
    measures.text().encode()


def test_numbers_that_are_none():
    for value, word in ((math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf")):
        measures = Metrics()
        measures.set("tacit_loss", value)
        assert f"tacit_loss {word}\n" in measures.text()
        parsed(measures.text())


def test_mistakes_in_the_program_are_refused():
    measures = Metrics()
    for call in (
        lambda: measures.count("tacit_unknown"),
        lambda: measures.set("tacit_unknown", 1),
        lambda: measures.value("tacit_unknown"),
        lambda: measures.total("tacit_unknown"),
        lambda: measures.count("tacit_sent_bytes_total", 1),
        lambda: measures.count("tacit_sent_bytes_total", 1, reason="a"),
        lambda: measures.set("tacit_loss", 1, neighbour="a"),
    ):
        with pytest.raises(KeyError):
            call()
    for amount in (-1, math.nan):
        with pytest.raises(ValueError, match="counter"):
            measures.count("tacit_retries_total", amount, neighbour="a")
    assert measures.total("tacit_retries_total") == 0


def test_labels_without_end_are_counted_together():
    measures = Metrics()
    for number in range(SETS + 500):
        measures.count("tacit_rejected_total", reason=f"reason {number}")
        measures.count("tacit_rejected_total", reason="reason 0")
    numbers, _ = parsed(measures.text())
    rejected = {
        label: number for (name, label), number in numbers.items() if name == "tacit_rejected_total"
    }
    assert len(rejected) == SETS
    assert rejected[OTHER] == 501
    assert rejected["reason 0"] == SETS + 501
    assert measures.total("tacit_rejected_total") == 2 * (SETS + 500)
    measures.count("tacit_rejected_total", reason="x" * 10_000_000)
    assert len(measures.text()) < 200_000


@pytest.fixture
def eager_threads():
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_fifty_threads_lose_no_count():
    measures = Metrics()
    ready = threading.Barrier(51)

    def work(thread):
        ready.wait()
        for number in range(400):
            measures.count("tacit_letters_sent_total", neighbour=f"n{(thread + number) % 7}")
            measures.set("tacit_step", number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(50)]
    for thread in threads:
        thread.start()
    ready.wait()
    while any(thread.is_alive() for thread in threads):
        parsed(measures.text())  # never torn, whenever it is read
    for thread in threads:
        thread.join()
    assert measures.total("tacit_letters_sent_total") == 20_000
    numbers, _ = parsed(measures.text())
    assert (
        sum(n for (name, _), n in numbers.items() if name == "tacit_letters_sent_total") == 20_000
    )
