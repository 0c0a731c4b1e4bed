"""Reader of ``payoffs.jsonl``, the newest table of a population whose policies play each other, and the picture of it.

Letters in shapes: N rows and M columns of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from evorl.analysis.figures import COLOURS, INK, RULE, style
from evorl.analysis.groups import Group
from evorl.analysis.opponents import of_fittest, room_for, short
from evorl.analysis.runs import RunRecord, further_lines
from evorl.analysis.statistics import Floats
from evorl.util.text import printable
from evorl.util.types import Fraction, Natural, NonNegative, Steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 40
"""Most rows and columns of a picture."""
NUMBERED = 12
"""Most rows and columns whose numbers are written into the fields."""
TITLE = "Payoffs"
OF_LEAGUE = (
    "Scores of the agents (rows) against agents and snapshots (columns) at the end: the share of points, a win is 1, a "
    "draw 1/2, in which old games have faded. Grey: no game yet. Agents change while they play, so a score lags behind."
)
OF_PSRO = (
    "What the policy of a row earns on side 0 from that of a column on side 1, as half of what it earns more, and the "
    "share of each policy in the mixtures of both sides. Policies are named by the ids of individuals."
)

_Name = Annotated[str, msgspec.Meta(max_length=4096)]


class _LeagueLine(msgspec.Struct):
    """A line of a league (`evorl.ec.league.Strategy.table`)."""

    step: Steps
    agents: list[_Name]
    players: list[_Name]
    score: list[list[Fraction]]
    games: list[list[NonNegative]]


class _PSROLine(msgspec.Struct):
    """A line of PSRO (`evorl.ec.psro.Strategy.table`)."""

    step: Steps
    policies: list[Natural]
    payoff: list[list[float]]
    mixtures: list[list[Fraction]]


@dataclass(frozen=True, kw_only=True, eq=False)
class PayoffTable:
    """The newest table of a run."""

    step: int
    rows: Sequence[str]
    columns: Sequence[str]
    values: Floats
    """[N, M], NaN for pairs that have not played."""
    shares: Floats | None
    """[2, M] of the mixtures of both sides; None of a league."""


def payoff_tables(groups: Sequence[Group]) -> dict[str, PayoffTable]:
    """Return the table of the fittest run of each group that has one, by title."""
    return of_fittest(groups, TITLE, read_payoffs)


def read_payoffs(run: RunRecord) -> PayoffTable | None:
    """Read the newest valid table of a run; None if it has none."""
    for text in reversed([*further_lines(run.directory, "payoffs.jsonl")]):
        try:
            return _of_line(text)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            continue
    return None


def _of_line(text: bytes) -> PayoffTable:
    """Raises ValueError for a line that is no table."""
    try:
        line = msgspec.json.decode(text, type=_LeagueLine)
    except msgspec.ValidationError:
        return _of_psro(msgspec.json.decode(text, type=_PSROLine))
    rows, columns = ([short(printable(name)) for name in names] for names in (line.agents, line.players))
    score, games = (np.array(x, np.float64).reshape(len(rows), len(columns)) for x in (line.score, line.games))
    return PayoffTable(
        step=line.step, rows=rows, columns=columns, values=np.where(games > 0, score, np.nan), shares=None
    )


def _of_psro(line: _PSROLine) -> PayoffTable:
    names = [*map(str, line.policies)]
    values, shares = np.array(line.payoff, np.float64), np.array(line.mixtures, np.float64)
    size = len(names)
    return PayoffTable(
        step=line.step, rows=names, columns=names, values=values.reshape(size, size), shares=shares.reshape(2, size)
    )


def payoff_table_figure(table: PayoffTable) -> Figure:
    """Draw the table, and the mixtures below it; of large ones the last rows and columns."""
    from matplotlib.figure import Figure

    rows, columns, values = table.rows[-MOST:], table.columns[-MOST:], table.values[-MOST:, -MOST:]
    league, size = table.shares is None, 0.34
    with style():
        height = 1.2 + max(1.2, size * len(rows)) + (0 if league else 1.2) + room_for(columns)
        wide = 1.6 + max(3.0, size * len(columns)) + room_for(rows)
        figure = Figure(figsize=(wide, height), layout="constrained")
        ratios = [max(3, len(rows))] if league else [max(3, len(rows)), 2]
        grid = figure.subplots(len(ratios), 1, squeeze=False, sharex=True, height_ratios=ratios)[:, 0]
        axes = grid[0]
        axes.grid(visible=False)
        axes.set_facecolor(RULE)
        far = 0.5 if league else max(1e-9, float(np.abs(values).max(initial=0)))
        middle = 0.5 if league else 0.0
        shown = axes.imshow(np.ma.masked_invalid(values), cmap="RdBu", vmin=middle - far, vmax=middle + far)
        axes.set_aspect("auto")
        if max(values.shape) <= NUMBERED:
            for (row, column), value in np.ndenumerate(values):
                if np.isfinite(value):
                    colour = "white" if abs(value - middle) > 0.6 * far else INK
                    axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(length=0, labelcolor=INK)
        axes.set_title("Scores in the league" if league else "Payoffs of side 0, and the mixtures of both sides")
        figure.colorbar(shown, ax=axes, pad=0.015).outline.set_visible(False)
        if table.shares is not None:
            for side, share in enumerate(table.shares[:, -MOST:]):
                at = np.arange(len(columns)) + 0.4 * side - 0.2
                grid[1].bar(at, share, width=0.36, color=COLOURS[side], label=f"side {side}")
            grid[1].legend(frameon=False, fontsize=8)
        grid[-1].set_xticks(range(len(columns)), columns, rotation=90)
    return figure
