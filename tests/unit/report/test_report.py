"""Reports: the content of a page, that it loads nothing, and errors of damaged run folders."""

import csv
import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from markupsafe import Markup

from support.run_folders import ACCURACY, make_run
from tacit.core.errors import Misuse
from tacit.report.numbers import format_bytes, format_duration
from tacit.report.page import Table, show
from tacit.report.report import write_report
from tacit.report.statistics import paired_difference
from tacit.report.stored_audit import config_digest


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
        return Markup("<svg><title>{}</title></svg>").format(title)

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
    # The overview, the differences of accuracy and loss, each run, and what differs.
    every = ["lppa", "dsgt", "choco"]
    assert rows == [*every, *["dsgt"] * 2, *["choco"] * 2, *every, *every]
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
    assert three.ids
    assert len(three.ids) == len(set(three.ids))


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
    assert "81.00 ± 1.00" in page.all("td")
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
    assert "Accuracy and bytes sent" in report(*runs).all("h3")
    assert "Accuracy and bytes sent" not in report(runs[0]).all("h3")


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


# --- the answer ---

ANSWER = {
    "level": "no",
    "verdict": "No: gradients leak exactly",
    "reason": "Client 1 can compute <b>gradients</b>.",
    "learns": ["Client 1 can compute all."],
    "guarantee": ["Nothing against client 1."],
    "changes": ["`algorithm.fresh = true`: less."],
    "limits": ["Examined: little."],
}


def audit_of(folder, config=None, **parts):
    """Store an audit in a run folder."""
    stored = {
        "answer": ANSWER,
        "config": config_digest(folder) if config is None else config,
        "made": {"date": "2026-01-02 03:04 UTC", "command": "tacit audit a"},
        "pictures": {"Audit: who learns what": "<p>a picture</p>"},
        "tables": {"Audit: verdict": "<p>a table</p>"},
        "proofs": {"Audit: what is proved": "<p>a proof</p>"},
    } | parts
    (folder / "audit_report.json").write_text(json.dumps(stored))
    return folder


def test_the_answer_stands_first_then_pictures_tables_and_proofs(report, tmp_path):
    page = report(audit_of(make_run(tmp_path / "a")), made={"date": "2026-05-06", "machine": "m1"})
    assert page.all("h2") == [
        "Is it safe to take part?", "Result", "Over the rounds", "Graph and data",
        "Audit: who learns what", "Numbers", "Audit: verdict", "Audit: what is proved",
        "Configuration", "Made by",
    ]  # fmt: skip
    words = page.words
    assert words.index(ANSWER["verdict"]) < words.index("81.23 %")
    assert "Client 1 can compute <b>gradients</b>." in words
    assert "algorithm.fresh = true" in page.all("code")
    assert {"2026-05-06", "m1", "2026-01-02 03:04 UTC", "tacit audit a"} <= set(page.all("td"))
    assert 'class="answer no"' in page.source


def test_an_audit_of_another_configuration_is_not_shown(report, tmp_path):
    page = report(audit_of(make_run(tmp_path / "a"), config="other"))
    assert "Not known: not audited" in page.all("p")
    assert "a proof" not in page.words


def test_a_run_without_audit_says_so(report, tmp_path, monkeypatch):
    page = report(make_run(tmp_path / "a"))
    assert "Not known: not audited" in page.all("p")
    assert "tacit audit a" in page.all("code")
    monkeypatch.chdir(tmp_path)
    assert "tacit audit runs/b" in report(make_run(Path("runs", "b"))).all("code")
    promise = {
        "epsilon": 3.0, "delta": 1e-5, "noise_multiplier": 2.0, "sampling_rate": 0.1, "steps": 54,
        "unit": "sample", "honest": 3, "extra_delta": 1e-9, "spent": 2.5,
    }  # fmt: skip
    page = report(make_run(tmp_path / "b", privacy=promise))
    assert "Promised, but not audited" in page.all("p")
    assert "ε = 2.5 at δ = 1e-05 is moderate" in page.words


def test_several_runs_have_an_answer_each(report, tmp_path):
    runs = [audit_of(make_run(tmp_path / "a")), make_run(tmp_path / "b", "dsgt")]
    page = report(*runs)
    assert "Is it safe to take part?" in page.all("caption")
    assert "✕ No: gradients leak exactly" in page.all("span")
    # At the top, and among what runs are compared by.
    assert page.words.count("No: gradients leak exactly") == 2
    assert "not audited" in page.all("td")


def test_a_run_that_has_not_ended_has_a_page(report, tmp_path):
    folder = make_run(tmp_path / "a", config="rounds = 20\n")
    (folder / "summary.json").unlink()
    lines = (folder / "history.jsonl").read_text().splitlines()
    last = json.dumps(json.loads(lines.pop()) | {"baseline": 62.5})
    (folder / "history.jsonl").write_text("\n".join([*lines, last, '{"round": 6, "st']))
    page = report(folder)
    assert "This run has not ended." in page.all("strong")
    assert "5 of 20 rounds" in page.words
    assert {"75.00 %", "62.50 %"} <= set(page.all("dd"))


