"""The dashboard in a real headless browser: clicks, keys, live updates, hostile texts."""

import copy
import re
from pathlib import Path

import pytest

import tacit.peer.dashboard
from support.browser import browse, find_browser
from tacit.peer.dashboard.page import dashboard_pages, link
from tacit.peer.monitoring.access import Access
from tacit.peer.monitoring.http_server import serve_pages

STYLE = Path(tacit.peer.dashboard.__file__).with_name("style.css").read_text()
needs_browser = pytest.mark.skipif(
    find_browser() is None,
    reason="no Chromium or Chrome: install the package chromium, or name one by TACIT_BROWSER",
)
NOW = 1_800_000_000.0
HOSTILE = '<img src=x onerror="document.title = 1">&<script>document.title = 2</script>'


def node(name, **changed):
    privacy = {"sums": 20, "epsilon_spent": 2.0, "epsilon": 8.0, "delta": 1e-5}
    return {
        "name": name, "state": "training", "address": f"{name}.example.org:7400", "problem": "",
        "generation": 1, "step": 20, "steps": 100, "round": 2, "rounds": 10, "waiting_for": [],
        "claims": [], "waiting_since": None, "loss": 0.5, "accuracy": 90.0, "bytes_sent": 1000,
        "bytes_received": 2000, "rejected": 0, "saved": 10, "uptime_seconds": 60.0,
        "version": "0.1.0", "privacy": privacy, "expires": NOW + 86_400 * 100, **changed,
    }  # fmt: skip


BOARD = {
    "federation": "clinics-01234567", "generation": 1, "algorithm": "lppa", "subject": "own",
    "viewer": "operator", "time": NOW, "directed": False, "shares_metrics": True,
    "headline": "All 3 nodes train", "alerts": [],
    "nodes": [node("a"), node("b", accuracy=80.0), node("c")],
    "edges": [["a", "b"], ["b", "a"], ["b", "c"], ["c", "b"], ["c", "a"], ["a", "c"]],
    "curves": {n: [[0, 1.0, 50.0], [10, 0.7, 70.0], [20, 0.5, 90.0]] for n in "ab"},
    "certificates": [{"name": "operator", "expires": NOW + 86_400 * 300}],
    "events": [{"time": "2027-01-15T08:00:00Z", "level": "info", "node": "a", "text": "started"}],
}  # fmt: skip


class Board:
    """A board that a test can change while the page shows it."""

    def __init__(self):
        self.values = copy.deepcopy(BOARD)

    def __call__(self):
        return self.values


@pytest.fixture
def shown():
    return Board()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browse(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser):
    """A page that has loaded nothing yet."""
    browser.resize(1280, 900)
    browser.events.clear()
    yield browser
    browser.open("about:blank")


@pytest.fixture
def opened(shown, page):
    """The page, opened by its link."""
    access = Access()
    with serve_pages(0, dashboard_pages(access, shown)) as port:
        page.open(link(port, access))
        page.wait("document.querySelectorAll('#graph .node').length === 3")
        yield page
        assert page.complaints() == []
        served = {f"http://127.0.0.1:{port}{path}" for path in ("/dashboard", "/dashboard/data")}
        assert set(page.requested()) - served == {link(port, access)}
        assert page.run("location.href") == f"http://127.0.0.1:{port}/dashboard"


def color(page, selector="body", name="background-color"):
    return page.run(f"getComputedStyle(document.querySelector('{selector}'))['{name}']")


