"""Reports: the content of a page, that it loads nothing, and errors of damaged run folders."""

import json
import math
from html import escape
from html.parser import HTMLParser

import pytest

from tacit.core.errors import Misuse
from tacit.record.history import History, Record, Spread
from tacit.report.page import format_bytes, format_duration
from tacit.report.report import write_report

ACCURACY = {"mean": 81.234, "min": 71.5, "max": 91.75, "average_model": 86.125}


def make_run(
    folder, algorithm="lppa", seed=0, lr=0.1, accurate=True, rounds=6, config="", **summary
):
    folder.mkdir(parents=True)
    records = []
    for k in range(rounds):
        accuracy = (
            Spread(50.0 + 5 * k, 40.0 + 5 * k, 60.0 + 5 * k, 55.0 + 5 * k) if accurate else None
        )
        loss = math.nan if k == 3 else 2.0 / (k + 1)
        records.append(
            Record(
                k, 9 * k, accuracy, Spread(loss, loss, loss, loss), 0.5**k, 1_000_000 * k, 0.2 * k
            )
        )
    (folder / "history.jsonl").write_text(History(records).to_jsonl())
    outcome = {
        "algorithm": algorithm, "steps": 9 * rounds, "rounds": rounds, "clients": 4,
        "parameters": 7850, "accuracy": ACCURACY if accurate else None,
        "loss": {"mean": 0.33312, "min": 0.2, "max": 0.4, "average_model": 0.30541},
        "consensus_distance": 0.03125, "bytes_sent": 5_000_000, "wall_seconds": 125.0, "seed": seed,
    } | summary  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(outcome))
    text = f'[algorithm]\nname = "{algorithm}"\nlr = {lr}\n\n[run]\nseed = {seed}\n{config}'
    (folder / "config.toml").write_text(text)
    ring = [[k, (k + 1) % 4] for k in range(4)]
    picture = {"description": "ring(4), metropolis", "clients": 4, "directed": False, "edges": ring}
    (folder / "graph.json").write_text(json.dumps(picture | {"positions": None}))
    held = {
        "description": "Dirichlet(0.5)",
        "classes": ["zero", "one"],
        "counts": [[7, 3], [1, 9], [5, 5], [0, 2]],
    }
    (folder / "partition.json").write_text(json.dumps(held))
    return folder


