"""Figure of a MAP-Elites archive: the fittest individual of every cell of the grid.

Shapes: N individuals, D descriptors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evorl.analysis.axes import readable_axis
from evorl.analysis.figures import COLOURS
from evorl.analysis.fronts import colour_bar, robust_range, shades
from evorl.analysis.population import PopulationLog
from evorl.analysis.runs import is_number
from evorl.analysis.statistics import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIG_PREFIX = "ec.descriptors."


class Descriptor(NamedTuple):
    """An axis of the grid."""

    name: str
    low: float
    high: float
    cells: int

    @property
    def edges(self) -> Floats:
        """[cells + 1]"""
        return np.linspace(self.low, self.high, self.cells + 1)

    def cell(self, values: Floats) -> NDArray[np.intp]:
        """Return the cell `[N]` of each value; values beyond the bounds belong to the edge cells."""
        # as pyribs' GridArchive.index_of has it, whose epsilon moves a value just below an edge into the next cell
        places = (self.cells * (values - self.low) + 1e-6) / (self.high - self.low)
        return np.asarray(np.clip(np.floor(places), 0, self.cells - 1), np.intp)


def descriptors(log: PopulationLog) -> list[Descriptor]:
    """Return the axes of the grid; empty if the run is not MAP-Elites."""
    config = log.run.config
    values = {key.removeprefix(CONFIG_PREFIX): value for key, value in config.items() if key.startswith(CONFIG_PREFIX)}
    return [Descriptor(name, float(a), float(b), int(n)) for name, (a, b, n) in values.items()]


def elites(log: PopulationLog, axes: list[Descriptor]) -> Floats:
    """The best fitness [cells of the first axis, of the second, ...] of each cell; NaN for empty cells."""
    values = np.array(
        [[_descriptor_value(log, row, axis.name) for axis in axes] for row in range(len(log.individuals))]
    )
    f = log.objectives[:, 0]
    sound = np.isfinite(f) & np.isfinite(values).all(axis=1)
    cells = tuple(axis.cell(values[sound, k]) for k, axis in enumerate(axes))
    best = np.full([axis.cells for axis in axes], -np.inf)
    np.maximum.at(best, cells, f[sound])
    return np.where(np.isfinite(best), best, np.nan)


def _descriptor_value(log: PopulationLog, row: int, name: str) -> float:
    """Return the descriptor of an individual: the mean of a result, or a gene."""
    line = log.individuals[row]
    value = line.results[name] if name in line.results else line.genes.get(name)
    return float(value) if value is not None and is_number(value) else math.nan


def archive_figure(log: PopulationLog) -> Figure | None:
    """Draw the grid of the first two descriptors, with the best over all other descriptors; None without a grid."""
    from matplotlib.figure import Figure

    axes = descriptors(log)
    if not axes:
        return None
    best = elites(log, axes)
    known = np.isfinite(best)
    heading = f"Best {log.names[0]} of each cell ({known.sum()} of {best.size} are occupied)"
    flat = np.where(known, best, -np.inf).max(axis=tuple(range(2, len(axes))))
    flat = np.where(np.isfinite(flat), flat, np.nan)
    figure = Figure(figsize=(5.2, 3.9) if len(axes) > 1 else (5.2, 3.3), layout="constrained")
    place = figure.subplots()
    place.set_title(heading)
    place.set_xlabel(axes[0].name)
    readable_axis(place.xaxis, 5)
    readable_axis(place.yaxis, 5)
    if len(axes) == 1:
        place.stairs(flat, axes[0].edges, color=COLOURS[0], linewidth=1.6, baseline=None)
        place.set(xlim=(axes[0].low, axes[0].high), ylabel=log.names[0])
        return figure
    from matplotlib.colors import Normalize

    low, high = robust_range(flat.ravel())
    scale = Normalize(low, high if high > low else low + 1.0, clip=True)
    place.pcolormesh(axes[0].edges, axes[1].edges, np.ma.masked_invalid(flat.T), cmap=shades(), norm=scale)
    place.grid(False)
    place.set_ylabel(axes[1].name)
    colour_bar(figure, [place], scale, log.names[0])
    return figure
