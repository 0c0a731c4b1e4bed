"""Reader of ``opponents.jsonl``, how the games of a learner against each opponent went, and the picture of it.

Shapes: N tables, one for each evaluation, K opponents in the order in which they came into the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import numpy as np

from evorl.analysis.axes import readable_axis
from evorl.analysis.figures import INK, RULE, style
from evorl.analysis.fronts import RASTER_ABOVE
from evorl.analysis.groups import Group
from evorl.analysis.runs import RunRecord, further_lines
from evorl.analysis.statistics import Floats
from evorl.analysis.tables import Row, fittest_first
from evorl.util.text import printable
from evorl.util.types import Fraction, Natural, Steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_GROUPS = 6
"""Most groups whose opponents are shown."""
MOST = 40
"""Most opponents in a picture."""
NUMBERED = 12
"""Most tables and opponents whose scores are written into the fields of a picture."""
LONGEST = 32
"""Characters of a name in a picture."""
TITLE = "Opponents"
OWN = "snapshot "
"""How the names of snapshots begin, which were born in this run; others are there from its start."""
CAPTION = (
    "A score is the share of the points that the learner takes from an opponent over the last games against it: a win "
    "is 1, a draw 1/2. low and high are the 95 % interval (Wilson). Grey: not yet born, no game yet, or not in the "
    "pool. The learner changes while it plays these games, so a score lags behind."
)


class LoggedOpponent(msgspec.Struct):
    """A line of the file, as written by `evorl.opponents.pool.row`."""

    step: Steps
    opponent: Annotated[str, msgspec.Meta(max_length=4096)]
    born: Steps
    present: bool
    games: Natural
    wins: Natural
    draws: Natural
    losses: Natural
    score: Fraction
    low: Fraction
    high: Fraction


@dataclass(frozen=True, kw_only=True, eq=False)
class OpponentLog:
    """The N >= 1 tables of the opponents of a run."""

    run: RunRecord
    lines: Sequence[LoggedOpponent]
    damaged: int = 0
    """Number of complete lines that are not valid."""

    @cached_property
    def last(self) -> dict[str, LoggedOpponent]:
        """The newest line of each opponent, by name."""
        newest = {line.opponent: line for line in self.lines}
        return {name: newest[name] for name in dict.fromkeys(line.opponent for line in self.lines)}

    @cached_property
    def steps(self) -> list[int]:
        """Environment steps of the tables, ascending."""
        return sorted({line.step for line in self.lines if line.present})

    def scores(self, names: Sequence[str]) -> Floats:
        """The scores `[K, N]` of these opponents; NaN where an opponent has no game, or is not in the pool."""
        rows, columns = ({name: place for place, name in enumerate(x)} for x in (names, self.steps))
        scores = np.full((len(names), len(self.steps)), np.nan)
        for line in self.lines:
            if line.present and line.games and line.opponent in rows:
                scores[rows[line.opponent], columns[line.step]] = line.score
        return scores


def read_opponent_log(run: RunRecord) -> OpponentLog | None:
    """Read the opponents of a run; None if it has none. An incomplete last line is ignored."""
    decoder = msgspec.json.Decoder(LoggedOpponent)
    decoded = [_decode(decoder, text) for text in further_lines(run.directory, "opponents.jsonl")]
    lines = [line for line in decoded if line is not None]
    log = OpponentLog(run=run, lines=lines, damaged=len(decoded) - len(lines))
    return log if log.steps else None


def _decode(decoder: msgspec.json.Decoder[LoggedOpponent], text: bytes) -> LoggedOpponent | None:
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


def opponent_logs(groups: Sequence[Group]) -> dict[str, OpponentLog]:
    """Return the opponents of the fittest run of each group by title, for at most `MAX_GROUPS` groups."""
    return of_fittest(groups, TITLE, read_opponent_log)


T = TypeVar("T")


def of_fittest(groups: Sequence[Group], title: str, read: Callable[[RunRecord], T | None]) -> dict[str, T]:
    """Return what is read of the fittest run that has it of each group, by title, for at most `MAX_GROUPS` groups."""
    logs: dict[str, T] = {}
    for group in groups:
        if len(logs) == MAX_GROUPS:
            break
        for run in fittest_first(group.runs):
            if (log := read(run)) is not None:
                which = f" ({run.directory.name})" if len(group.runs) > 1 else ""
                logs[(f"{title}: {group.label}" if len(groups) > 1 else title) + which] = log
                break
    return logs


def opponent_rows(log: OpponentLog) -> list[Row]:
    """Return a row for each opponent, with its newest numbers."""
    return [
        {
            "opponent": printable(line.opponent), "born": line.born, "games": line.games, "wins": line.wins,
            "draws": line.draws, "losses": line.losses, "score": line.score, "low": line.low, "high": line.high,
            "in the pool": "yes" if line.present else f"left by {line.step:,}",
        }
        for line in log.last.values()
    ]  # fmt: skip


def opponent_figure(log: OpponentLog) -> Figure:
    """Draw the score against each opponent over environment steps."""
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    names = _shown(log)
    scores, steps = log.scores(names), np.array(log.steps, np.float64)
    before = np.r_[0.0 if steps[0] > 0 else -1.0, steps[:-1]]
    born = np.array([log.last[name].born if name.startswith(OWN) else 0 for name in names], np.float64)
    begins = np.minimum(np.maximum(before, born[:, None]), steps)  # [K, N] of the fields, which end at ``steps``
    with style():
        figure = Figure(figsize=(8.2, 1.3 + max(1.4, 0.27 * len(names))), layout="constrained")
        axes = figure.subplots()
        axes.grid(visible=False)
        axes.set_facecolor(RULE)
        fields = [(row, column) for row, column in np.ndindex(scores.shape) if np.isfinite(scores[row, column])]
        shown = PolyCollection(
            [_box(begins[row, column], steps[column], row) for row, column in fields],
            cmap="RdBu", edgecolors="face", linewidths=0.2, rasterized=len(fields) > RASTER_ABOVE,
        )  # fmt: skip
        shown.set(array=scores[np.isfinite(scores)], clim=(0, 1))
        axes.add_collection(shown)
        axes.set(xlim=(before[0], steps[-1]), ylim=(-0.5, len(names) - 0.5))
        if max(scores.shape) <= NUMBERED:
            for row, column in fields:
                score, wide = scores[row, column], steps[column] - begins[row, column]
                if wide >= 0.03 * (steps[-1] - before[0]):
                    colour = "white" if abs(score - 0.5) > 0.3 else INK
                    middle = float(begins[row, column] + wide / 2)
                    text = f"{score:.2f}".removeprefix("0")
                    axes.text(middle, row, text, ha="center", va="center", fontsize=8, color=colour)
        axes.set_yticks(range(len(names)), [short(printable(name)) for name in names])
        axes.invert_yaxis()
        axes.tick_params(length=0, labelcolor=INK)
        readable_axis(axes.xaxis, 6)
        axes.set_xlabel("environment steps")
        axes.set_title("Score of the learner against each opponent (grey: no game)")
        bar = figure.colorbar(shown, ax=axes, pad=0.015)
        bar.outline.set_visible(False)
    return figure


def _box(left: Any, right: Any, row: int) -> Floats:
    """The corners of a field."""
    return np.array([(left, row - 0.5), (right, row - 0.5), (right, row + 0.5), (left, row + 0.5)])


def _shown(log: OpponentLog) -> list[str]:
    """The opponents of a picture: all, or an even sample with the first and the last."""
    names = list(log.last)
    return [names[place] for place in np.linspace(0, len(names) - 1, min(MOST, len(names))).round().astype(int)]


def room_for(names: Sequence[str]) -> float:
    """Inches that the longest of these labels takes along its writing."""
    return 0.085 * max(map(len, names), default=0)


def short(name: str) -> str:
    """A name without its middle if it is too long for a picture: the beginning says which run, the end which policy."""
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[: half - 1]}…{name[-half:]}"
