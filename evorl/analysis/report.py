"""Composition of a report: its tables, its figures, and the text of its page."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import evorl
from evorl.analysis.comparison import comparison_rows, comparison_text
from evorl.analysis.figures import metrics_figure, panel_figure, render, render_inset
from evorl.analysis.groups import Group, differences, format_value, group_runs, runs_by_world
from evorl.analysis.hardware import hardware_rows
from evorl.analysis.html_page import HEADINGS, Page, PopulationSection, Section, to_html
from evorl.analysis.job_figures import distribution_figure, work_figures
from evorl.analysis.jobs import JobLog, read_job_log, work_rows
from evorl.analysis.notes import count, warnings
from evorl.analysis.panels import Panel, make_panel
from evorl.analysis.population import TABLE_ROWS, PopulationLog, individual_rows, population_logs, sampled_rows
from evorl.analysis.population_figures import population_figures
from evorl.analysis.runs import RunRecord, flatten, is_number
from evorl.analysis.sweep_figure import SweepFitness, sweep_figure, sweep_fitness
from evorl.analysis.sweeps import PendingJob, pending_by_world, short_names
from evorl.analysis.tables import Row, format_rows, group_rows, run_rows, to_csv, to_markdown
from evorl.record.layout import SECTIONS

MAIN_METRICS = ("train/return", "eval/return_mean", "population/best")
PREFIXES = tuple(SECTIONS.values())
"""Prefixes of the metrics in each section of `HEADINGS`; the first match counts."""
WITHOUT_PICTURE = re.compile(r"eval/.*_(min|max|std)|budget/|hardware/(cpu|memory)_")
"""Metrics that are in tables only."""
MAX_NAMES = 40
"""Most characters of the names of several algorithms in a subtitle."""
MAX_SEEDS = 6
"""Most seeds that a subtitle lists."""
GROUPS = "Groups: means over runs"
COMPARISON = "Comparison of groups by fitness"
RUNS = "Runs"
CAPTION = (
    "Each line is the mean over the runs of a group, each smoothed by a moving mean over 1/40 of its length. "
    "It begins where all runs of the group have values and is dashed where only some of them do. "
    "Shading: 95 % interval (Student's t), from three runs on. Thin lines: recorded values of each run. "
    "Metrics with one value per run: a dot per run, and a bar for the mean and its interval."
)
CAPTION_OF_ONE = "Thick lines are moving means over 1/40 of the run, thin lines the recorded values."


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
WORK = "Work of the workers"


@dataclass(frozen=True, kw_only=True, eq=False)
class WorldReport:
    """The part of a report on one world: its groups of runs and their figures."""

    name: str
    stem: str
    """Prefix of the file names of its figures; empty if it is the only world."""
    groups: Sequence[Group]
    comparison: Sequence[Row]
    main: Mapping[str, Panel]
    others: Mapping[str, Sequence[Panel]]
    """Panels of the other metrics, by section."""
    sweep: SweepFitness | None
    populations: Mapping[str, PopulationLog]
    pictures: Mapping[str, Sequence[tuple[str, str, Figure]]]
    """File name, description and figure of each picture, by population."""
    work: Mapping[str, JobLog]
    """Jobs of the runs of populations that share a critic, by population."""
    pending: Sequence[PendingJob]

    @property
    def runs(self) -> list[RunRecord]:
        return [run for group in self.groups for run in group.runs]


def compose(
    runs: Sequence[RunRecord],
    pending: Sequence[PendingJob] = (),
    notes: Sequence[str] = (),
    searches: Sequence[PopulationLog] = (),
) -> dict[str, bytes]:
    """Return the files of a report by name.

    ``pending``: jobs of sweeps that have no run yet; ``notes``: lines at the top of the page; ``searches``: the
    population logs of searches over jobs.
    """
    parts = _world_reports(runs, pending, searches)
    return (
        _tables(parts)
        | {
            f"{name}.{kind}": picture
            for name, figure, subtitle in _figures(parts)
            for kind, picture in render(figure, subtitle).items()
        }
        | {"index.html": to_html(_page(runs, parts, notes)).encode()}
    )


def _world_reports(
    runs: Sequence[RunRecord], pending: Sequence[PendingJob], searches: Sequence[PopulationLog]
) -> list[WorldReport]:
    members = runs_by_world(runs)
    searched = _logs_of_searches(searches, members)
    apart = pending_by_world(pending, list(members))
    stems = {name: re.sub(r"\W+", "_", name) for name in members}
    unique = len(set(stems.values())) == len(stems)
    parts = []
    for number, (name, several) in enumerate(members.items()):
        groups = group_runs(several)
        main, others = _panels(groups)
        stem = "" if len(members) == 1 else f"{stems[name] if unique else f'{stems[name]}_{number}'}."
        found = searched.get(name, {}) | population_logs(groups)
        work = {title: jobs for title, log in found.items() if (jobs := read_job_log(log.run)) is not None}
        shown = {title: list(_population_figures(log, work.get(title))) for title, log in found.items()}
        parts.append(
            WorldReport(
                name=name, stem=stem, groups=groups, comparison=comparison_rows(groups), main=main, others=others,
                sweep=sweep_fitness(groups),
                populations=found, pictures=shown, work=work, pending=apart[name],
            )
        )  # fmt: skip
    return parts


def _population_figures(log: PopulationLog, work: JobLog | None) -> Iterator[tuple[str, str, Figure]]:
    yield from population_figures(log)
    if (figure := distribution_figure(log.run)) is not None:
        yield "distribution", "trained share and standard deviation by environment steps", figure
    if work is not None:
        yield from work_figures(work)


def _logs_of_searches(
    searches: Sequence[PopulationLog], members: Mapping[str, Sequence[RunRecord]]
) -> dict[str, dict[str, PopulationLog]]:
    """Return the searches by world and title. A search belongs to the first world that one of its jobs has."""
    homes = {name: {run.directory.resolve().parent for run in runs} for name, runs in members.items()}
    found: dict[str, dict[str, PopulationLog]] = {}
    for log in searches:
        place = log.run.directory
        title = f"Search {place}" if len(searches) > 1 else "Search"
        for name in [name for name in homes if place.resolve() in homes[name]][:1]:
            found.setdefault(name, {})[title] = log
    return found


def _tables(parts: Sequence[WorldReport]) -> dict[str, bytes]:
    by_group = [{"world": part.name} | row for part in parts for row in group_rows(part.groups)]
    by_run = [{"world": part.name} | row for part in parts for row in run_rows(part.groups, part.pending)]
    tables = {"groups.csv": to_csv(by_group).encode(), "runs.csv": to_csv(by_run).encode()}
    compared = [{"world": part.name} | row for part in parts for row in part.comparison]
    if compared:
        tables["comparison.csv"] = to_csv(compared).encode()
    if hardware := hardware_rows([run for part in parts for run in part.runs]):
        tables["hardware.csv"] = to_csv(hardware).encode()
    known = [log for part in parts for log in part.populations.values() if log.table_rows]
    if known:
        best = [{"run": str(log.run.directory)} | row for log in known for row in individual_rows(log)]
        tables["population.csv"] = to_csv(best).encode()
    if any(part.work for part in parts):
        work = [
            {"run": str(log.run.directory)} | row
            for part in parts
            for log in part.work.values()
            for row in work_rows(log)
        ]
        tables["work.csv"] = to_csv(work).encode()
    return tables | {"table.md": "\n".join(map(_markdown, parts)).encode()}


def _markdown(part: WorldReport) -> str:
    """Return the tables of a world in Markdown."""
    tables: dict[str, Sequence[Row]] = {GROUPS: group_rows(part.groups), **_comparison(part)}
    tables[RUNS] = run_rows(part.groups, part.pending)
    tables |= {_table_title(title, log): sampled_rows(log) for title, log in part.populations.items() if log.table_rows}
    tables |= {f"{title}: {WORK.lower()}": work_rows(log) for title, log in part.work.items()}
    return f"# {part.name}\n\n" + "\n".join(f"## {title}\n\n{to_markdown(table)}" for title, table in tables.items())


def _comparison(part: WorldReport) -> dict[str, list[dict[str, str]]]:
    return {COMPARISON: comparison_text(part.comparison)} if part.comparison else {}


def _table_title(title: str, log: PopulationLog) -> str:
    """Return the heading of a table of individuals."""
    if len(log.names) > 1:
        return f"{title}: {min(TABLE_ROWS, len(log.table_rows))} of the {len(log.table_rows)} individuals of the front"
    return f"{title}: the best individuals"


def _figures(parts: Sequence[WorldReport]) -> Iterator[tuple[str, Figure, str]]:
    """Yield file name, figure and subtitle: the sweep, each main metric, the other metrics, and the populations."""
    for part in parts:
        subtitle = _describe(part.runs, part.name)
        if part.sweep:
            yield part.stem + "sweep", sweep_figure(part.sweep), subtitle
        for name, shown in part.main.items():
            yield part.stem + name, panel_figure(shown), subtitle
        if part.others:
            yield part.stem + "metrics", metrics_figure(part.others), subtitle
        for number, (title, pictures) in enumerate(part.pictures.items()):
            which = f"population{number}" if len(part.pictures) > 1 else "population"
            own = _describe_log(part.populations[title], part.name)
            yield from ((f"{part.stem}{which}_{name}", figure, own) for name, _, figure in pictures)


def _describe(runs: Sequence[RunRecord], world: str) -> str:
    """Return world, algorithm, evolver, seeds and budget: ``pong · ppo · seed 0 · 40,000 environment steps``."""
    used = ("ec",) if world.startswith("problem") else ("rl", "ec")  # a problem is not played by a learner
    chosen = [{run.choices.get(group) or "none" for run in runs} for group in used]
    names = [", ".join(sorted(choice - {"none"})) for choice in chosen]
    facts = [world, *(name for name in names if 0 < len(name) <= MAX_NAMES), _seeds(runs), _budget(runs)]
    return " · ".join(fact for fact in facts if fact)


def _describe_log(log: PopulationLog, world: str) -> str:
    """Describe the run of a population, or the search and its jobs."""
    if log.is_search:
        return f"{world} · search {log.run.directory.name} · {count(len(log.individuals), 'job')}"
    return _describe([log.run], world)


def _seeds(runs: Sequence[RunRecord]) -> str:
    seeds = list(dict.fromkeys(str(run.seed) for run in runs if run.seed is not None))
    if len(seeds) > MAX_SEEDS:
        return f"{len(seeds)} seeds"
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}" if seeds else ""


def _budget(runs: Sequence[RunRecord]) -> str:
    """Return the budget of runs, or the steps that they have reached where the config has no budget."""
    given = [run.config.get("budget.steps") or run.config.get("mdp.budget") or run.steps for run in runs]
    known = [float(steps) for steps in given if is_number(steps)]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{low:,.0f} environment steps" if low == high else f"{low:,.0f} to {high:,.0f} environment steps"


def _panels(groups: Sequence[Group]) -> tuple[dict[str, Panel], dict[str, list[Panel]]]:
    metrics = {name for group in groups for run in group.runs for name in run.series}
    main = {name.replace("/", "_"): make_panel(groups, name) for name in MAIN_METRICS if name in metrics}
    if MAIN_METRICS[0] in metrics:
        main["train_return_by_time"] = make_panel(groups, MAIN_METRICS[0], "seconds")
    others = sorted(
        (name for name in metrics.difference(MAIN_METRICS) if not WITHOUT_PICTURE.match(name)), key=_panel_order
    )
    sections: dict[str, list[Panel]] = {}
    for name in others:
        sections.setdefault(HEADINGS[_panel_order(name)[0]], []).append(make_panel(groups, name))
    return main, sections


def _panel_order(metric: str) -> tuple[int, int, str]:
    """Return the index of the metric's section, that of its prefix in it, and the metric."""
    return next(
        (i, k, metric)
        for i, prefixes in enumerate(PREFIXES)
        for k, prefix in enumerate(prefixes)
        if metric.startswith(prefix)
    )


