"""Metrics of which every run has one value at most, as tables of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evorl.analysis.panels import Panel
from evorl.analysis.tables import format_with_interval
from evorl.ops.student_t import half_width
from evorl.util.numbers import format_number

MOST_COLUMNS = 6
"""Most groups that are columns; more are rows."""


def single_values(panels: Sequence[Panel], labels: Sequence[str]) -> list[dict[str, str]]:
    """Return a table with the mean and the 95 % interval of each metric in each group (``labels``, by rank)."""
    cells = {panel.title: _column(panel) for panel in panels}
    if len(labels) <= MOST_COLUMNS:
        return [
            {"metric": title} | {label: column.get(rank, "") for rank, label in enumerate(labels)}
            for title, column in cells.items()
        ]
    return [
        {"group": label} | {title: column.get(rank, "") for title, column in cells.items()}
        for rank, label in enumerate(labels)
    ]


def _column(panel: Panel) -> Mapping[int, str]:
    constant = {}
    for curve in panel.curves:
        values = [float(y[0]) for _, y in curve.raw]
        mean = float(np.mean(values))
        constant[curve.rank] = (
            format_with_interval(mean, half_width(values)) if len(values) > 1 else format_number(mean)
        )
    return constant
