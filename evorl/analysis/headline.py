"""What a report says first of a world: who is best, by how much, and since when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evorl.analysis.comparison import VERDICT, Comparison
from evorl.analysis.groups import Group, format_value
from evorl.analysis.panels import Panel, make_panel
from evorl.analysis.runs import RunRecord
from evorl.analysis.scores import CURVES
from evorl.analysis.statistics import held_at, interpolated
from evorl.analysis.sweeps import heldout_score, read_best
from evorl.analysis.tables import format_with_interval, summary_metrics
from evorl.ops.student_t import half_width
from evorl.util.numbers import format_number

SCORES = ("fitness", "train/return")
"""What groups are ranked by: the first that a run has."""


MOST_NAMES = 3
"""Most groups named that are equal to the best."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Headline:
    """The best run of a world, and sentences on its group."""

    sentences: Sequence[str]
    best: RunRecord | None
    """The best run of the best group; None if no run has a score."""


@dataclass(frozen=True, eq=False)
class _Ranked:
    group: Group
    scores: Sequence[tuple[float, RunRecord]]

    @property
    def values(self) -> list[float]:
        return [score for score, _ in self.scores]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    def equals(self, other: _Ranked) -> bool:
        """Whether the means are equal, but for the rounding of sums."""
        return math.isclose(self.mean, other.mean, rel_tol=1e-12)


def headline(groups: Sequence[Group], compared: Sequence[Comparison], *, lowest: bool = False) -> Headline:
    """Say which group has the best mean score, how far the next group is behind, and since when it leads.

    ``lowest``: the lowest score is the best. The verdict on the difference is that of the comparison at the end.
    Of the jobs of a search, the best is the job that the search named by replays: the best score is luck, too.
    """
    if (named := _named(groups)) is not None:
        return named
    measure, ranked = _rank(groups, lowest)
    if not ranked:
        return Headline(sentences=["No run has a score yet."], best=None)
    first = ranked[0]
    _, best = min(first.scores, key=lambda score: score[0] if lowest else -score[0])
    sentences = [_standing(measure, ranked, compared, lowest)]
    when = _lead(ranked, groups, lowest) if len(ranked) > 1 else _peak(best, lowest)
    return Headline(sentences=[*sentences, *([when] if when else [])], best=best)


def _named(groups: Sequence[Group]) -> Headline | None:
    """The headline of a search that named one of these runs by replays; None for other runs."""
    places = {run.directory.absolute(): (group, run) for group in groups for run in group.runs}
    homes = {place.parent for place in places}
    best = read_best(homes.pop()) if len(homes) == 1 else None
    if best is None or best.get("heldout") is None:
        return None
    for place, (group, run) in places.items():
        if place.name == best["job"]:
            which = f"job {best['job']}, {group.label}" if len(groups) > 1 else f"job {best['job']}"
            return Headline(sentences=[f"Best: {which}, {heldout_score(best)}."], best=run)
    return None


def last_shared(panel: Panel) -> float | None:
    """The last step at which all runs of all groups have values; None without one.

    Beyond it a group's mean is of those of its runs that went on.
    """
    whole = [curve.band.grid[curve.band.count == len(curve.raw)] for curve in panel.curves]
    if not all(map(len, whole)):
        return None
    last = min(float(steps[-1]) for steps in whole)
    return last if all(steps[0] <= last for steps in whole) else None


def lead_since(panel: Panel, rank: int, *, lowest: bool = False) -> float | None:
    """Where the curve of this group has been better than all others ever since; None if it is not at its end.

    It is looked at up to the step that all runs have reached. A group counts from its first value on.
    """
    last = last_shared(panel)
    if last is None:
        return None
    sign, at = -1.0 if lowest else 1.0, held_at if panel.held else interpolated
    [own] = [curve.band for curve in panel.curves if curve.rank == rank]
    grid = np.union1d(own.grid[own.grid <= last], last)
    mean, ahead = at(grid, own.grid, own.mean), np.ones(len(grid), bool)
    for curve in panel.curves:
        if curve.rank != rank:
            ahead &= ~(sign * (mean - at(grid, curve.band.grid, curve.band.mean)) <= 0)
    if not ahead[-1]:
        return None
    behind = np.flatnonzero(~ahead)
    return float(grid[behind[-1] + 1] if len(behind) else grid[0])