def test_differences_are_paired_by_seed(report, tmp_path):
    base, other = [80.0, 70.0, 90.0], [81.0, 71.5, 91.2]
    runs = [
        make_run(tmp_path / f"{name}{seed}", name, seed=seed, accuracy=ACCURACY | {"mean": value})
        for name, values in (("lppa", base), ("dsgt", other))
        for seed, value in enumerate(values)
    ]
    page = report(*runs)
    assert "Difference to lppa, paired by seed" in page.all("caption")
    expected = paired_difference(other, base)
    cells = page.all("td")
    assert "+1.23" in cells
    assert f"+{expected.low:.2f} to +{expected.high:.2f}" in cells
    assert "higher" in cells
    alone = report(runs[0], runs[3])
    assert "one seed: no interval" in alone.all("td")


def test_equal_differences_have_no_interval_and_no_reading(report, tmp_path):
    runs = [
        make_run(tmp_path / f"{name}{seed}", name, seed=seed, accuracy=ACCURACY | {"mean": value})
        for name, values in (("lppa", [80.1, 70.2]), ("dsgt", [80.4, 70.5]))
        for seed, value in enumerate(values)
    ]
    cells = report(*runs).all("td", "span")
    assert "deviation over seeds is zero: no interval" in cells
    assert not {"higher", "lower"} & set(cells)


def test_differences_are_of_all_metrics_and_the_overview_is_short(report, tmp_path):
    spread = {"min": 0.0, "max": 1.0, "average_model": None}
    runs = [
        make_run(
            tmp_path / f"{name}{seed}",
            name,
            seed=seed,
            metrics={"auc": spread | {"mean": 0.5 + shift * (1 + seed)}},
            own_test={"f1": spread | {"mean": 0.25 + shift}, "baseline": spread | {"mean": 50.0}},
            per_client={},
        )
        for name, shift in (("lppa", 0.0), ("dsgt", 0.125))
        for seed in range(2)
    ]
    page = report(*runs)
    cells = page.all("td")
    assert {"AUC", "F1, own test sets", "Accuracy (points)", "Loss"} <= set(cells)
    assert "+0.125" in cells
    assert not any("aseline" in cell for cell in cells)
    header = page.all("th")[:5]
    assert header == ["Run", "Accuracy (%)", "Difference", "Sent", "Wall time"]


# --- what everybody can read ---


def test_headings_go_down_one_step_at_a_time(one):
    levels = [int(tag[1]) for tag in one.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_texts_have_contrast(one, dark):
    light, _, night = one.source.partition("prefers-color-scheme:dark")
    colours = dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6})", light))
    if dark:
        colours |= dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6})", night.split("}}")[0]))
    pairs = [("ink", "paper"), ("ink", "back"), ("muted", "paper"), ("muted", "back")]
    pairs += [("link", "paper"), ("link", "back"), ("warn", "warn-back"), ("ink", "note-back")]
    for tone in ("no", "leaks", "open", "yes"):
        pairs += [(tone, f"{tone}-back"), ("ink", f"{tone}-back"), (tone, "paper")]
    pairs += [("ink", "h0"), ("ink", "h1"), ("heat-ink", "h2"), ("heat-ink", "h3")]
    for text, ground in pairs:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    # The steps of the heat map are ordered by lightness in both themes.
    steps = [luminance(colours[f"h{k}"]) for k in range(5)]
    assert steps[1:] == sorted(steps[1:], reverse=not dark)


def test_numbers_are_right_and_texts_left():
    rows = [["a", "1.2 MB", "it is so"], ["b", "–", "no"]]
    html = show(Table(["Run", "Sent", "Because"], rows))
    assert '<td role="cell" data-label="Sent">1.2 MB</td>' in html
    assert '<td role="cell" class="text" data-label="Because">it is so</td>' in html
    assert '<th scope="col" role="columnheader" class="text">Because</th>' in html


def test_figures_come_with_their_numbers(one):
    links = [address for address in one.addresses if address.startswith("data:text/csv")]
    assert len(links) == 6
    rows = list(csv.reader(unquote(links[0].partition(",")[2]).splitlines()))
    header = ["round", "lppa, average model", "lppa", "lppa, lowest", "lppa, highest"]
    assert rows[0] == header
    assert rows[-1] == ["5", "80", "75", "65", "85"]
    losses = list(csv.reader(unquote(links[1].partition(",")[2]).splitlines()))
    assert [row[0] for row in losses[1:]] == ["0", "1", "2", "4", "5"]  # round 3 is a gap


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
