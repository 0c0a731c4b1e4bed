"""The text, the curves and the pictures of a report's page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import evorl
from evorl.analysis.comparison import comparison_words
from evorl.analysis.content import Content, WorldReport, budget, seeds
from evorl.analysis.curves import Points, curves_json, points_per_curve
from evorl.analysis.figures import render_inset
from evorl.analysis.groups import differences, format_value
from evorl.analysis.hardware import hardware_rows
from evorl.analysis.html_page import Chart, Page, PopulationSection, Section
from evorl.analysis.jobs import JobLog, work_rows
from evorl.analysis.notes import count
from evorl.analysis.opponents import CAPTION as OF_OPPONENTS
from evorl.analysis.opponents import OpponentLog, opponent_figure, opponent_rows
from evorl.analysis.panels import Panel
from evorl.analysis.payoffs import OF_LEAGUE, OF_PSRO, PayoffTable, payoff_table_figure
from evorl.analysis.population import PopulationLog, sampled_rows
from evorl.analysis.report_figures import Pictures
from evorl.analysis.report_tables import (
    GROUPS,
    RUNS,
    WORK,
    joint_tables,
    page_notes,
    population_title,
    world_tables,
    world_words,
)
from evorl.analysis.runs import RunRecord, flatten
from evorl.analysis.shown_run import shown_run
from evorl.analysis.single_values import single_values
from evorl.analysis.sweep_figure import parallel_json, sweep_figure
from evorl.analysis.sweeps import short_names
from evorl.analysis.tables import Row, format_rows
from evorl.util.numbers import short_texts
from evorl.util.text import printable

CAPTION = (
    "Each thick line is the mean over the runs of a group, each smoothed by a moving mean over 1/40 of its length. "
    "It begins where all runs of the group have values and is dashed where only some of them do. "
    "Thin lines: recorded values of each run. Shading, from five runs on: 95 % interval of the mean (Student's t), cut "
    "off at the lowest and the highest recorded value. Metrics with one value per run are numbers."
)
CAPTION_OF_ONE = "Thick lines are moving means over 1/40 of the run, thin lines the recorded values."
THINNED = " Curves show at most {points} of the recorded values of a run, evenly spaced; csv=true writes all of them."
OF_RUNS = "The fittest run of each group. "
OF_SEARCHES = "Each individual is one job; steps are summed over all jobs so far. "
OF_POPULATIONS = (
    "Objectives are maximised. The axes leave out the worst 2 % of the individuals if they are far away. "
    "Figures of very large populations draw an even sample; best, mean and fronts are computed from all individuals. "
    "The dark line among the genes and the wide line in the lineage mark the descent of the best individual."
)
OF_WORK = (
    " The timeline and the utilisation show what each worker did from its first job to its last; a pale stretch is "
    "waiting. One row of the timeline is one worker. Of a long run, the timeline shows shares of time over the whole "
    "run, and every job in its middle. Individuals at work are those that train or play, of the slots that the run has."
)


def page_of(content: Content, drawn: Mapping[str, Mapping[str, Pictures]]) -> Page:
    """Compose the page; ``drawn``: the pictures of the populations, by world and title."""
    runs, parts = content.runs, content.worlds
    common, own = _provenance(runs)
    several = len(parts) > 1
    differ = {f"Differences between the configs{f': {part.name}' if several else ''}": part for part in parts}
    folded = {title: _differences(part.runs) for title, part in differ.items()}
    folded |= {"Hardware": _with_short_names(hardware_rows(runs), runs)}
    folded |= {"Provenance": common, "Provenance by run": own}
    pending = [job for part in parts for job in part.pending]
    where, names = short_names([*runs, *pending])
    groups = sum(len(part.groups) for part in parts)
    counts = [count(len(runs), "run"), count(groups, "group")]
    counts += [count(len(parts), "world")] if several else []
    counts += [f"{count(len(pending), 'job')} to come"] if pending else []
    facts = [seeds(runs), budget(runs), *counts, where, time.strftime("%Y-%m-%d %H:%M"), f"evorl {evorl.__version__}"]
    panels = [{shown.metric: shown for shown in _panels(part)} for part in parts]
    points = points_per_curve([part.groups for part in parts], [list(known) for known in panels])
    thinned = any(len(series) > points.run for run in runs for series in run.series.values())
    return Page(
        title=_title(runs, parts),
        subtitle=" · ".join(fact for fact in facts if fact),
        sections=[
            _section(part, known, names, points, drawn[part.name], part.name if several else "")
            for part, known in zip(parts, panels, strict=True)
        ],
        caption=(CAPTION_OF_ONE if len(runs) == 1 else CAPTION)
        + (THINNED.format(points=points.run) if thinned else ""),
        tables=joint_tables(content),
        words=comparison_words(content.joint),
        folded={title: table for title, table in folded.items() if table},
        notes=page_notes(content),
    )


def _panels(part: WorldReport) -> Iterator[Panel]:
    """Yield the panels of a world over environment steps."""
    yield from (shown for name, shown in part.main.items() if not name.endswith("_by_time"))
    yield from (shown for panels in part.others.values() for shown in panels)


def _section(
    part: WorldReport,
    panels: Mapping[str, Panel],
    names: Mapping[Path, str],
    points: Points,
    drawn: Mapping[str, Pictures],
    title: str,
) -> Section:
    tables, best = world_tables(part), part.headline.best
    labels = [f"{group.label} (n={len(group.runs)})" for group in part.groups]
    if len(part.groups) == len(part.runs):
        del tables[GROUPS]  # it repeats the table of runs
    short = {printable(directory): name for directory, name in names.items()}
    tables[RUNS] = [dict(row) | {"run": short[row["run"]]} for row in tables[RUNS]]
    return Section(
        title=title,
        legend=list(enumerate(labels)) if len(part.runs) > 1 else [],
        whole=[(part.sweep.title, render_inset(sweep_figure(part.sweep)))] if part.sweep and part.sweep.is_map else [],
        parallel=(part.sweep.title, parallel_json(part.sweep)) if part.sweep else None,
        headline=part.headline.sentences,
        best=shown_run(best, names[best.directory], list(part.groups[0].values)) if best else None,
        main=[_chart(shown) for name, shown in part.main.items() if not name.endswith("_by_time")],
        others={title: [_chart(shown) for shown in several] for title, several in part.others.items()},
        single={title: single_values(several, labels) for title, several in part.single.items()},
        curves=curves_json(part.groups, panels, names, points) if panels else b"",
        tables=tables,
        words=world_words(part),
        still=[f"{part.stem}{name}.png" for name in _still(part)],
        populations=[
            _population_section(title, log, drawn[title], part.work.get(title))
            for title, log in part.populations.items()
        ]
        + [_opponents_section(title, log) for title, log in part.opponents.items()]
        + [_payoffs_section(title, table) for title, table in part.payoffs.items()],
    )


def _still(part: WorldReport) -> list[str]:
    """The pictures that show what the page draws by scripts."""
    sweep = ["sweep"] if part.sweep and not part.sweep.is_map else []
    return [*sweep, *part.main, *(["metrics"] if part.others else [])]


def _chart(panel: Panel) -> Chart:
    return Chart(metric=panel.metric, title=panel.title)


def _population_section(title: str, log: PopulationLog, shown: Pictures, work: JobLog | None) -> PopulationSection:
    damaged = f" {count(log.damaged, 'damaged line')} of its file left out." if log.damaged else ""
    if work is not None:
        damaged += OF_WORK + (f" {count(work.damaged, 'damaged line')} of jobs left out." if work.damaged else "")
    return PopulationSection(
        title=population_title(title, log),
        pictures=[(words, render_inset(figure)) for _, words, figure in shown],
        caption=(OF_SEARCHES if log.is_search else OF_RUNS) + OF_POPULATIONS + damaged,
        table=format_rows(sampled_rows(log)) if log.table_rows else (),
        further={} if work is None else {WORK: format_rows(work_rows(work))},
    )


def _opponents_section(title: str, log: OpponentLog) -> PopulationSection:
    return PopulationSection(
        title=title,
        pictures=[("score against each opponent by environment steps", render_inset(opponent_figure(log)))],
        caption=OF_OPPONENTS + (f" {count(log.damaged, 'damaged line')} of its file left out." if log.damaged else ""),
        table=format_rows(opponent_rows(log)),
    )


def _payoffs_section(title: str, table: PayoffTable) -> PopulationSection:
    return PopulationSection(
        title=title,
        pictures=[(f"after {table.step:,} environment steps", render_inset(payoff_table_figure(table)))],
        caption=OF_LEAGUE if table.shares is None else OF_PSRO,
        table=(),
    )


def _title(runs: Sequence[RunRecord], parts: Sequence[WorldReport]) -> str:
    """Return what all runs have in common: ``pong · ppo``."""
    used = ("rl", "ec") if any(run.has_learner for run in runs) else ("ec",)
    chosen = [{run.choices.get(group) or "none" for run in runs} for group in used]
    shared: list[set[str]] = [{part.name for part in parts}, *chosen]
    names = [next(iter(choice)) for choice in shared if len(choice) == 1]
    return " · ".join(name for name in names if name != "none") or "Report"


def _differences(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    _, names = short_names(runs)
    texts = {key: short_texts([format_value(value) for value in column]) for key, column in differences(runs).items()}
    return [
        {"key": key} | {names[run.directory]: text for run, text in zip(runs, column, strict=True)}
        for key, column in texts.items()
    ]


def _with_short_names(rows: Sequence[Row], runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    _, names = short_names(runs)
    return format_rows([row | {"run": names[Path(row["run"])]} for row in rows]) if rows else []


def _provenance(runs: Sequence[RunRecord]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the provenance shared by all runs (key, value), and the rest (a row per run)."""
    known = [_as_text(run.provenance) for run in runs]
    keys = list(dict.fromkeys(key for texts in known for key in texts))
    same = [key for key in keys if len({texts.get(key) for texts in known}) == 1]
    own = [key for key in keys if key not in same]
    _, names = short_names(runs)
    rows = [
        {"run": names[run.directory]} | {key: texts.get(key, "") for key in own}
        for run, texts in zip(runs, known, strict=True)
    ]
    return [{"": key, "value": known[0][key]} for key in same], rows if own else []


def _as_text(provenance: Mapping[str, Any]) -> dict[str, str]:
    return {key: " ".join(map(str, v)) if isinstance(v, list) else str(v) for key, v in flatten(provenance).items()}
