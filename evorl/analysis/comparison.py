"""Comparison of the groups of a world by the fitness of their runs, with intervals and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evorl.analysis.aggregates import (
    Estimate,
    estimate,
    holm,
    iqm,
    p_value,
    probability_of_improvement,
    smallest_p_value,
)
from evorl.analysis.groups import Group, format_value
from evorl.analysis.tables import Row, format_number, summary_metrics

LEVEL = 0.05


def comparison_rows(groups: Sequence[Group]) -> list[Row]:
    """One row per group of several runs, the highest interquartile mean first; empty if fewer than two have any.

    Each is compared with the first: the probability that a run of the first is better, and what the Mann-Whitney test
    says at 5 %, its p-values corrected for the number of comparisons (Holm).
    """
    known = [(group, _fitness(group)) for group in groups]
    rated = [(group, scores, estimate(iqm, scores)) for group, scores in known if len(scores) > 1]
    if len(rated) < 2:
        return []
    rated.sort(key=lambda one: -one[2].value)
    (_, best, _), others = rated[0], [scores for _, scores, _ in rated[1:]]
    corrected = holm([p_value(best, scores) for scores in others])
    smallest = [smallest_p_value(len(best), len(scores)) * len(others) for scores in others]
    words = ["highest", *map(_verdict, corrected, smallest)]
    better = [Estimate(math.nan, math.nan, math.nan)]
    better += [estimate(probability_of_improvement, best, scores) for scores in others]
    return [
        {key: format_value(value) for key, value in group.values.items()}
        | {"runs": len(scores), "IQM": middle.value, "IQM low": middle.low, "IQM high": middle.high}
        | {"P(first better)": _known(above.value), "P low": _known(above.low), "P high": _known(above.high)}
        | {"compared with the first": said}
        for (group, scores, middle), above, said in zip(rated, better, words, strict=True)
    ]


def comparison_text(rows: Sequence[Row]) -> list[dict[str, str]]:
    """The rows as text, with each interval in the cell of its number."""
    return [{_heading(key): _cell(row, key) for key in row if not key.endswith((" low", " high"))} for row in rows]


def _fitness(group: Group) -> list[float]:
    measured = [summary_metrics(run).get("fitness") for run in group.runs]
    return [value for value in measured if value is not None]


def _verdict(p: float, smallest: float) -> str:
    if p < LEVEL:
        return f"lower (p = {p:.2g})"
    if smallest >= LEVEL:
        return "too few runs to tell"
    return f"no difference shown (p = {p:.2g})"


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _heading(key: str) -> str:
    return {"IQM": "fitness: IQM [95 %]", "P(first better)": "P(first better) [95 %]"}.get(key, key)


def _cell(row: Row, key: str) -> str:
    intervals = {"IQM": ("IQM low", "IQM high"), "P(first better)": ("P low", "P high")}
    if row[key] is None:
        return ""
    if key not in intervals:
        return str(row[key])
    low, high = (format_number(row[name]) for name in intervals[key])
    return f"{format_number(row[key])} [{low}, {high}]"