class Page(HTMLParser):
    """A page taken apart: tags, ids, addresses, texts per tag."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.ids, self.addresses, self.texts, self.open = [], [], [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name.rpartition(":")[2] in ("href", "src", "srcset", "action", "data"):
                self.addresses.append(value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> without a start"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", " ".join(data.split())))

    def all(self, *tags):
        return [text for tag, text in self.texts if tag in tags]

    @property
    def words(self):
        return " ".join(text for tag, text in self.texts if tag not in ("style", "script"))


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    place = tmp_path_factory.mktemp("one")
    return Page(write_report([make_run(place / "a")], place / "report.html", title="A report"))


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    place = tmp_path_factory.mktemp("three")
    runs = [
        make_run(place / name, name, lr=0.0025 * 10**k)
        for k, name in enumerate(("lppa", "dsgt", "choco"))
    ]
    return Page(write_report(runs, place / "report.html", title="A report"))


@pytest.fixture
def report(tmp_path, monkeypatch):
    """A page with the titles of figures only: most of the time goes into their SVG."""

    def only_title(figure, title="", description="", data=None):
        return f"<svg><title>{escape(title)}</title></svg>"

    def write(*folders, **options):
        return Page(
            write_report(folders, tmp_path / "out" / "report.html", title="A report", **options)
        )

    monkeypatch.setattr("tacit.report.report.svg", only_title)
    return write


def test_one_run(one):
    assert not one.open
    assert one.all("h1") == ["A report"]
    assert one.all("h2") == [
        "Is it safe to take part?", "Result", "Over the rounds", "Graph and data", "Numbers",
        "Configuration",
    ]  # fmt: skip
    for number in (
        "81.23 %",
        "71.50 %",
        "91.75 %",
        "86.12 %",
        "0.3331",
        "0.3054",
        "0.03125",
        "7,850",
    ):
        assert number in one.all("dd", "td"), number
    assert {"5 MB", "5,000,000", "2 min 05 s", "lppa"} <= set(one.all("dd"))
    assert one.all("h3") == [
        "Accuracy", "Loss", "Consensus distance", "Communication", "Graph", "Partition",
    ]  # fmt: skip
    assert one.tags.count("svg") == one.tags.count("figure") == 6
    assert "zero" in one.all("text")
    assert "ring(4), metropolis" in one.all("figcaption")
    assert len(one.all("pre")) == 1
    assert one.tags.count("script") == 1


def test_every_figure_has_a_title_for_screen_readers(one):
    assert len(one.all("title")) == 1 + one.tags.count("svg")
    assert "Loss: lppa" in one.all("title")


def test_several_runs_have_a_row_and_a_line_each(three):
    rows = [text for text in three.all("th") if text in ("lppa", "dsgt", "choco")]
    # The outcome, the differences of accuracy and loss to the first, and what differs.
    assert rows == ["lppa", "dsgt", "choco", *["dsgt"] * 2, *["choco"] * 2, "lppa", "dsgt", "choco"]
    assert three.all("text").count("dsgt") == 4  # in the legend of each figure
    assert three.tags.count("svg") == 6  # one graph and one partition for all
    assert len(three.all("pre")) == 3
    assert {"algorithm.lr", "0.0025", "0.025", "0.25"} <= set(three.all("th", "td"))


def test_a_page_loads_nothing(three):
    assert all(address.startswith(("#", "data:")) for address in three.addresses)
    assert "url(http" not in three.source
    assert "@import" not in three.source
    assert "default-src 'none'" in three.source
    inside = {address[1:] for address in three.addresses if address.startswith("#")}
    assert inside <= set(three.ids)


def test_ids_are_unique(three):
    assert len(three.ids) == len(set(three.ids)) > 10


def test_what_comes_from_files_is_escaped(tmp_path):
    evil = "<script>alert(1)</script>"
    folder = make_run(
        tmp_path / "a", algorithm=evil, notes=[evil], diverged=evil, config=f'x = "{evil}"\n'
    )
    for name, key in (("graph.json", "description"), ("partition.json", "description")):
        stored = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(stored | {key: evil}))
    stored = json.loads((folder / "partition.json").read_text())
    (folder / "partition.json").write_text(json.dumps(stored | {"classes": [evil, "b"]}))
    runs = [folder, make_run(tmp_path / evil.replace("/", "-"), algorithm=evil)]
    out = write_report(runs, tmp_path / "report.html", title=evil, sections={evil: "<p>fine</p>"})
    page = Page(out)
    assert page.tags.count("script") == 1
    assert page.source.count(evil) == 0
    assert f'x = "{evil}"' in page.all("pre")[0]
    assert evil in page.all("h2")
    assert evil in page.all("h1")
    assert not page.open


def test_warnings_and_notes_stand_before_the_numbers(report, tmp_path):
    page = report(
        make_run(
            tmp_path / "a", diverged="Client 3 at step 40.", notes=["Masks only at the start."]
        )
    )
    assert "This run diverged." in page.all("strong")
    assert page.words.index("Client 3 at step 40.") < page.words.index("81.23 %")
    assert "Masks only at the start." in page.all("li")


def test_a_shared_note_is_shown_once(report, tmp_path):
    page = report(
        make_run(tmp_path / "a", "lppa", notes=["for all", "for one"]),
        make_run(tmp_path / "b", "dsgt", notes=["for all"]),
    )
    assert page.all("li") == ["for all", "for one"]
    assert page.all("em") == ["(lppa)"]


def test_gaps_and_missing_numbers(report, tmp_path):
    page = report(
        make_run(
            tmp_path / "a", loss={"mean": None, "min": None, "max": 0.5, "average_model": math.nan}
        )
    )
    assert page.all("td").count("–") == 3
    assert "nan" not in page.words.lower()
    assert "None" not in page.words


def test_a_task_without_accuracy_or_partition(report, tmp_path):
    folder = make_run(tmp_path / "a", accurate=False)
    (folder / "partition.json").unlink()
    page = report(folder)
    assert page.all("h3") == ["Loss", "Consensus distance", "Communication", "Graph"]
    assert "ccuracy" not in page.words
    assert "0.3331" in page.all("dd")


def test_a_graph_too_large_to_draw_is_described(report, tmp_path):
    folder = make_run(tmp_path / "a")
    picture = {
        "description": "ring(2000)",
        "clients": 2000,
        "directed": False,
        "edges": None,
        "positions": None,
    }
    (folder / "graph.json").write_text(json.dumps(picture))
    page = report(folder)
    assert "too many edges to draw" in page.words
    assert "ring(2000)" in page.all("figcaption")
    assert page.tags.count("svg") == 5


def test_labels_say_what_differs(report, tmp_path):
    page = report(
        make_run(tmp_path / "a", lr=0.1),
        make_run(tmp_path / "b", lr=0.0025),
        make_run(tmp_path / "c", "dsgt", lr=1.0),
    )
    names = page.all("th")
    assert {"lppa, lr=0.1", "lppa, lr=0.0025", "dsgt"} <= set(names)
    assert "Loss: lppa, lr=0.1; lppa, lr=0.0025; dsgt" in page.all("title")


def test_seeds_are_put_together(report, tmp_path):
    runs = [make_run(tmp_path / f"{a}{s}", a, seed=s) for a in ("lppa", "dsgt") for s in range(3)]
    for seed, run in enumerate(runs[:3]):
        summary = json.loads((run / "summary.json").read_text())
        summary["accuracy"]["mean"] = 80.0 + seed
        (run / "summary.json").write_text(json.dumps(summary))
    page = report(*runs)
    assert "Loss: lppa, 3 seeds; dsgt, 3 seeds" in page.all("title")
    assert "81.00 ± 1.0" in page.all("td")
    assert {f"lppa, seed {s}" for s in range(3)} <= set(page.all("th"))


def test_a_diverged_seed_and_a_repeated_one_stand_alone(report, tmp_path):
    runs = [make_run(tmp_path / f"r{s}", seed=s) for s in range(3)]
    page = report(*runs, make_run(tmp_path / "bad", seed=3, diverged="too far"))
    assert "Loss: lppa, 3 seeds; lppa, seed=3 (diverged)" in page.all("title")
    assert "lppa, seed=3 diverged." in page.all("strong")
    page = report(runs[0], make_run(tmp_path / "again", seed=0))
    assert "Loss: lppa [r0]; lppa [again]" in page.all("title")


def test_graphs_that_differ_are_drawn_each(report, tmp_path):
    runs = [make_run(tmp_path / name, name) for name in ("lppa", "dsgt")]
    stored = json.loads((runs[1] / "graph.json").read_text())
    (runs[1] / "graph.json").write_text(
        json.dumps(stored | {"description": "path", "edges": [[0, 1], [1, 2]]})
    )
    page = report(*runs)
    assert page.tags.count("svg") == 7
    assert {"lppa: ring(4), metropolis", "dsgt: path"} <= set(page.all("figcaption"))


def test_of_runs_with_different_seeds_the_first_partition_is_drawn(report, tmp_path):
    runs = [make_run(tmp_path / f"{a}{s}", a, seed=s) for a in ("lppa", "dsgt") for s in range(2)]
    for seed, run in enumerate(runs):
        stored = json.loads((run / "partition.json").read_text())
        (run / "partition.json").write_text(
            json.dumps(stored | {"description": f"drawn by seed {seed % 2}"})
        )
    captions = report(*runs).all("figcaption")
    assert "lppa, seed 0; dsgt, seed 0: drawn by seed 0" in captions
    assert "ring(4), metropolis" in captions
    assert not any("drawn by seed 1" in caption for caption in captions)


def test_accuracy_is_drawn_over_bytes_where_algorithms_differ_in_them(report, tmp_path):
    runs = [make_run(tmp_path / name, name) for name in ("lppa", "choco")]
    lines = [json.loads(line) for line in (runs[1] / "history.jsonl").read_text().splitlines()]
    text = "".join(
        json.dumps(line | {"bytes_sent": line["bytes_sent"] // 8}) + "\n" for line in lines
    )
    (runs[1] / "history.jsonl").write_text(text)
    assert "Accuracy for its communication" in report(*runs).all("h3")
    assert "Accuracy for its communication" not in report(runs[0]).all("h3")


def test_further_sections(report, tmp_path):
    page = report(make_run(tmp_path / "a"), sections={"Audit & more": "<p>Nothing leaked.</p>"})
    assert page.all("h2")[-2:] == ["Audit & more", "Configuration"]
    assert "Nothing leaked." in page.all("p")


def test_a_run_without_rounds_still_gets_a_page(report, tmp_path):
    page = report(make_run(tmp_path / "a", rounds=0, diverged="at once"))
    assert "No round was recorded." in page.words


def test_the_same_runs_give_the_same_bytes(tmp_path):
    runs = [make_run(tmp_path / name, name) for name in ("lppa", "dsgt")]
    first = write_report(runs, tmp_path / "1.html", title="Same").read_bytes()
    assert write_report(runs, tmp_path / "2.html", title="Same").read_bytes() == first
    assert str(tmp_path).encode() not in first


def test_fifty_rounds_stay_small_and_nothing_else_is_left(tmp_path):
    out = tmp_path / "page" / "report.html"
    assert write_report([make_run(tmp_path / "a", rounds=50)], out, title="Size") == out
    assert out.stat().st_size < 200_000
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


# --- what is wrong with a folder ---


def test_not_a_run_folder(tmp_path):
    with pytest.raises(Misuse, match=r"not a run folder.*tacit run"):
        write_report([tmp_path], tmp_path / "x.html", title="x")
    with pytest.raises(Misuse, match="no run"):
        write_report([], tmp_path / "x.html", title="x")


@pytest.mark.parametrize("name", ["graph.json", "config.toml"])
def test_a_missing_file_is_named(name, tmp_path):
    folder = make_run(tmp_path / "a")
    (folder / name).unlink()
    with pytest.raises(Misuse, match=rf"{name} is missing.*tacit run"):
        write_report([folder], tmp_path / "x.html", title="x")
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("summary.json", "{", "JSON"),
        ("summary.json", '{"algorithm": "lppa"}', "steps"),
        ("history.jsonl", '{"round": 0', "line 1"),
        ("history.jsonl", '{"round": 0}', "line 1"),
        ("history.jsonl", '{"round": 0, "step": 0, "accuracy": null, "loss": null}', "line 1"),
        (
            "graph.json",
            '{"description": "", "clients": 2, "directed": false, "edges": [[0, 5]]}',
            "edge",
        ),
        ("graph.json", "[]", "object"),
        ("partition.json", '{"description": "", "classes": ["a"], "counts": [[1, 2]]}', "counts"),
        ("config.toml", "= 3", "line 1"),
        ("config.toml", b"\xff\xfe", "utf-8"),
    ],
)
def test_a_damaged_file_is_named(name, text, expected, tmp_path):
    folder = make_run(tmp_path / "a")
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Misuse) as caught:
        write_report([folder], tmp_path / "x.html", title="x")
    assert name in caught.value.problem
    assert expected in caught.value.problem
    assert "Rerun" in caught.value.remedy


def test_a_report_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Misuse, match="Cannot write"):
        write_report([make_run(tmp_path / "a")], tmp_path / "file" / "x.html", title="x")


# --- numbers for people ---


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999_600, "1 MB"),
        (1_234_567, "1.23 MB"),
        (2e18, "2e+03 PB"),
        (None, "–"),
    ],
)
def test_bytes_as_text(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.012, "12 ms"),
        (12.34, "12.3 s"),
        (59.97, "1 min 00 s"),
        (245, "4 min 05 s"),
        (7980, "2 h 13 min"),
        (None, "–"),
    ],
)
def test_durations_as_text(seconds, text):
    assert format_duration(seconds) == text
