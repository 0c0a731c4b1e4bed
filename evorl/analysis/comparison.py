"""Comparison of groups of runs by their scores, on one world or several, with intervals and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evorl.analysis.aggregates import (
    RESOLUTION,
    Estimate,
    estimate,
    iqm,
    is_sampled,
    mean,
    median,
    optimality_gap,
    probability_of_improvement,
    smallest_stratified_p_value,
    stratified_p_value,
)
from evorl.analysis.groups import format_value
from evorl.analysis.notes import count
from evorl.analysis.scores import Scores, title
from evorl.analysis.statistics import Floats
from evorl.analysis.tables import Row
from evorl.util.numbers import format_number, short_texts

LEVEL = 0.05
MOST_NAMES = 3
"""Most groups of one verdict that a sentence names."""
VERDICT = "compared with the first"
BETTER = "P(first better)"
GAP = "optimality gap"
TURNED = "better in pairs, but not by IQM"
"""The verdict on a group that the test finds better than the first, which the interquartile mean has chosen."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """The scores of groups and the rows of their table."""

    world: str
    scores: Scores
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    """Sentences on groups that are not compared, and on comparisons that could not be made."""

    @property
    def title(self) -> str:
        return f"Comparison of groups {title(self.scores)}"


def comparisons(world: str, scores_of_worlds: Iterable[Scores]) -> list[Comparison]:
    """Return the comparison of each of these scores, without those of fewer than two comparable groups."""
    compared = [
        Comparison(world=world, scores=scores, rows=comparison_rows(scores), notes=left_out(scores))
        for scores in scores_of_worlds
    ]
    made = [comparison for comparison in compared if comparison.rows]
    if made:  # what could not be compared for want of early scores is listed with the first comparison
        lost = [note for comparison in compared if not comparison.rows for note in _not_made(comparison.scores)]
        made[0] = replace(made[0], notes=[*made[0].notes, *lost])
    return made


def comparison_rows(scores: Scores) -> list[Row]:
    """One row per group with several runs on each world, the best interquartile mean first: the highest, or the lowest
    of a search that minimises.

    At equal steps or time, a group has no row if one of its runs had no score by then: the other runs alone would not
    represent the group. At the end, runs without a score are left out.

    Each is compared with the first: the probability that a run of the first is better, and what the Mann-Whitney test
    (of several worlds: a permutation test within each world) says at 5 %. Which group is first is known only after the
    runs, so p-values are corrected for all pairs of groups (Bonferroni). Empty if fewer than two can be compared.
    """
    rated = [
        (group, values, _aggregates(scores, values))
        for group, values, lacking in zip(scores.groups, scores.values, scores.lacking, strict=True)
        if min(map(len, values)) > 1 and (scores.at == "end" or not any(lacking))
    ]
    if len(rated) < 2:
        return []
    sign = -1.0 if scores.lowest else 1.0
    rated.sort(key=lambda entry: -sign * entry[2]["IQM"].value)
    best, *others = ([[sign * x for x in runs] for runs in values] for _, values, _ in rated)
    pairs = math.comb(len(rated), 2)
    corrected = [min(1.0, stratified_p_value(best, values) * pairs) for values in others]
    smallest = [_smallest(best, values) * pairs for values in others]
    better = [estimate(probability_of_improvement, *best, *values) for values in others]
    first, rest = ("lowest", "higher") if scores.lowest else ("highest", "lower")
    told = zip(corrected, smallest, better, strict=True)
    words = [first, *(_verdict(rest, p, least, above.value) for p, least, above in told)]
    nothing = Estimate(math.nan, math.nan, math.nan)
    return [
        _names(group) | {"runs": sum(map(len, values))} | _columns({**aggregates, BETTER: above}) | {VERDICT: verdict}
        for (group, values, aggregates), above, verdict in zip(rated, [nothing, *better], words, strict=True)
    ]


def left_out(scores: Scores) -> list[str]:
    """Name the groups that are not compared, with the reason, and those of which some runs have no score."""
    reasons = []
    for group, values, lacking in zip(scores.groups, scores.values, scores.lacking, strict=True):
        name = ", ".join(f"{key}={short_texts([value])[0]}" for key, value in _names(group).items()) or "all runs"
        few = [world for world, several in zip(scores.worlds, values, strict=True) if len(several) < 2]
        some = f"{sum(lacking)} of its {count(sum(map(len, values)) + sum(lacking), 'run')}"
        if any(lacking) and scores.at != "end":
            reasons.append(f"{name} is not compared: {some} had no score by then.")
        elif few and len(scores.worlds) > 1:
            reasons.append(f"{name} is not compared over all worlds: fewer than two runs on {', '.join(few)}.")
        elif few:
            reasons.append(f"{name} is not compared: fewer than two of its runs have a score.")
        elif any(lacking):
            reasons.append(f"{name} is compared without {some}, which have no score.")
    more = (
        [f"Nor are {len(reasons) - MOST_NAMES} more groups compared with all of their runs."]
        if len(reasons) > MOST_NAMES
        else []
    )
    return [*reasons[:MOST_NAMES], *more]


def _not_made(scores: Scores) -> list[str]:
    """Say why scores at equal steps or time could not be compared."""
    lacking = sum(map(sum, scores.lacking))
    at, _, where = title(scores).partition(": ")
    return [f"There is no comparison {at} ({where}): {count(lacking, 'run')} had no score by then."] if lacking else []


def comparison_text(rows: Sequence[Row]) -> list[dict[str, str]]:
    """The rows as text, with each interval in the cell of its number."""
    shown = [
        {_heading(key, row): _cell(row, key) for key in row if not key.endswith((" low", " high"))} for row in rows
    ]
    columns = {key: short_texts([row[key] for row in shown]) for key in shown[0]} if shown else {}
    return [{key: columns[key][number] for key in row} for number, row in enumerate(shown)]


def comparison_words(compared: Sequence[Comparison]) -> dict[str, str]:
    """By title, what each comparison shows, what its scores are, and whom it leaves out."""
    return {
        comparison.title: " ".join(
            [
                summary(comparison.rows),
                *([f"Scores: {comparison.scores.basis}."] if comparison.scores.basis else []),
                *comparison.notes,
            ]
        )
        for comparison in compared
    }


def summary(rows: Sequence[Row]) -> str:
    """What the comparison shows, as sentences; empty without rows."""
    if not rows:
        return ""
    names = [_label(row) for row in rows]
    kinds = {
        "lower": "Lower",
        "higher": "Higher",
        TURNED: f"{TURNED[0].upper()}{TURNED[1:]}",
        "no difference": "No difference shown",
        "too few": "Too few runs to tell",
    }
    sentences = [f"{rows[0][VERDICT].capitalize()}: {names[0]}, IQM {_cell(rows[0], 'IQM')}."]
    for begins, words in kinds.items():
        estimates = [
            f"{name} (better in {_percent(row[BETTER])} of pairs{_p(row[VERDICT])})"
            for name, row in zip(names, rows, strict=True)
            if row[VERDICT].startswith(begins)
        ]
        more = [f"and {len(estimates) - MOST_NAMES} more"] if len(estimates) > MOST_NAMES else []
        sentences += [f"{words}: {'; '.join([*estimates[:MOST_NAMES], *more])}."] if estimates else []
    return " ".join(sentences)


def _aggregates(scores: Scores, values: Sequence[Sequence[float]]) -> dict[str, Estimate]:
    """Each statistic of a group. On one world the median is over runs: over means of worlds it would be the mean."""
    middle = median if len(values) > 1 else _median_of_runs
    statistics = {"IQM": estimate(iqm, *values), "median": estimate(middle, *values), "mean": estimate(mean, *values)}
    if scores.target is None:
        return statistics
    sign = -1.0 if scores.lowest else 1.0  # the gap is on the side of the worse scores
    signed = [[sign * x for x in runs] for runs in values]
    return statistics | {GAP: estimate(optimality_gap(sign * scores.target), *signed)}


def _median_of_runs(runs: Floats) -> Any:
    return np.median(runs, axis=-1)


def _smallest(x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]) -> float:
    exact = smallest_stratified_p_value([(len(a), len(b)) for a, b in zip(x, y, strict=True)])
    return max(exact, RESOLUTION) if is_sampled(x, y) else exact


def _verdict(other: str, p: float, smallest: float, above: float) -> str:
    """``above``: the probability that the first is better. The test tells that it is not one half, on either side."""
    if p < LEVEL:
        return f"{other if above > 0.5 else TURNED} (p = {p:.2g})"
    if smallest >= LEVEL:
        return "too few runs to tell"
    return f"no difference shown (p = {p:.2g})"


def _names(group: Mapping[str, Any]) -> dict[str, str]:
    return {key: format_value(value) for key, value in group.items()}


def _columns(statistics: Mapping[str, Estimate]) -> Row:
    return {
        f"{name}{end}": None if math.isnan(value) else value
        for name, interval in statistics.items()
        for end, value in (("", interval.value), (" low", interval.low), (" high", interval.high))
    }


def _label(row: Row) -> str:
    keys = list(row)[: list(row).index("runs")]
    return ", ".join(f"{key}={short_texts([row[key]])[0]}" for key in keys) or "all runs"


def _percent(above: float) -> str:
    return f"{100 * (1 - above):.0f} %"


def _p(verdict: str) -> str:
    _, bracket, p = verdict.rstrip(")").partition("(")
    return f", {p}" if bracket else ""


def _heading(key: str, row: Row) -> str:
    return f"{key} [95 %]" if f"{key} low" in row else key


def _cell(row: Row, key: str) -> str:
    if row[key] is None:
        return ""
    if f"{key} low" not in row:
        return str(row[key])
    low, high = (row[f"{key}{end}"] for end in (" low", " high"))
    return format_number(row[key]) + ("" if low is None else f" [{format_number(low)}, {format_number(high)}]")