def _rank(groups: Sequence[Group], lowest: bool) -> tuple[str, list[_Ranked]]:
    """The groups that have scores, the best first, and what the scores are."""
    for measure in SCORES:
        scores = {group: [(m[measure], run) for run in group.runs if measure in (m := summary_metrics(run))]
                  for group in groups}  # fmt: skip
        ranked = [_Ranked(group, several) for group, several in scores.items() if several]
        if ranked:
            return measure, sorted(ranked, key=lambda entry: entry.mean if lowest else -entry.mean)
    return "", []


def _standing(measure: str, ranked: Sequence[_Ranked], compared: Sequence[Comparison], lowest: bool) -> str:
    first, n = ranked[0], len(ranked[0].values)
    score = f"{measure} {_with_interval(first.values)}"
    of = f", the mean of {n} runs" if n > 1 else ""
    if len(ranked) == 1:
        spread = f", from {format_number(min(first.values))} to {format_number(max(first.values))}" if n > 1 else ""
        return f"{score[0].upper()}{score[1:]}{of}{spread}."
    second, equal = ranked[1], [entry.group.label for entry in ranked[1:] if entry.equals(first)]
    if equal:
        others = [*equal[:MOST_NAMES], *([f"{len(equal) - MOST_NAMES} more"] if len(equal) > MOST_NAMES else [])]
        verdict = _verdict(ranked, compared) if len(equal) == 1 else ""
        return f"Equally good: {', '.join([first.group.label, *others])}, with {score}{of}{verdict}."
    gap = format_number(abs(first.mean - second.mean))
    side = "below" if lowest else "above"
    alone = " One run of each says little." if n == len(second.values) == 1 else ""
    return (
        f"Best: {first.group.label}, {score}{of}. It is {gap} {side} the next, {second.group.label} "
        f"({format_number(second.mean)}){_verdict(ranked, compared)}.{alone}"
    )


def _verdict(ranked: Sequence[_Ranked], compared: Sequence[Comparison]) -> str:
    """What the comparison at the end of the runs says of the second, or who is best there if it is not the first."""
    rows = next((comparison.rows for comparison in compared if comparison.scores.at == "end"), ())
    found = [{key: row[key] for key in list(row)[: list(row).index("runs")]} for row in rows]
    names = [{key: format_value(value) for key, value in entry.group.values.items()} for entry in ranked]
    if names[0] not in found:
        return ""
    if found[0] == names[0]:
        return f": {rows[found.index(names[1])][VERDICT]}" if names[1] in found else ""
    if math.isclose(rows[0]["IQM"], rows[found.index(names[0])]["IQM"], rel_tol=1e-12):
        return ""  # equal ones are in any order
    return f"; by interquartile mean {ranked[names.index(found[0])].group.label} is {rows[0][VERDICT]}"


def _lead(ranked: Sequence[_Ranked], groups: Sequence[Group], lowest: bool) -> str:
    names = [group for group in groups if any(entry.group is group for entry in ranked)]
    for metric in CURVES:
        if all(any(metric in run.series for run in group.runs) for group in names):
            panel = make_panel(groups, metric)
            if panel.at_end_only or (last := last_shared(panel)) is None:
                continue
            rank = next(rank for rank, group in enumerate(groups) if group is ranked[0].group)
            since, end = lead_since(panel, rank, lowest=lowest), max(run.steps for run in ranked[0].group.runs)
            [own] = [curve.band.grid for curve in panel.curves if curve.rank == rank]
            early = f"at {format_number(last)} steps, the last that all runs have reached" if last < own[-1] else ""
            if since is None:
                return "" if ranked[0].equals(ranked[1]) else f"By {metric} it does not lead {early or 'at the end'}."
            since_when = f"since step {since:,.0f}"
            return f"By {metric} it leads " + (f"{early}, {since_when}." if early else f"{since_when} of {end:,.0f}.")
    return ""


def _peak(run: RunRecord, lowest: bool) -> str:
    """When the best run had its best evaluation, of several."""
    for metric in CURVES[:2]:
        series = run.series.get(metric)
        if series is not None and len(series) > 1:
            at = int(np.argmin(series.values) if lowest else np.argmax(series.values))
            value, step = format_number(float(series.values[at])), series.steps[at]
            which = "lowest" if lowest else "highest"
            return f"Its {which} {metric}, {value}, was at step {step:,.0f} of {run.steps:,.0f}."
    return ""


def _with_interval(values: Sequence[float]) -> str:
    mean = float(np.mean(values))
    return format_with_interval(mean, half_width(values)) if len(values) > 1 else format_number(mean)
