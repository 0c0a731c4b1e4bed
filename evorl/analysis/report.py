"""A report put together from runs: which tables, which pictures, and what a reader is told about them."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import evorl
from evorl.analysis.figures import multiples, render, render_inset, single
from evorl.analysis.groups import Group, differences, group_runs, show, worlds
from evorl.analysis.html_page import Page, Portrait, Section, to_html
from evorl.analysis.panels import Panel, panel
from evorl.analysis.population import SHOWN, Census, censuses, few, rows
from evorl.analysis.population_figures import portraits
from evorl.analysis.runs import RunRecord, flatten
from evorl.analysis.sweep_figure import Landscape, landscape, picture
from evorl.analysis.sweeps import Waiting, by_world, short_names
from evorl.analysis.tables import group_rows, readable, run_rows, to_csv, to_markdown

MAIN = ("train/return", "eval/return_mean", "population/best")
ORDER = ("train/", "eval/", "population/", "loss/", "policy/", "speed/")
DETAILS = re.compile(r"eval/.*_(min|max|std)|budget/")
"""Metrics without a picture: the tables say enough of them."""
GROUPS = "Groups: means over runs"
RUNS = "Runs"
CAPTION = (
    "Lines are means over seeds of each run's moving mean (over a fortieth of its length), from where all of a group's "
    "runs have begun, dashed where only some have got; "
    "shades are 95 % intervals by Student's t, from three runs on; thin lines are the runs as recorded. "
    "Where there is one value per run, dots are runs and a bar is the mean with its interval."
)


OF_RUNS = "Of each group's fittest run. "
OF_SEARCHES = "Individuals are whole jobs, and steps those of all jobs so far. "
OF_POPULATIONS = (
    "Objectives are maximised. Scales leave out the worst fiftieth where it is far away, "
    "and pictures of very many individuals show an even part of them; best, mean and fronts are of all. The dark line "
    "among genes and the broad one in the tree are the line of descent of the best individual."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """The part of a report on one world: its groups, and what is drawn of them."""

    name: str
    stem: str
    """Begins the names of its pictures; empty where it is the only world."""
    groups: Sequence[Group]
    main: Mapping[str, Panel]
    others: Sequence[Panel]
    landscape: Landscape | None
    populations: Mapping[str, Census]
    portraits: Mapping[str, Sequence[tuple[str, str, Figure]]]
    """Of each population: name of the file, words and figure of each picture."""
    waiting: Sequence[Waiting]

    @property
    def runs(self) -> list[RunRecord]:
        return [run for group in self.groups for run in group.runs]


def compose(
    runs: Sequence[RunRecord],
    waiting: Sequence[Waiting] = (),
    notes: Sequence[str] = (),
    searches: Sequence[Census] = (),
) -> dict[str, bytes]:
    """The files of a report on one run or more, on jobs that wait and on searches over jobs, by name; ``notes`` open
    its page."""
    parts = _parts(runs, waiting, searches)
    return (
        _tables(parts)
        | {f"{name}.{kind}": picture for name, figure in _figures(parts) for kind, picture in render(figure).items()}
        | {"index.html": to_html(_page(runs, parts, notes)).encode()}
    )


def _parts(runs: Sequence[RunRecord], waiting: Sequence[Waiting], searches: Sequence[Census]) -> list[World]:
    members = worlds(runs)
    searched = _searched(searches, members)
    apart = by_world(waiting, list(members))
    stems = {name: re.sub(r"\W+", "_", name) for name in members}
    unique = len(set(stems.values())) == len(stems)
    parts = []
    for number, (name, several) in enumerate(members.items()):
        groups = group_runs(several)
        main, others = _panels(groups)
        stem = "" if len(members) == 1 else f"{stems[name] if unique else f'{stems[name]}_{number}'}."
        found = searched.get(name, {}) | censuses(groups)
        shown = {title: list(portraits(census)) for title, census in found.items()}
        parts.append(
            World(
                name=name, stem=stem, groups=groups, main=main, others=others, landscape=landscape(groups),
                populations=found, portraits=shown, waiting=apart[name],
            )
        )  # fmt: skip
    return parts


def _searched(searches: Sequence[Census], members: Mapping[str, Sequence[RunRecord]]) -> dict[str, dict[str, Census]]:
    """Each search by what it is called, with the first of these worlds that a job of it is a run of."""
    homes = {name: {run.directory.resolve().parent for run in runs} for name, runs in members.items()}
    found: dict[str, dict[str, Census]] = {}
    for census in searches:
        place = census.run.directory
        title = f"Search {place}" if len(searches) > 1 else "Search"
        for name in [name for name in homes if place.resolve() in homes[name]][:1]:
            found.setdefault(name, {})[title] = census
    return found


def _tables(parts: Sequence[World]) -> dict[str, bytes]:
    by_group = [{"world": part.name} | row for part in parts for row in group_rows(part.groups)]
    by_run = [{"world": part.name} | row for part in parts for row in run_rows(part.groups, part.waiting)]
    tables = {"groups.csv": to_csv(by_group).encode(), "runs.csv": to_csv(by_run).encode()}
    known = [census for part in parts for census in part.populations.values() if census.chosen]
    if known:
        best = [{"run": str(census.run.directory)} | row for census in known for row in rows(census)]
        tables["population.csv"] = to_csv(best).encode()
    return tables | {"table.md": "\n".join(map(_text, parts)).encode()}


def _text(part: World) -> str:
    """The tables of a world for people, in Markdown."""
    tables = {GROUPS: group_rows(part.groups), RUNS: run_rows(part.groups, part.waiting)}
    tables |= {_best(title, census): few(census) for title, census in part.populations.items() if census.chosen}
    return f"# {part.name}\n\n" + "\n".join(f"## {title}\n\n{to_markdown(table)}" for title, table in tables.items())


def _best(title: str, census: Census) -> str:
    """What a table of individuals says."""
    if len(census.names) > 1:
        return f"{title}: {min(SHOWN, len(census.chosen))} of the {len(census.chosen)} individuals of the front"
    return f"{title}: the best individuals"


def _figures(parts: Sequence[World]) -> Iterator[tuple[str, Figure]]:
    """What a sweep over a world found, each main metric on its own, the others side by side."""
    for part in parts:
        if part.landscape:
            yield part.stem + "sweep", picture(part.landscape)
        for name, shown in part.main.items():
            yield part.stem + name, single(shown)
        if part.others:
            yield part.stem + "metrics", multiples(part.others)
        for number, pictures in enumerate(part.portraits.values()):
            which = f"population{number}" if len(part.portraits) > 1 else "population"
            yield from ((f"{part.stem}{which}_{name}", figure) for name, _, figure in pictures)


def _panels(groups: Sequence[Group]) -> tuple[dict[str, Panel], list[Panel]]:
    metrics = {name for group in groups for run in group.runs for name in run.series}
    main = {name.replace("/", "_"): panel(groups, name) for name in MAIN if name in metrics}
    if MAIN[0] in metrics:
        main["train_return_by_time"] = panel(groups, MAIN[0], "seconds")
    others = sorted((name for name in metrics.difference(MAIN) if not DETAILS.match(name)), key=_place)
    return main, [panel(groups, name) for name in others]


def _place(metric: str) -> tuple[int, str]:
    return next((i for i, prefix in enumerate(ORDER) if metric.startswith(prefix)), len(ORDER)), metric


def _page(runs: Sequence[RunRecord], parts: Sequence[World], notes: Sequence[str]) -> Page:
    common, own = _provenance(runs)
    several = len(parts) > 1
    differ = {f"What differs between the configs{f': {part.name}' if several else ''}": part for part in parts}
    folded = {title: _differences(part.runs) for title, part in differ.items()}
    folded |= {"Provenance": common, "Provenance by run": own}
    waiting = [job for part in parts for job in part.waiting]
    where, names = short_names([*runs, *waiting])
    groups = sum(len(part.groups) for part in parts)
    counts = [_count(len(runs), "run"), _count(groups, "group")]
    counts += [_count(len(parts), "world")] if several else []
    counts += [f"{_count(len(waiting), 'job')} to come"] if waiting else []
    facts = [*counts, where, time.strftime("%Y-%m-%d %H:%M"), f"evorl {evorl.__version__}"]
    return Page(
        title=_title(runs, parts),
        subtitle=" · ".join(facts),
        sections=[_section(part, names, part.name if several else "") for part in parts],
        caption=CAPTION,
        folded={title: table for title, table in folded.items() if table},
        notes=[*notes, *(note for part in parts for note in _notes(part.groups))],
    )


def _section(part: World, names: Mapping[Path, str], title: str) -> Section:
    by_run = [row | {"run": names[Path(row["run"])]} for row in readable(run_rows(part.groups, part.waiting))]
    found = [(part.landscape.title, render_inset(picture(part.landscape)))] if part.landscape else []
    return Section(
        title=title,
        legend=[(rank, f"{group.label} (n={len(group.runs)})") for rank, group in enumerate(part.groups)],
        whole=found,
        main=[_inset(shown) for shown in part.main.values()],
        others=[_inset(shown) for shown in part.others],
        tables={GROUPS: readable(group_rows(part.groups)), RUNS: by_run},
        populations=[_portrait(title, census, part.portraits[title]) for title, census in part.populations.items()],
    )


def _portrait(title: str, census: Census, shown: Sequence[tuple[str, str, Figure]]) -> Portrait:
    damaged = f" {_count(census.damaged, 'damaged line')} of its file left out." if census.damaged else ""
    return Portrait(
        title=_best(title, census),
        pictures=[(words, render_inset(figure)) for _, words, figure in shown],
        caption=(OF_SEARCHES if census.searched else OF_RUNS) + OF_POPULATIONS + damaged,
        table=readable(few(census)) if census.chosen else (),
    )


def _inset(shown: Panel) -> tuple[str, bytes]:
    return f"{shown.title} by {shown.unit}", render_inset(single(shown, direct=False))


def _title(runs: Sequence[RunRecord], parts: Sequence[World]) -> str:
    """What all the runs have in common: ``pong · ppo``."""
    chosen = [{run.choices.get(group) or "none" for run in runs} for group in ("rl", "ec")]
    shared: list[set[str]] = [{part.name for part in parts}, *chosen]
    names = [next(iter(choice)) for choice in shared if len(choice) == 1]
    return " · ".join(name for name in names if name != "none") or "Report"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _differences(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    _, names = short_names(runs)
    return [
        {"key": key} | {names[run.directory]: show(value) for run, value in zip(runs, column, strict=True)}
        for key, column in differences(runs).items()
    ]


def _provenance(runs: Sequence[RunRecord]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """What is the same for all runs (key, value), and what is each run's own (a row per run)."""
    known = [_texts(run.provenance) for run in runs]
    keys = list(dict.fromkeys(key for texts in known for key in texts))
    same = [key for key in keys if len({texts.get(key) for texts in known}) == 1]
    own = [key for key in keys if key not in same]
    _, names = short_names(runs)
    rows = [
        {"run": names[run.directory]} | {key: texts.get(key, "") for key in own}
        for run, texts in zip(runs, known, strict=True)
    ]
    return [{"": key, "value": known[0][key]} for key in same], rows if own else []


