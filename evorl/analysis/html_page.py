"""The HTML page of a report: one file with its pictures and tables, without external resources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from evorl.analysis.figures import COLOURS, INK, MUTED, PAPER, RULE, dash_sign
from evorl.analysis.tables import numeric_columns
from evorl.record.layout import SECTIONS

HEADINGS = tuple(SECTIONS)
"""Sections of metrics, in the order of the page and of ``metrics.png``."""

Picture = tuple[str, bytes]
"""Description and SVG document."""
Table = Sequence[Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """The part of the page on one world."""

    title: str
    """Empty if the page has only one world."""
    legend: Sequence[tuple[int, str]]
    """Rank (index of the colour) and label of each group."""
    whole: Sequence[Picture]
    """Pictures in their own size, above the others."""
    main: Sequence[Picture]
    others: Mapping[str, Sequence[Picture]]
    """Pictures of the other metrics, by heading."""
    tables: Mapping[str, Table]
    populations: Sequence[PopulationSection] = ()


@dataclass(frozen=True, kw_only=True)
class PopulationSection:
    """The part of the page on one population."""

    title: str
    pictures: Sequence[Picture]
    caption: str
    table: Table
    further: Mapping[str, Table] = field(default_factory=dict)
    """Other tables, by title."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """The content of a page."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    caption: str
    folded: Mapping[str, Table] = field(default_factory=dict)
    """Collapsed tables, by title."""
    notes: Sequence[str] = ()


def to_html(page: Page) -> str:
    """Return the page; its colours follow the light or dark mode of the system."""
    body = [
        f"<header><h1>{escape(page.title)}</h1><p>{escape(page.subtitle)}</p></header>",
        _list("notes", [escape(note) for note in page.notes]),
        f'<p class="caption">{escape(page.caption)}</p>',
        *(_section(section, f"s{number}-") for number, section in enumerate(page.sections)),
        *(
            f"<details><summary>{escape(title)}</summary>{_table(table)}</details>"
            for title, table in page.folded.items()
        ),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(page.title)}</title>\n<style>{_style()}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _section(section: Section, prefix: str) -> str:
    learning, *rest = HEADINGS
    parts = [
        f"<h2>{escape(section.title)}</h2>" if section.title else "",
        _list("legend", [_key(rank, label) for rank, label in section.legend]),
        *(_whole(picture, f"{prefix}whole{number}-") for number, picture in enumerate(section.whole)),
        _metrics(learning, section.main, section.others.get(learning, ()), f"{prefix}main"),
        *(f"<section><h3>{escape(title)}</h3>{_table(table)}</section>" for title, table in section.tables.items()),
        *(_population(shown, f"{prefix}population{number}-") for number, shown in enumerate(section.populations)),
        *(_metrics(title, (), section.others.get(title, ()), f"{prefix}other{n}") for n, title in enumerate(rest)),
    ]
    return '<section class="world">' + "\n".join(part for part in parts if part) + "</section>"


def _metrics(heading: str, main: Sequence[Picture], others: Sequence[Picture], prefix: str) -> str:
    """Return a section of metrics: the main ones large, the others small; empty if there are none."""
    if not (main or others):
        return ""
    large = _pictures(main, f"{prefix}-main") if main else ""
    small = _pictures(others, f"{prefix}-other", "pictures small") if others else ""
    return f"<section><h3>{escape(heading)}</h3>{large}{small}</section>"


def _population(shown: PopulationSection, prefix: str) -> str:
    pictures = "".join(_whole(picture, f"{prefix}{number}-") for number, picture in enumerate(shown.pictures))
    head = f'<h3>{escape(shown.title)}</h3><p class="caption">{escape(shown.caption)}</p>'
    table = _table(shown.table) if shown.table else ""
    table += "".join(f"<h3>{escape(title)}</h3>{_table(rows)}" for title, rows in shown.further.items())
    return f'<section>{head}<div class="population">{pictures}</div>{table}</section>'


