"""The HTML of reports: the page, its style sheet, its elements, and numbers as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# The page may load and run nothing, whatever a section contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

CSS = """
:root{color-scheme:light dark;--ink:#1b1f24;--muted:#59626d;--grid:#d9dee4;--paper:#fefefe;
--back:#f3f5f7;--edge:#dde2e8;--link:#005a8e;--warn:#8a2f00;--warn-back:#fdefe6;
--warn-edge:#d55e00;--note-back:#eaf3f9;--note-edge:#0072b2;--c0:#0072b2;--c1:#d55e00;
--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9;--indigo:#332288}
@media screen and (prefers-color-scheme:dark){:root{
--ink:#e7eaee;--muted:#a0aab5;--grid:#343b44;--paper:#1a1f25;
--back:#12161a;--edge:#2d343c;--link:#7cc4f0;--warn:#ffb994;--warn-back:#33201a;--warn-edge:#ec7a3c;
--note-back:#17262f;--note-edge:#4aa3dc;--c0:#4aa3dc;--c1:#f0803f;--c2:#2cc295;--c3:#dd97bb;
--c4:#efb33a;--c5:#8fd0f5;--indigo:#7466d8}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
header,main,footer{max-width:76rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2.25rem}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .5rem;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.5rem 0 .9rem}
.lead{margin:0;max-width:60rem;color:var(--muted);font-size:1.05rem}
nav{margin-top:1rem;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;font-size:.92rem}
a{color:var(--link)}
.box{border-left:4px solid var(--note-edge);background:var(--note-back);border-radius:6px;
padding:.7rem 1rem;margin:1rem 0;overflow-wrap:anywhere}
.box p,.box ul{margin:.15rem 0}
.warning{border-color:var(--warn-edge);background:var(--warn-back)}
.warning strong{color:var(--warn)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.8rem;
margin:0 0 1rem}
.tile,figure,.sheet{background:var(--paper);border:1px solid var(--edge);border-radius:10px}
.tile{padding:.8rem 1rem}
.tile dt{font-size:.85rem;color:var(--muted)}
.tile dd{margin:0}
.tile .big{font-size:1.6rem;line-height:1.3;font-weight:600;font-variant-numeric:tabular-nums}
.tile .small{font-size:.85rem;color:var(--muted)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(7.5rem,1fr));gap:.7rem 1rem;
padding:.8rem 1rem}
.facts dt{font-size:.85rem;color:var(--muted)}
.facts dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.sheet{overflow-x:auto;margin:0 0 1rem}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.7rem .9rem .3rem;font-weight:600}
th,td{padding:.42rem .75rem;text-align:right;border-top:1px solid var(--edge);white-space:nowrap}
thead th{border-top:0;color:var(--muted);font-weight:600;vertical-align:bottom}
th:first-child{text-align:left}
tbody th{font-weight:600}
.sign{display:inline-block;width:1.1em}
.wrap{display:inline-block;min-width:8rem;max-width:26rem;white-space:normal;text-align:left}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,30rem),1fr));gap:1rem;align-items:start}
figure{margin:0;padding:1rem 1rem .8rem;break-inside:avoid}
figure h3{margin:0 0 .5rem;font-size:1rem}
figure svg{display:block;width:100%;height:auto;margin:0 auto}
.square svg{max-height:24rem}
figcaption{margin-top:.4rem;font-size:.87rem;color:var(--muted);overflow-wrap:anywhere}
svg{overflow:visible}
svg text{font-family:inherit}
details{margin:.5rem 0}
summary{cursor:pointer;padding:.2rem 0}
pre{overflow-x:auto;margin:0;padding:.9rem 1rem;
font:.85rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
img{max-width:100%}
footer{margin-top:3rem;padding-bottom:2rem;font-size:.85rem;color:var(--muted)}
@media print{@page{margin:14mm}body{background:none;font-size:10.5pt}nav{display:none}
header{padding-top:0}header,main,footer{max-width:none;padding:0}
.grid{grid-template-columns:1fr 1fr}.sheet,.tile,.box{break-inside:avoid}
h2{break-after:avoid}
table{font-size:8pt}th,td{padding:.25rem .35rem;white-space:normal}.sheet{overflow:visible}
pre{white-space:pre-wrap}}
"""


@dataclass(frozen=True)
class PageSection:
    """A part of the page; `html` is inserted as it is, so escape what comes from files."""

    title: str
    html: str


def render_page(title: str, lead: str, alerts: str, sections: Sequence[PageSection]) -> str:
    """The whole document; `alerts` is HTML above the sections."""
    links, parts = "", ""
    for number, section in enumerate(sections, 1):
        anchor, name = f"part-{number}", escape(section.title)
        links += f'<a href="#{anchor}">{name}</a>'
        parts += (
            f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{name}</h2>\n'
            f"{section.html}</section>\n"
        )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f'<header><h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
        f'<nav aria-label="Contents">{links}</nav>\n{alerts}</header>\n<main>\n{parts}</main>\n'
        "<footer>Made by Tacit. This file is self-contained and loads nothing from the network."
        "</footer>\n</body>\n</html>\n"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table whose cells are HTML already; the first column names the rows."""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = ""
    for row in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in row[1:])
        body += f'<tr><th scope="row">{row[0]}</th>{cells}</tr>\n'
    return (
        f'<div class="sheet"><table>{title}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def tile(name: str, value: str, detail: str = "") -> str:
    """One number in large type, with a detail below."""
    return (
        f'<div class="tile"><dt>{escape(name)}</dt><dd class="big">{escape(value)}</dd>'
        f'<dd class="small">{escape(detail)}</dd></div>'
    )


def facts(values: dict[str, str]) -> str:
    """Names and values in small type, side by side."""
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in values.items()
    )
    return f'<dl class="sheet facts">{pairs}</dl>\n'


def card(title: str, drawing: str, caption: str = "", *, square: bool = False) -> str:
    """A figure with title and caption; `drawing` is HTML, and limited in height if `square`."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    shape = ' class="square"' if square else ""
    return f"<figure{shape}><h3>{escape(title)}</h3>{drawing}{below}</figure>\n"


def grid(cards: Sequence[str]) -> str:
    """Cards side by side."""
    return f'<div class="grid">\n{"".join(cards)}</div>\n'


def collapsible(title: str, html: str) -> str:
    """HTML that the reader can unfold."""
    return f"<details><summary>{escape(title)}</summary>{html}</details>\n"


def format_number(value: float | None, form: str = ".4g", unit: str = "") -> str:
    """A number in a format, or a dash if there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:{form}}{unit}"


def format_bytes(count: float | None) -> str:
    """A number of bytes in decimal units, such as "1.23 MB"."""
    if count is None or not math.isfinite(count):
        return "–"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(count) < 999.5 or unit == "PB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def format_duration(seconds: float | None) -> str:
    """A time such as "12.3 s", "4 min 05 s" or "2 h 13 min"."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