def _page(runs: Sequence[RunRecord], parts: Sequence[WorldReport], notes: Sequence[str]) -> Page:
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
    facts = [_seeds(runs), _budget(runs), *counts, where, time.strftime("%Y-%m-%d %H:%M"), f"evorl {evorl.__version__}"]
    return Page(
        title=_title(runs, parts),
        subtitle=" · ".join(fact for fact in facts if fact),
        sections=[_section(part, names, part.name if several else "") for part in parts],
        caption=CAPTION_OF_ONE if len(runs) == 1 else CAPTION,
        folded={title: table for title, table in folded.items() if table},
        notes=[*notes, *(note for part in parts for note in warnings(part.groups))],
    )


def _section(part: WorldReport, names: Mapping[Path, str], title: str) -> Section:
    by_run = [row | {"run": names[Path(row["run"])]} for row in format_rows(run_rows(part.groups, part.pending))]
    found = [(part.sweep.title, render_inset(sweep_figure(part.sweep)))] if part.sweep else []
    single_runs = len(part.groups) == len(part.runs)  # then the table of groups repeats that of runs
    by_group = {} if single_runs else {GROUPS: format_rows(group_rows(part.groups))}
    return Section(
        title=title,
        legend=[(rank, f"{group.label} (n={len(group.runs)})") for rank, group in enumerate(part.groups)]
        if len(part.runs) > 1
        else [],
        whole=found,
        main=[_panel_picture(shown) for shown in part.main.values()],
        others={title: [_panel_picture(shown) for shown in panels] for title, panels in part.others.items()},
        tables=by_group | _comparison(part) | {RUNS: by_run},
        populations=[
            _population_section(title, log, part.pictures[title], part.work.get(title))
            for title, log in part.populations.items()
        ],
    )


