"""The content of a report, computed before anything is drawn: groups, comparisons, panels and populations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evorl.analysis.comparison import Comparison, comparisons
from evorl.analysis.groups import Group, group_runs, runs_by_world
from evorl.analysis.headline import Headline, headline
from evorl.analysis.html_page import HEADINGS
from evorl.analysis.importance import Importance, importance, lacking, wanted
from evorl.analysis.jobs import JobLog, read_job_log
from evorl.analysis.notes import count
from evorl.analysis.opponents import OpponentLog, opponent_logs
from evorl.analysis.panels import Panel, make_panel
from evorl.analysis.payoffs import PayoffTable, payoff_tables
from evorl.analysis.population import PopulationLog, population_logs, read_search_log
from evorl.analysis.runs import RunRecord, is_number
from evorl.analysis.scores import joint_scores, world_scores
from evorl.analysis.sources import Choices, Sources
from evorl.analysis.sweep_figure import SweepFitness, sweep_fitness
from evorl.analysis.sweeps import PendingJob, pending_by_world, seeks_lowest
from evorl.record.layout import SECTIONS

MAIN_METRICS = ("train/return", "eval/return_mean", "population/best", "population/score")
PREFIXES = tuple(SECTIONS.values())
"""Prefixes of the metrics in each section of `HEADINGS`; the first match counts."""
WITHOUT_PICTURE = re.compile(r"eval/.*_(min|max|std)$|budget/|hardware/(cpu|memory)_")
"""Metrics that are in tables only."""
MAX_PANELS = 200
"""Most metrics of a world that are drawn beside the main ones; 200 take 0.4 GB and 9 s, 400 take 0.7 GB and 24 s."""
MAX_NAMES = 40
"""Most characters of the names of several algorithms in a subtitle."""
MAX_SEEDS = 6
"""Most seeds that a subtitle lists."""
ALL_WORLDS = "all worlds"
APART = "There is no comparison over all worlds: fewer than two groups have two runs with a score on each."


@dataclass(frozen=True, kw_only=True, eq=False)
class WorldReport:
    """The part of a report on one world: its groups of runs, and what is computed of them."""

    name: str
    stem: str
    """Prefix of the file names of its figures; empty if it is the only world."""
    groups: Sequence[Group]
    comparisons: Sequence[Comparison]
    main: Mapping[str, Panel]
    others: Mapping[str, Sequence[Panel]]
    """Panels of the other metrics, by section."""
    single: Mapping[str, Sequence[Panel]]
    """Metrics of which every run has one value at most, by section: they are numbers and no curves."""
    headline: Headline
    sweep: SweepFitness | None
    varied: Sequence[Group]
    """The runs by all keys that differ, of which the importance is computed; none without the libraries for it."""
    populations: Mapping[str, PopulationLog]
    work: Mapping[str, JobLog]
    """Jobs of the runs of populations that share a critic, by population."""
    opponents: Mapping[str, OpponentLog]
    payoffs: Mapping[str, PayoffTable]
    pending: Sequence[PendingJob]

    @property
    def runs(self) -> list[RunRecord]:
        return [run for group in self.groups for run in group.runs]

    @cached_property
    def importance(self) -> Importance | None:
        """Computed when it is asked for: it takes seconds, and another process can draw meanwhile."""
        return importance(self.varied) if self.varied else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Content:
    """The content of a report."""

    runs: Sequence[RunRecord]
    worlds: Sequence[WorldReport]
    joint: Sequence[Comparison]
    """Comparisons over all worlds together, of several worlds."""
    notes: Sequence[str]
    """Lines at the top of the page."""
    choices: Choices

    @property
    def comparisons(self) -> list[Comparison]:
        return [*self.joint, *(comparison for part in self.worlds for comparison in part.comparisons)]


def gather(sources: Sources, choices: Choices) -> Content:
    """Compute the content of a report on what was found."""
    runs, pending = sources.runs, sources.pending
    searches = [log for log in map(read_search_log, sources.searches) if log]
    members = runs_by_world(runs)
    searched = _logs_of_searches(searches, members)
    apart = pending_by_world(pending, list(members))
    stems = {name: re.sub(r"\W+", "_", name) for name in members}
    unique = len(set(stems.values())) == len(stems)
    varied = {name: group_runs(several) for name, several in members.items()}
    groups = {name: group_runs(several, choices.by) for name, several in members.items()} if choices.by else varied
    without = lacking() if any(map(wanted, varied.values())) else ""
    notes = [*sources.notes, *([without] if without else [])]
    parts = []
    for number, (name, own) in enumerate(groups.items()):
        main, others, single, further = _panels(own)
        if further:
            notes.append(f"left out: {count(further, 'metric')} of {name} beyond {MAX_PANELS}; csv=true writes all")
        compared = comparisons(name, world_scores(name, own, choices.target))
        stem = "" if len(members) == 1 else f"{stems[name] if unique else f'{stems[name]}_{number}'}."
        logs = searched.get(name, {}) | population_logs(own)
        work = {title: jobs for title, log in logs.items() if (jobs := read_job_log(log.run)) is not None}
        parts.append(
            WorldReport(
                name=name, stem=stem, groups=own, main=main, others=others, single=single,
                comparisons=compared,
                headline=headline(own, compared, lowest=seeks_lowest(run for group in own for run in group.runs)),
                sweep=sweep_fitness(varied[name]), varied=() if without else varied[name],
                populations=logs, work=work, opponents=opponent_logs(own),
                payoffs=payoff_tables(own), pending=apart[name],
            )
        )  # fmt: skip
    joint = comparisons(ALL_WORLDS, joint_scores(groups, choices.target))
    if len(parts) > 1 and not joint and any(part.comparisons for part in parts):
        notes.append(APART)
    return Content(runs=runs, worlds=parts, joint=joint, notes=notes, choices=choices)


def describe(runs: Sequence[RunRecord], world: str) -> str:
    """Return world, algorithm, evolver, seeds and budget: ``pong · ppo · seed 0 · 40,000 environment steps``."""
    used = ("rl", "ec") if any(run.has_learner for run in runs) else ("ec",)
    chosen = [{run.choices.get(group) or "none" for run in runs} for group in used]
    names = [", ".join(sorted(choice if len(choice) > 1 else choice - {"none"})) for choice in chosen]
    facts = [world, *(name for name in names if 0 < len(name) <= MAX_NAMES), seeds(runs), budget(runs)]
    return " · ".join(fact for fact in facts if fact)


def describe_log(log: PopulationLog, world: str) -> str:
    """Describe the run of a population, or the search and its jobs."""
    if log.is_search:
        return f"{world} · search {log.run.directory.name} · {count(len(log.individuals), 'job')}"
    return describe([log.run], world)


def seeds(runs: Sequence[RunRecord]) -> str:
    """Return the seeds of runs in words, or their number if they are many."""
    seeds_named = list(dict.fromkeys(str(run.seed) for run in runs if run.seed is not None))
    if len(seeds_named) > MAX_SEEDS:
        return f"{len(seeds_named)} seeds"
    return f"seed{'s' if len(seeds_named) > 1 else ''} {', '.join(seeds_named)}" if seeds_named else ""


def budget(runs: Sequence[RunRecord]) -> str:
    """Return the budget of runs, or the steps that they took where the config has no budget or they ended before it.

    Of one run that has not ended, also the steps so far: ``1,350 of 3,000 environment steps``.
    """
    known = [steps for run in runs if (steps := _budget(run)) is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    if len(runs) == 1 and runs[0].state != "finished" and runs[0].steps < low:
        return f"{runs[0].steps:,.0f} of {low:,.0f} environment steps"
    return f"{low:,.0f} environment steps" if low == high else f"{low:,.0f} to {high:,.0f} environment steps"


def _budget(run: RunRecord) -> float | None:
    limit = run.config.get("budget.steps") or run.config.get("mdp.budget") or run.steps
    if not is_number(limit):
        return None
    return min(float(limit), run.steps) if run.state == "finished" else float(limit)


def _logs_of_searches(
    searches: Sequence[PopulationLog], members: Mapping[str, Sequence[RunRecord]]
) -> dict[str, dict[str, PopulationLog]]:
    """Return the searches by world and title. A search belongs to the first world that one of its jobs has."""
    homes = {name: {run.directory.resolve().parent for run in runs} for name, runs in members.items()}
    logs: dict[str, dict[str, PopulationLog]] = {}
    for log in searches:
        place = log.run.directory
        title = f"Search {place}" if len(searches) > 1 else "Search"
        for name in [name for name in homes if place.resolve() in homes[name]][:1]:
            logs.setdefault(name, {})[title] = log
    return logs


def _panels(groups: Sequence[Group]) -> tuple[dict[str, Panel], dict[str, list[Panel]], dict[str, list[Panel]], int]:
    """The panels of main metrics, by file name; those of others, and those of single values, by section; and the number
    of other metrics beyond `MAX_PANELS`."""
    metrics = {name for group in groups for run in group.runs for name in run.series}
    main: dict[str, Panel] = {}
    others: dict[str, list[Panel]] = {}
    single: dict[str, list[Panel]] = {}
    drawn = 0
    rest = sorted(
        (name for name in metrics.difference(MAIN_METRICS) if not WITHOUT_PICTURE.match(name)), key=_panel_order
    )
    for name in [*(name for name in MAIN_METRICS if name in metrics), *rest]:
        panel, heading = make_panel(groups, name), HEADINGS[_panel_order(name)[0]]
        if panel.at_end_only:
            single.setdefault(heading, []).append(panel)
        elif name in MAIN_METRICS:
            main[name.replace("/", "_")] = panel
        else:
            drawn += 1
            if drawn <= MAX_PANELS:
                others.setdefault(heading, []).append(panel)
    if "train_return" in main:
        main["train_return_by_time"] = make_panel(groups, MAIN_METRICS[0], "seconds")
    return main, others, single, max(drawn - MAX_PANELS, 0)


def _panel_order(metric: str) -> tuple[int, int, str]:
    """Return the index of the metric's section, that of its prefix in it, and the metric."""
    return next(
        (i, k, metric)
        for i, prefixes in enumerate(PREFIXES)
        for k, prefix in enumerate(prefixes)
        if metric.startswith(prefix)
    )
