"""The HTML page of a report: one file with its curves, pictures and tables, without external resources.

Curves are drawn in the browser by uPlot (``web/uPlot.iife.min.js``) and ``web/page.js``, which are part of the page.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape as html_escape
from pathlib import Path

from evorl.analysis.figures import COLOURS, INK, MUTED, PAPER, RULE, dash_sign
from evorl.analysis.shown_run import ShownRun
from evorl.analysis.tables import numeric_columns
from evorl.record.layout import SECTIONS
from evorl.util.text import printable

HEADINGS = tuple(SECTIONS)
"""Sections of metrics, in the order of the page and of ``metrics.png``."""

Picture = tuple[str, bytes]
"""Description and SVG document."""
Table = Sequence[Mapping[str, str]]
LONG = 24
"""Rows of a table from which on it is collapsed."""
WEB = Path(__file__).parent / "web"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A place for curves that the browser draws."""

    metric: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """The part of the page on one world."""

    title: str
    """Empty if the page has only one world."""
    headline: Sequence[str]
    """Sentences that stand first."""
    best: ShownRun | None
    """The best run, below the headline."""
    legend: Sequence[tuple[int, str]]
    """Rank (index of the colour) and label of each group."""
    whole: Sequence[Picture]
    """Pictures in their own size, above the others."""
    parallel: tuple[str, bytes] | None
    """Description and data, as JSON (`evorl.analysis.sweep_figure`), of the parallel coordinates of a sweep."""
    main: Sequence[Chart]
    others: Mapping[str, Sequence[Chart]]
    """Curves of the other metrics, by heading."""
    single: Mapping[str, Table]
    """Metrics with one value per run, by heading."""
    curves: bytes
    """The data of the charts, as JSON (`evorl.analysis.curves`)."""
    tables: Mapping[str, Table]
    words: Mapping[str, str] = field(default_factory=dict)
    """What a table shows, in sentences, by its heading."""
    still: Sequence[str] = ()
    """File names of pictures that show the curves where a browser runs no scripts."""
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
    tables: Mapping[str, Table] = field(default_factory=dict)
    """Tables over all worlds, by title."""
    words: Mapping[str, str] = field(default_factory=dict)
    """What a table shows, in sentences, by its title."""
    folded: Mapping[str, Table] = field(default_factory=dict)
    """Collapsed tables, by title."""
    notes: Sequence[str] = ()


def escape(text: str) -> str:
    """Text of any origin as text of the page, or as an attribute's value."""
    return html_escape(printable(text))


def to_html(page: Page, *, live: bool = False) -> str:
    """Return the page; its colours follow the light or dark mode of the system.

    ``live``: it asks the server that it came from for newer content (`evorl.analysis.live`).
    """
    alone = len(page.sections) == 1
    body = [
        f"<header><h1>{escape(page.title)}</h1><p>{escape(page.subtitle)}</p></header>",
        *(_headline(section, named=not alone) for section in page.sections),
        _best(page.sections[0].best) if alone else "",
        _list("notes", [escape(note) for note in page.notes]),
        _CONTROLS if any(section.curves for section in page.sections) else "",
        f'<p class="caption">{escape(page.caption)}</p>',
        *_tables(page.tables, page.words),
        *(_section(section, f"s{number}-", alone) for number, section in enumerate(page.sections)),
        *(_details(title, title, table) for title, table in page.folded.items()),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(page.title)}</title>\n<style>{_style()}</style>\n</head>\n"
        f"<body{' data-live' if live else ''}>\n<main>\n"
        + "\n".join(part for part in body if part)
        + f"\n</main>\n{_scripts()}\n</body>\n</html>\n"
    )


def _scripts() -> str:
    """uPlot with its licence, and what draws the curves."""
    licence = (WEB / "uPlot.LICENSE").read_text(encoding="utf-8")
    code = [
        f"/*\n{licence}*/",
        *((WEB / name).read_text(encoding="utf-8") for name in ("uPlot.iife.min.js", "parallel.js", "page.js")),
    ]
    return f"<script>{chr(10).join(code)}</script>"


def _parallel(words: str, data: bytes) -> str:
    caption = (
        "A line stands for the runs with the same values. Drag along an axis to choose a range, click it to choose all."
    )
    return (
        f'<figure class="parallel" role="group" aria-label="{escape(words)}"><figcaption>{escape(words)}</figcaption>'
        f"<div></div>{_data(data, 'sweep')}"
        f'<p class="caption">{caption}</p></figure>'
    )


def _data(data: bytes, name: str) -> str:
    """JSON as an element of the page; the signs that could end the element are written as escapes."""
    text = data.decode().replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return f'<script type="application/json" class="{name}">{text}</script>'


def _still(names: Sequence[str]) -> str:
    pictures = "".join(f'<img src="{escape(name)}" alt="{escape(name)}">' for name in names)
    caption = "The curves as pictures, from the files beside this page:"
    return f'<noscript><p class="caption">{caption}</p>{pictures}</noscript>'


def _tables(tables: Mapping[str, Table], words: Mapping[str, str]) -> list[str]:
    return [
        f"<section><h3>{escape(title)}</h3>{_note(words.get(title, ''))}{_folded(title, table)}</section>"
        for title, table in tables.items()
    ]