def _population_section(
    title: str, log: PopulationLog, shown: Sequence[tuple[str, str, Figure]], work: JobLog | None
) -> PopulationSection:
    damaged = f" {count(log.damaged, 'damaged line')} of its file left out." if log.damaged else ""
    if work is not None:
        damaged += OF_WORK + (f" {count(work.damaged, 'damaged line')} of jobs left out." if work.damaged else "")
    return PopulationSection(
        title=_table_title(title, log),
        pictures=[(words, render_inset(figure)) for _, words, figure in shown],
        caption=(OF_SEARCHES if log.is_search else OF_RUNS) + OF_POPULATIONS + damaged,
        table=format_rows(sampled_rows(log)) if log.table_rows else (),
        further={} if work is None else {WORK: format_rows(work_rows(work))},
    )


def _panel_picture(shown: Panel) -> tuple[str, bytes]:
    return f"{shown.title} by {shown.unit}", render_inset(panel_figure(shown, direct=False))


def _title(runs: Sequence[RunRecord], parts: Sequence[WorldReport]) -> str:
    """Return what all runs have in common: ``pong · ppo``."""
    chosen = [{run.choices.get(group) or "none" for run in runs} for group in ("rl", "ec")]
    shared: list[set[str]] = [{part.name for part in parts}, *chosen]
    names = [next(iter(choice)) for choice in shared if len(choice) == 1]
    return " · ".join(name for name in names if name != "none") or "Report"


def _differences(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    _, names = short_names(runs)
    return [
        {"key": key} | {names[run.directory]: format_value(value) for run, value in zip(runs, column, strict=True)}
        for key, column in differences(runs).items()
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
