"""Composition of a report: its tables, its figures and its page, as files."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from evorl.analysis.content import gather
from evorl.analysis.figures import render
from evorl.analysis.html_page import to_html
from evorl.analysis.report_figures import figures, metrics_pictures, population_pictures
from evorl.analysis.report_page import page_of
from evorl.analysis.report_tables import table_files
from evorl.analysis.sources import Choices, Sources
from evorl.cluster.processes.fork import forked


def compose(sources: Sources, choices: Choices) -> dict[str, bytes]:
    """Return the files of a report by name."""
    content = gather(sources, choices)
    drawn = population_pictures(content)
    with forked(lambda: msgspec.msgpack.encode(metrics_pictures(content))) as metrics:  # take as long as the rest
        pictures = {name: render(figure, subtitle) for name, figure, subtitle in figures(content, drawn)}
        tables, page = table_files(content), to_html(page_of(content, drawn)).encode()
        pictures |= msgspec.msgpack.decode(metrics(), type=dict[str, dict[str, bytes]])
    by_file = {f"{name}.{kind}": data for name, kinds in pictures.items() for kind, data in kinds.items()}
    return tables | by_file | {"index.html": page}


def compose_page(sources: Sources, choices: Choices) -> bytes:
    """Return the page alone, for a server that sends it while the runs go on."""
    content = gather(sources, choices)
    page = page_of(content, population_pictures(content))
    alone = replace(page, sections=[replace(section, still=()) for section in page.sections])  # no files lie beside it
    return to_html(alone, live=True).encode()