def inline(svg: bytes, prefix: str) -> str:
    """Return an SVG document as an element of the page, with prefixed ids and the colours of the page."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{prefix}", text)
    text = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', r'<svg \1 aria-hidden="true">', text, count=1)
    for name, colour in _colours().items():
        text = text.replace(colour, f"var(--{name})")
    return text


def _colours() -> dict[str, str]:
    return {"ink": INK, "muted": MUTED, "rule": RULE, "paper": PAPER} | {
        f"c{rank}": colour for rank, colour in enumerate(COLOURS)
    }


def _whole(picture: Picture, prefix: str) -> str:
    words, svg = picture
    width = re.search(rb'viewBox="0 0 ([\d.]+)', svg)
    size = f' style="max-width:{float(width[1]):.0f}pt"' if width else ""
    return f'<figure class="whole" role="img" aria-label="{escape(words)}"{size}>{inline(svg, prefix)}</figure>'


def _pictures(pictures: Sequence[Picture], name: str, kind: str = "pictures") -> str:
    figures = (
        f'<figure role="img" aria-label="{escape(words)}">{inline(svg, f"{name}{number}-")}</figure>'
        for number, (words, svg) in enumerate(pictures)
    )
    return f'<div class="{kind}">{"".join(figures)}</div>'


def _key(rank: int, label: str) -> str:
    return f'<i class="c{rank % len(COLOURS)}"></i>{dash_sign(rank)}{escape(label)}'


def _list(name: str, items: Sequence[str]) -> str:
    return f'<ul class="{name}">' + "".join(f"<li>{item}</li>" for item in items) + "</ul>" if items else ""


def _table(rows: Table) -> str:
    right = numeric_columns(rows)
    head = "".join(_cell("th", key, key in right) for key in rows[0])
    body = ("".join(_cell("td", text, key in right) for key, text in row.items()) for row in rows)
    lines = "".join(f"<tr>{cells}</tr>" for cells in body)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _cell(tag: str, text: str, right: bool) -> str:
    return f"<{tag}{' class=number' if right else ''}>{escape(text)}</{tag}>"


def _style() -> str:
    light = ";".join(f"--{name}:{colour}" for name, colour in _colours().items())
    dark = ";".join(f"--{name}:{colour}" for name, colour in _DARK.items())
    marks = "".join(f".c{rank}{{background:var(--c{rank})}}" for rank in range(len(COLOURS)))
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{marks}{_RULES}"


_DARK = {
    "paper": "#14171a",
    "ink": "#e6e8ea",
    "muted": "#9aa3ab",
    "rule": "#2b3036",
    "c0": "#4fa8e0",
    "c1": "#f08a4b",
    "c2": "#2fc79a",
    "c3": "#e0a3c6",
    "c4": "#f0b83c",
    "c5": "#8fd0f5",
    "c6": "#a5a5a5",
}

_RULES = """
body{margin:0 auto;max-width:68rem;padding:1.5rem 1.25rem 2.5rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.6rem;line-height:1.2;margin:0}
h2{font-size:1.3rem;line-height:1.2;margin:3rem 0 0;padding-top:1rem;border-top:1px solid var(--rule)}
h3,summary{font-size:1.05rem;font-weight:600;margin:1.6rem 0 .5rem}
summary{cursor:pointer;margin-top:1rem}
header p,.caption,.notes{color:var(--muted);font-size:.875rem;margin:.35rem 0 0}
.notes,.legend{list-style:none;padding:0}
.notes li{border-left:3px solid var(--c4);padding-left:.7rem;margin-top:.5rem}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.4rem;margin:1.6rem 0 .4rem;font-size:.875rem}
.legend i{display:inline-block;width:1.1rem;height:.22rem;border-radius:2px;margin:0 .5rem .22rem 0}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19.5rem),1fr));gap:1.4rem 1.6rem}
.small{grid-template-columns:repeat(auto-fill,minmax(min(100%,14.5rem),1fr));gap:.8rem 1.2rem}
.pictures+.small{margin-top:1rem}
figure{margin:0}
.whole{margin:1rem 0 1.6rem}
.population{display:flex;flex-wrap:wrap;align-items:end;gap:0 1.6rem}
.population .whole{flex:0 1 auto;width:100%}
svg{display:block;width:100%;height:auto}
svg text{font-family:inherit!important}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;white-space:nowrap}
th{color:var(--muted);font-weight:500;text-align:left;border-bottom:1px solid var(--muted)}
td{border-bottom:1px solid var(--rule)}
th,td{padding:.35rem 1.2rem .35rem 0;vertical-align:top}
.number{text-align:right}
tr>:first-child{position:sticky;left:0;background:var(--paper);text-align:left}
@media print{.wide{overflow:visible}body{max-width:none;padding:0;font-size:.8rem}figure{break-inside:avoid}}
"""