def _texts(provenance: Mapping[str, Any]) -> dict[str, str]:
    return {key: " ".join(map(str, v)) if isinstance(v, list) else str(v) for key, v in flatten(provenance).items()}


def _notes(groups: Sequence[Group]) -> list[str]:
    """What a reader must know before trusting the numbers."""
    runs = [run for group in groups for run in group.runs]
    open_ends = sum(run.state != "finished" for run in runs)
    known = f"{open_ends} of {_count(len(runs), 'run')} not finished: their newest numbers stand in."
    return [
        *(f"{group.label}: {again}, so its interval is too narrow." for group in groups if (again := _repeated(group))),
        *(f"{group.label}: means over runs of unlike {keys}." for group in groups if (keys := _unlike(group))),
        *([known] if open_ends else []),
        *(f"{run.directory}: {_count(run.damaged, 'damaged line')} left out." for run in runs if run.damaged),
        *(f"{run.directory}: failed: {run.reason}" for run in runs if run.state == "failed"),
        *(f"{run.directory}: no metrics yet." for run in runs if not run.series),
    ]


def _repeated(group: Group) -> str:
    twice = [str(seed) for seed, n in Counter(run.seed for run in group.runs).items() if n > 1]
    return f"seed {', '.join(twice)} counts more than once" if twice else ""


def _unlike(group: Group) -> str:
    """The keys of the budget in which a group's runs differ."""
    return ", ".join(key for key in differences(group.runs) if key.startswith("budget."))