@needs_browser
def test_a_reader_clicks_and_sees_live_updates(opened, shown):
    page = opened
    assert page.text("#headline") == "All 3 nodes train"
    # Select a node in the graph: details, table and curves follow.
    page.click("#graph [data-node='b']")
    page.wait("document.querySelector('#details h3').textContent === 'b'")
    assert "b.example.org:7400" in page.text("#details")
    assert page.text("tr.chosen th") == "b"
    assert "faint" in page.run("document.querySelector('[data-curve=a]').getAttribute('class')")
    # Select another one in the table.
    page.click("#nodes [data-node='c']")
    page.wait("document.querySelector('#details h3').textContent === 'c'")
    # Switch the metric.
    assert "0.5000" in page.text("#legend")
    page.click("#metric input[value='accuracy'] + span")
    page.wait("document.querySelector('#legend').textContent.includes('90.0 %')")
    assert page.run("document.querySelector('#chart svg').getAttribute('aria-label')").startswith(
        "accuracy over iterations 0 to 20 of a, b"
    )
    # An update arrives without a reload, and the choices stay.
    shown.values["nodes"][0] |= {"state": "waiting", "waiting_for": ["b"], "step": 30}
    shown.values["headline"] = "a waits for b"
    shown.values["curves"]["a"].append([30, 0.4, 95.0])
    late = {"time": "2027-01-15T08:00:09Z", "level": "warning", "node": "a", "text": "waits"}
    shown.values["events"].append(late)
    page.wait("document.querySelector('#headline').textContent === 'a waits for b'")
    assert page.run("document.querySelectorAll('#graph .waits').length") == 1
    assert "waits for b" in page.run(
        "document.querySelector('#graph [data-node=a]').getAttribute('aria-label')"
    )
    assert "95.0 %" in page.text("#legend")
    assert page.text("#details h3") == "c"
    assert page.run("document.querySelectorAll('#events li').length") == 2
    page.click("#serious")
    page.wait("document.querySelectorAll('#events li').length === 1")


@needs_browser
def test_colours_follow_the_system_and_the_choice(opened):
    page = opened
    light = color(page)
    page.resize(1280, 900, dark=True)
    page.wait(f"getComputedStyle(document.body)['background-color'] !== '{light}'")
    dark = color(page)
    page.click("#theme input[value='light'] + span")
    page.wait(f"getComputedStyle(document.body)['background-color'] === '{light}'")
    page.click("#theme input[value='dark'] + span")
    page.resize(1280, 900)
    page.wait(f"getComputedStyle(document.body)['background-color'] === '{dark}'")
    # The choice outlasts a reload.
    page.call("Page.reload")
    page.wait("document.querySelector('#graph .node') !== null")
    assert color(page) == dark


@needs_browser
def test_the_keyboard_is_enough(opened, shown):
    page = opened
    reached = []
    for _ in range(40):
        page.press("Tab")
        reached.append(page.run("document.activeElement.dataset.key || document.activeElement.id"))
        if reached[-1] == "graph b":
            break
    assert reached[-1] == "graph b"
    page.press("Enter", text="\r")
    page.wait("document.querySelector('#details h3').textContent === 'b'")
    # An update keeps the focus where it is.
    shown.values["headline"] = "changed"
    page.wait("document.querySelector('#headline').textContent === 'changed'")
    assert page.run("document.activeElement.dataset.key") == "graph b"
    page.run("document.getElementById('when').focus()")
    page.press("ArrowLeft")
    page.wait("document.getElementById('at').textContent === '19'")
    assert "0.7000" in page.text("#legend")


@needs_browser
def test_everything_has_a_name_for_screen_readers(opened):
    nodes = opened.call("Accessibility.getFullAXTree")["nodes"]
    interactive = {"button", "link", "radio", "checkbox", "slider", "progressbar", "img", "region"}
    found = [one for one in nodes if one.get("role", {}).get("value") in interactive]
    nameless = [one["role"] for one in found if not one.get("name", {}).get("value", "").strip()]
    assert nameless == []
    assert {one["role"]["value"] for one in found} >= {"button", "radio", "slider", "progressbar"}


@needs_browser
def test_a_phone_needs_no_sideways_scrolling(opened, shown):
    shown.values["nodes"][0]["name"] = "a-hospital-with-a-long-name"
    shown.values["edges"], shown.values["curves"] = [], {"b": [[0, 1.0, None], [9, 0.001, None]]}
    opened.resize(390, 800, scale=2)
    opened.wait("document.querySelector('#nodes').textContent.includes('a-hospital')")
    assert opened.run("document.documentElement.scrollWidth") == 390
    assert opened.run("document.querySelector('#chart svg').getBoundingClientRect().width") <= 390


