"""Composition of a report: its tables, its figures and its page, as files."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from evorl.analysis.content import describe, gather
from evorl.analysis.figures import render
from evorl.analysis.found import Choices, Found
from evorl.analysis.html_page import to_html
from evorl.analysis.report_figures import figures, metrics_picture, population_pictures
from evorl.analysis.report_page import page_of
from evorl.analysis.report_tables import table_files
from evorl.cluster.processes.fork import with_parent


def compose(found: Found, choices: Choices) -> dict[str, bytes]:
    """Return the files of a report by name."""
    content = gather(found, choices)
    drawn = population_pictures(content)
    with ProcessPoolExecutor(1, get_context("fork"), initializer=with_parent()) as second:
        metrics = {  # which take about as long as the rest
            f"{part.stem}metrics": second.submit(metrics_picture, part.others, describe(part.runs, part.name))
            for part in content.worlds
            if part.others
        }
        pictures = {name: render(figure, subtitle) for name, figure, subtitle in figures(content, drawn)}
        files = table_files(content) | {"index.html": to_html(page_of(content, drawn)).encode()}
        pictures |= {name: picture.result() for name, picture in metrics.items()}
    return files | {f"{name}.{kind}": data for name, kinds in pictures.items() for kind, data in kinds.items()}


def compose_page(found: Found, choices: Choices) -> bytes:
    """Return the page alone, for a server that sends it while the runs go on."""
    content = gather(found, choices)
    page = page_of(content, population_pictures(content))
    alone = replace(page, sections=[replace(section, still=()) for section in page.sections])  # no files lie beside it
    return to_html(alone, live=True).encode()