def _note(words: str) -> str:
    return f'<p class="said">{escape(words)}</p>' if words else ""


def _folded(title: str, table: Table) -> str:
    """A table, collapsed if it is long."""
    return _table(table) if len(table) <= LONG else _details(title, f"{len(table)} rows", table)


def _details(title: str, summary: str, table: Table) -> str:
    """A table that unfolds; ``title`` names it in the page's script."""
    return f'<details data-title="{escape(title)}"><summary>{escape(summary)}</summary>{_table(table)}</details>'


def _section(section: Section, prefix: str, alone: bool) -> str:
    learning, *rest = HEADINGS
    parts = [
        f"<h2>{escape(section.title)}</h2>" if section.title else "",
        "" if alone else _best(section.best),
        _legend(section.legend),
        *(_whole(picture, f"{prefix}whole{number}-") for number, picture in enumerate(section.whole)),
        _parallel(*section.parallel) if section.parallel else "",
        _metrics(learning, section, section.main),
        _still(section.still) if section.still else "",
        *_tables(section.tables, section.words),
        *(_population(shown, f"{prefix}population{number}-") for number, shown in enumerate(section.populations)),
        *(_metrics(title, section) for title in rest),
        _data(section.curves, "curves") if section.curves else "",
    ]
    return '<section class="world">' + "\n".join(part for part in parts if part) + "</section>"


def _metrics(heading: str, section: Section, main: Sequence[Chart] = ()) -> str:
    """Return a section of metrics: the main ones large, the others small, then numbers; empty if there are none."""
    others, single = section.others.get(heading, ()), section.single.get(heading, ())
    if not (main or others or single):
        return ""
    large = _charts(main, "pictures") if main else ""
    small = _charts(others, "pictures small") if others else ""
    return f"<section><h3>{escape(heading)}</h3>{large}{small}{_table(single) if single else ''}</section>"


def _headline(section: Section, named: bool) -> str:
    words = " ".join(section.headline)
    return f'<p class="headline">{escape(f"{section.title}: {words}" if named else words)}</p>' if words else ""


def _best(run: ShownRun | None) -> str:
    """The film of the best run, and its config beside it."""
    if run is None:
        return ""
    film, caption = "", f'<p class="caption">{escape(run.caption)}</p>' if run.caption else ""
    if run.film is not None:
        kind, content = run.film
        source = f"data:{kind};base64,{b64encode(content).decode()}"
        film = (
            f'<img src="{source}" alt="film">'
            if kind.startswith("image/")
            else f'<video src="{source}" controls loop muted playsinline></video>'
        )
        film, caption = f'<figure class="film">{film}{caption}</figure>', ""
    config = f'<div class="config"><h3>Config of run {escape(run.name)}</h3>{_table(run.config)}</div>'
    return f'{caption}<div class="best">{film}{config}</div>'


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


def _charts(charts: Sequence[Chart], kind: str) -> str:
    return f'<div class="{kind}">{"".join(map(_chart, charts))}</div>'


def _chart(shown: Chart) -> str:
    metric, title = escape(shown.metric), escape(shown.title)
    return (
        f'<figure class="chart" data-metric="{metric}"><figcaption title="{title}">{title}</figcaption>'
        "<div></div></figure>"
    )


def _legend(groups: Sequence[tuple[int, str]]) -> str:
    """Buttons that show and hide the curves of a group."""
    return _list(
        "legend",
        [
            f'<button type="button" data-group="{rank}" aria-pressed="true"><i class="c{rank % len(COLOURS)}"></i>'
            f"{dash_sign(rank)}{escape(label)}</button>"
            for rank, label in groups
        ],
    )


def _list(name: str, items: Sequence[str]) -> str:
    return f'<ul class="{name}">' + "".join(f"<li>{item}</li>" for item in items) + "</ul>" if items else ""


def _table(rows: Table) -> str:
    right = numeric_columns(rows)
    head = "".join(_cell("th", key, key in right) for key in rows[0])
    body = ("".join(_cell("td", text, key in right) for key, text in row.items()) for row in rows)
    lines = "".join(f"<tr>{cells}</tr>" for cells in body)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div><p class="hint">→ more columns: scroll</p>'


def _cell(tag: str, text: str, right: bool) -> str:
    return f"<{tag}{' class=number' if right else ''}>{escape(text)}</{tag}>"


def _style() -> str:
    light = ";".join(f"--{name}:{colour}" for name, colour in _colours().items())
    dark = ";".join(f"--{name}:{colour}" for name, colour in _DARK.items())
    marks = "".join(f".c{rank}{{background:var(--c{rank})}}" for rank in range(len(COLOURS)))
    sheets = (WEB / "uPlot.min.css").read_text(encoding="utf-8") + (WEB / "page.css").read_text(encoding="utf-8")
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{marks}{sheets}"


_CONTROLS = """\
<form class="controls" hidden>
<label>horizontal <select name="x"><option value="steps">environment steps</option><option value="seconds">time</option>
</select></label>
<label>vertical <select name="y"><option value="linear">linear</option><option value="log">logarithmic</option>
</select></label>
<label><input type="checkbox" name="runs" checked> each run</label>
<span>Drag to zoom, double-click to zoom out. Click a name to hide its curves, double-click to see it alone.</span>
</form>"""


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
