"""A report put together from runs: which tables, which pictures, and what a reader is told about them."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import evorl
from evorl.record.figures import multiples, render, render_inset, single
from evorl.record.groups import Group, differences, group_runs, show
from evorl.record.page import Page, to_html
from evorl.record.panels import Panel, panel
from evorl.record.runs import Run, flatten
from evorl.record.table import group_rows, readable, run_rows, to_csv, to_markdown

MAIN = ("train/return", "eval/return_mean")
ORDER = ("train/", "eval/", "population/", "loss/", "policy/", "speed/")
DETAILS = re.compile(r"eval/.*_(min|max|std)|budget/")
"""Metrics without a picture: the tables say enough of them."""
GROUPS = "Groups: means over runs"
RUNS = "Runs"
CAPTION = (
    "Lines are means over seeds of each run's moving mean, dashed where only some of a group's runs have got; "
    "shades are 95 % intervals by Student's t, from three runs on; thin lines are the runs as recorded. "
    "Where there is one value per run, dots are runs and a bar is the mean with its interval."
)


def compose(runs: Sequence[Run]) -> dict[str, bytes]:
    """The files of a report on one run or more, by name."""
    groups = group_runs(runs)
    main, others = _panels(groups)
    return (
        _tables(groups)
        | {f"{name}.{kind}": picture for name, figure in _figures(main, others) for kind, picture in _both(figure)}
        | {"index.html": to_html(_page(runs, groups, list(main.values()), others)).encode()}
    )


def _tables(groups: Sequence[Group]) -> dict[str, bytes]:
    by_group, by_run = group_rows(groups), run_rows(groups)
    text = f"## {GROUPS}\n\n{to_markdown(by_group)}\n## {RUNS}\n\n{to_markdown(by_run)}"
    return {"groups.csv": to_csv(by_group).encode(), "runs.csv": to_csv(by_run).encode(), "table.md": text.encode()}


def _figures(main: Mapping[str, Panel], others: Sequence[Panel]) -> Iterator[tuple[str, Figure]]:
    """Each main metric on its own, the others side by side."""
    for name, shown in main.items():
        yield name, single(shown)
    if others:
        yield "metrics", multiples(others)


def _both(figure: Figure) -> list[tuple[str, bytes]]:
    return [("png", render(figure, "png")), ("svg", render(figure, "svg"))]


def _panels(groups: Sequence[Group]) -> tuple[dict[str, Panel], list[Panel]]:
    metrics = {name for group in groups for run in group.runs for name in run.series}
    main = {name.replace("/", "_"): panel(groups, name) for name in MAIN if name in metrics}
    if MAIN[0] in metrics:
        main["train_return_by_time"] = panel(groups, MAIN[0], "seconds")
    others = sorted((name for name in metrics.difference(MAIN) if not DETAILS.match(name)), key=_place)
    return main, [panel(groups, name) for name in others]


def _place(metric: str) -> tuple[int, str]:
    return next((i for i, prefix in enumerate(ORDER) if metric.startswith(prefix)), len(ORDER)), metric


def _page(runs: Sequence[Run], groups: Sequence[Group], main: Sequence[Panel], others: Sequence[Panel]) -> Page:
    common, own = _provenance(runs)
    folded = {"What differs between the configs": _differences(runs), "Provenance": common, "Provenance by run": own}
    where, names = _names(runs)
    short = [row | {"run": names[Path(row["run"])]} for row in readable(run_rows(groups))]
    facts = [_count(len(runs), "run"), _count(len(groups), "group"), where, time.strftime("%Y-%m-%d %H:%M")]
    return Page(
        title=_title(runs),
        subtitle=" · ".join([*facts, f"evorl {evorl.__version__}"]),
        legend=[(rank, f"{group.label} (n={len(group.runs)})") for rank, group in enumerate(groups)],
        main=[_inset(shown) for shown in main],
        others=[_inset(shown) for shown in others],
        caption=CAPTION,
        tables={GROUPS: readable(group_rows(groups)), RUNS: short},
        folded={title: table for title, table in folded.items() if table},
        notes=_notes(groups),
    )


def _inset(shown: Panel) -> tuple[str, bytes]:
    return f"{shown.title} by {shown.unit}", render_inset(single(shown, direct=False))


def _names(runs: Sequence[Run]) -> tuple[str, dict[Path, str]]:
    """Where all the runs lie, and each one's name below it."""
    above = Path(os.path.commonpath([run.directory.absolute().parent for run in runs]))
    names = {run.directory: str(run.directory.absolute().relative_to(above)) for run in runs}
    return str(above), names


def _title(runs: Sequence[Run]) -> str:
    """What all the runs have in common: ``pong · ppo``."""
    shared = [{run.choices.get(group) for run in runs} for group in ("mdp", "rl", "ec")]
    names = [next(iter(choice)) for choice in shared if len(choice) == 1]
    return " · ".join(name for name in names if name and name != "none") or "Report"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _differences(runs: Sequence[Run]) -> list[dict[str, str]]:
    _, names = _names(runs)
    return [
        {"key": key} | {names[run.directory]: show(value) for run, value in zip(runs, column, strict=True)}
        for key, column in differences(runs).items()
    ]


def _provenance(runs: Sequence[Run]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """What is the same for all runs (key, value), and what is each run's own (a row per run)."""
    known = [_texts(run.provenance) for run in runs]
    keys = list(dict.fromkeys(key for texts in known for key in texts))
    same = [key for key in keys if len({texts.get(key) for texts in known}) == 1]
    own = [key for key in keys if key not in same]
    _, names = _names(runs)
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
    open_ends = sum(run.state != "done" for run in runs)
    return [
        *(f"{group.label}: {again}, so its interval is too narrow." for group in groups if (again := _repeated(group))),
        *([f"{open_ends} of {_count(len(runs), 'run')} not done: their newest numbers stand in."] if open_ends else []),
        *(f"{run.directory}: {_count(run.damaged, 'damaged line')} left out." for run in runs if run.damaged),
        *(f"{run.directory}: no metrics yet." for run in runs if not run.series),
    ]


def _repeated(group: Group) -> str:
    twice = [str(seed) for seed, n in Counter(run.seed for run in group.runs).items() if n > 1]
    return f"seed {', '.join(twice)} counts more than once" if twice else ""
