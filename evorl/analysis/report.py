"""Composition of a report: its tables, its figures and its page, as files."""

from __future__ import annotations

from dataclasses import replace

from evorl.analysis.content import gather
from evorl.analysis.figures import render
from evorl.analysis.found import Choices, Found
from evorl.analysis.html_page import to_html
from evorl.analysis.report_figures import figures, population_pictures
from evorl.analysis.report_page import page_of
from evorl.analysis.report_tables import table_files


def compose(found: Found, choices: Choices) -> dict[str, bytes]:
    """Return the files of a report by name."""
    content = gather(found, choices)
    drawn = population_pictures(content)
    pictures = {
        f"{name}.{kind}": picture
        for name, figure, subtitle in figures(content, drawn)
        for kind, picture in render(figure, subtitle).items()
    }
    return table_files(content) | pictures | {"index.html": to_html(page_of(content, drawn)).encode()}


def compose_page(found: Found, choices: Choices) -> bytes:
    """Return the page alone, for a server that sends it while the runs go on."""
    content = gather(found, choices)
    page = page_of(content, population_pictures(content))
    alone = replace(page, sections=[replace(section, still=()) for section in page.sections])  # no files lie beside it
    return to_html(alone, live=True).encode()
