"""The figures of a report, by file name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.figure import Figure

from evorl.analysis.content import Content, describe, describe_log
from evorl.analysis.figures import metrics_figure, panel_figure, render
from evorl.analysis.job_figures import distribution_figure, work_figures
from evorl.analysis.jobs import JobLog
from evorl.analysis.opponents import opponent_figure
from evorl.analysis.panels import Panel
from evorl.analysis.payoffs import payoff_table_figure
from evorl.analysis.population import PopulationLog
from evorl.analysis.population_figures import population_figures
from evorl.analysis.sweep_figure import sweep_figure

Pictures = Sequence[tuple[str, str, Figure]]
"""File name, description and figure of each picture of a population."""


def shading(panels: Sequence[Panel]) -> str:
    """What the shading of these panels is, for the end of a subtitle; empty if there is none."""
    shaded = any(panel.interval(curve) is not None for panel in panels for curve in panel.curves)
    return " · shaded: 95 % interval of the mean over runs (Student's t)" if shaded else ""


def population_pictures(content: Content) -> dict[str, dict[str, Pictures]]:
    """Draw the populations; by world and title."""
    return {
        part.name: {title: list(_pictures(log, part.work.get(title))) for title, log in part.populations.items()}
        for part in content.worlds
    }


def figures(content: Content, drawn: Mapping[str, Mapping[str, Pictures]]) -> Iterator[tuple[str, Figure, str]]:
    """Yield file name, figure and subtitle: the sweep, each main metric, and the populations."""
    for part in content.worlds:
        subtitle = describe(part.runs, part.name)
        if part.sweep:
            yield part.stem + "sweep", sweep_figure(part.sweep), subtitle
        for name, shown in part.main.items():
            yield part.stem + name, panel_figure(shown), subtitle + shading([shown])
        for number, (title, pictures) in enumerate(drawn[part.name].items()):
            which = f"population{number}" if len(part.populations) > 1 else "population"
            own = describe_log(part.populations[title], part.name)
            yield from ((f"{part.stem}{which}_{name}", figure, own) for name, _, figure in pictures)
        for number, log in enumerate(part.opponents.values()):
            which = f"opponents{number}" if len(part.opponents) > 1 else "opponents"
            yield part.stem + which, opponent_figure(log), describe([log.run], part.name)
        for number, (title, table) in enumerate(part.payoffs.items()):
            which = f"payoffs{number}" if len(part.payoffs) > 1 else "payoffs"
            yield part.stem + which, payoff_table_figure(table), f"{title} · after {table.step:,} environment steps"


def metrics_pictures(content: Content) -> dict[str, dict[str, bytes]]:
    """Draw the metrics of each world that are not its main ones; by file name and kind."""
    return {
        f"{part.stem}metrics": render(
            metrics_figure(part.others),
            describe(part.runs, part.name) + shading([panel for panels in part.others.values() for panel in panels]),
        )
        for part in content.worlds
        if part.others
    }


def _pictures(log: PopulationLog, work: JobLog | None) -> Iterator[tuple[str, str, Figure]]:
    yield from population_figures(log)
    if (figure := distribution_figure(log.run)) is not None:
        yield "distribution", "trained share and standard deviation by environment steps", figure
    if work is not None:
        yield from work_figures(work)
