"""The page in a real headless browser: values, hidden runs, sorting, downloads, a phone."""

import base64
import re
import zlib

import pytest

from support.browser import browse, find_browser
from support.run_folders import make_run
from tacit.report.report import write_report

pytestmark = [
    pytest.mark.layout,
    pytest.mark.skipif(
        find_browser() is None,
        reason="no Chromium or Chrome: install the package chromium, or name one by TACIT_BROWSER",
    ),
]
# In pixels, of the text in figures.
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll("figure svg text")].map((text) => {
  const svg = text.ownerSVGElement, shown = svg.getBoundingClientRect().width;
  return parseFloat(getComputedStyle(text).fontSize) * shown / svg.viewBox.baseVal.width; }))"""
EVIL = '<script>document.title = "changed"</script>'


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    place = tmp_path_factory.mktemp("browser")
    runs = [
        make_run(place / "a", "lppa", bytes_sent=5_000),
        make_run(place / "b", "dsgt", bytes_sent=4_000_000, lr=0.5),
    ]
    sections = {"Further": EVIL}
    out = write_report(runs, place / "report.html", title="Two runs", sections=sections)
    with browse(place) as tab:
        tab.open(out.as_uri())
        yield tab


def test_only_its_own_script_runs_and_nothing_is_loaded(page):
    assert page.run("document.title") == "Two runs"
    blocked = page.complaints()
    assert len(blocked) == 1
    assert "Content Security Policy" in blocked[0]
    assert all(url.startswith(("file:", "data:")) for url in page.requested())


def test_values_appear_under_the_pointer_and_by_keys(page):
    assert page.run("document.querySelector('.values').hidden")
    x, y = page.run(
        "(() => { const s = document.querySelector('svg[data-frame]');"
        "s.scrollIntoView({block: 'center'}); const r = s.getBoundingClientRect();"
        "return [r.left + r.width * 0.97, r.top + r.height / 3]; })()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    shown = page.text(".values")
    assert shown.startswith("round 5")
    assert "lppa75" in shown
    page.run("document.querySelector('svg[data-frame]').focus()")
    page.press("ArrowLeft")
    assert page.text(".values").startswith("round 4")


def test_runs_can_be_hidden(page):
    assert not page.run("document.querySelector('fieldset.runs').hidden")
    visible = (
        "[...document.querySelectorAll('[data-series=\"1\"]')]"
        ".filter(e => getComputedStyle(e).display !== 'none').length"
    )
    # Where its name is still shown inside a figure.
    in_legends = (
        "[...document.querySelectorAll('figure svg text')]"
        ".filter(e => e.textContent.trim() === 'dsgt' && e.getBoundingClientRect().width).length"
    )
    pdf = "document.querySelector('figure a.pdf').textContent"
    assert page.run(visible) > 5
    assert page.run(in_legends) > 3
    page.click("fieldset.runs input[value='1']")
    assert page.run(visible) == 0
    assert page.run(in_legends) == 0
    assert page.run(pdf) == "PDF of all runs"
    assert page.run(visible.replace('"1"', '"0"')) > 5
    page.click("fieldset.runs input[value='1']")
    assert page.run(visible) > 5


def test_tables_are_sorted_by_value_not_by_text(page):
    first = "document.querySelector('#part-1 ~ .sheet tbody tr').textContent"
    button = "[...document.querySelectorAll('#part-1 ~ .sheet thead button')]"
    sent = f"{button}.find(b => b.textContent === 'Sent')"
    page.run(f"{sent}.click()")
    assert "lppa" in page.run(first)  # 5 kB is less than 4 MB
    page.run(f"{sent}.click()")
    assert "dsgt" in page.run(first)
    assert page.run(f"{sent}.closest('th').getAttribute('aria-sort')") == "descending"


def test_figures_can_be_saved(page):
    labels = page.run("[...document.querySelector('.downloads').children].map(e => e.textContent)")
    assert labels == ["SVG", "PDF", "CSV"]
    drawing = page.run("standalone(document.querySelector('figure svg'))")
    assert drawing.startswith("<svg")
    assert 'width="302.4"' in drawing
    link = "document.querySelector('figure a.pdf')"
    assert page.run(f"{link}.download") == "accuracy.pdf"
    document = base64.b64decode(page.run(f"{link}.href").partition("base64,")[2])
    assert document.startswith(b"%PDF-1.4")
    assert b"/Subtype /Image" not in document
    streams = re.findall(rb"/FlateDecode.*?stream\n(.*?)\nendstream", document, re.S)
    drawn = b"".join(map(zlib.decompress, streams))
    # Kerning cuts words into pieces.
    texts = [
        b"".join(re.findall(rb"\((.*?)\)", pieces)) for pieces in re.findall(rb"\[(.*?)TJ", drawn)
    ]
    assert b"round" in texts
    assert b"lppa" in texts


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_screen_and_figures_are_readable(page, dark):
    page.resize(390, 800, dark=dark)
    assert page.run("document.documentElement.scrollWidth") <= 391
    stacked = "getComputedStyle(document.querySelector('table.stack td')).display"
    assert page.run(stacked) in ("flex", "block")
    assert page.run(SMALLEST_TEXT) >= 9.5
    page.resize(1280, 900)
    assert page.run(stacked) == "table-cell"
    assert page.run(SMALLEST_TEXT) >= 9.5
    wide = "[...document.querySelectorAll('.sheet')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    assert page.run(f"{wide}.length") == 0