@needs_browser
def test_texts_of_hostile_nodes_stay_texts(opened, shown):
    first, *_ = shown.values["nodes"]
    first |= {"problem": HOSTILE, "version": HOSTILE, "claims": [HOSTILE], "state": HOSTILE}
    first["waiting_for"] = [HOSTILE, "__proto__", "constructor"]
    shown.values["alerts"] = [{"level": "error", "text": HOSTILE}]
    shown.values["events"] = [
        {"time": HOSTILE, "level": HOSTILE, "node": HOSTILE, "text": HOSTILE},
    ]
    shown.values["headline"] = HOSTILE
    opened.wait("document.querySelector('#headline').textContent.startsWith('<img')")
    opened.click("#graph [data-node='a']")
    opened.wait("document.querySelector('#details').textContent.includes('<img')")
    assert opened.run("document.images.length") == 0
    assert opened.run("document.scripts.length") == 1
    assert opened.run("document.title").startswith(HOSTILE)


@needs_browser
def test_a_value_that_cannot_be_drawn_hides_nothing_else(opened, shown):
    """No node should get such values to the page. If one does, the rest must still be seen."""
    shown.values["nodes"][0] |= {"privacy": {"epsilon_spent": None}, "expires": 1e300}
    shown.values["nodes"][1]["state"] = "silent"
    shown.values["events"].append({"time": "", "level": "error", "node": "b", "text": "is away"})
    opened.wait("document.querySelector('#events').textContent.includes('is away')")
    opened.wait("document.querySelector('#live').textContent.includes('cannot be drawn')")
    assert "not reached" in opened.text("#nodes")
    assert opened.run("document.querySelector('#graph [data-node=b]').classList.contains('bad')")


@needs_browser
def test_absent_values_are_dashes(opened, shown):
    """Nodes that keep their scores, nodes that were never reached, members that are suspended."""
    names = ("name", "state", "problem", "waiting_for", "claims", "version", "address")
    empty = {key: None for key in node("a") if key not in names}
    shown.values |= {"curves": {}, "shares_metrics": False, "certificates": []}
    shown.values["nodes"] = [node("a", **empty) | {"state": s} for s in ("silent",)]
    shown.values["nodes"] += [node("b", state="suspended", **empty), node("c", **empty)]
    shown.values["headline"] = "a does not respond"
    opened.wait("document.querySelector('#headline').textContent === 'a does not respond'")
    assert "keep their loss and accuracy to themselves" in opened.text("#chart")
    assert "No guarantee" in opened.text("#budget")
    assert "suspended" in opened.text("#nodes")
    assert "NaN" not in opened.text("main")
    assert "undefined" not in opened.text("main")
    assert "Infinity" not in opened.text("main")


@needs_browser
def test_a_lost_connection_is_shown(shown, page):
    access = Access()
    with serve_pages(0, dashboard_pages(access, shown)) as port:
        page.open(link(port, access))
        page.wait("document.querySelector('#live').textContent.startsWith('Live')")
    page.wait("document.querySelector('#live').textContent.startsWith('No connection')")
    # Another dashboard on the same port has another token.
    with serve_pages(port, dashboard_pages(Access(), shown)):
        page.wait("document.querySelector('#live').textContent.includes('no longer valid')")
    with serve_pages(port, dashboard_pages(access, shown)):
        page.wait("document.querySelector('#live').textContent.startsWith('Live')")
        # The page is connected, but the data behind it are old.
        shown.values["age"] = 100.0
        page.wait("document.querySelector('#live').textContent.includes('cannot be queried')")


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


COLOURS = {
    name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", STYLE)
}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast_is_enough_to_read(theme):
    """WCAG 2.2, level AA: 4.5 for texts, 3 for lines."""
    for text in ("ink", "muted", "link", "good", "wait", "bad", "busy", "held"):
        for back in ("paper", "back"):
            assert contrast(COLOURS[text][theme], COLOURS[back][theme]) >= 4.5, (text, back)
    for text, back in (("ink", "bad-back"), ("bad", "bad-back"), ("ink", "wait-back")):
        assert contrast(COLOURS[text][theme], COLOURS[back][theme]) >= 4.5, (text, back)
    assert contrast(COLOURS["wait"][theme], COLOURS["wait-back"][theme]) >= 4.5
    for number in range(7):
        assert contrast(COLOURS[f"c{number}"][theme], COLOURS["paper"][theme]) >= 3, number
