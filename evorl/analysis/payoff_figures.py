"""Pictures and the page of a payoff matrix. Letters in shapes: K players, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from evorl.analysis.axes import readable_axis
from evorl.analysis.figures import COLOURS, INK, MUTED, render_inset, style
from evorl.analysis.html_page import Page, Section, to_html
from evorl.analysis.opponents import room_for, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Array = NDArray[Any]

NUMBERED = 20
"""Most players whose scores are written into the fields of a matrix."""


def payoff_figure(
    names: Sequence[str], payoff: Array, bounds: Array, by: Literal["points", "return"] = "points"
) -> Figure:
    """Return the matrix [K, K] of scores, or of payoffs by returns: of the player of a row against that of a column.

    ``bounds`` [2, K, K] are those of the intervals. A field is hatched whose interval holds one half, of returns zero.
    """
    from matplotlib.figure import Figure

    count, labels = len(names), [short(name) for name in names]
    middle, far = (0.5, 0.5) if by == "points" else (0.0, float(np.abs(payoff).max()) or 1.0)
    with style():
        size = 0.8 + max(3.0, (0.46 if count <= NUMBERED else 0.24) * count) + room_for(labels)
        figure = Figure(figsize=(size + 1.2, size), layout="constrained")
        axes = figure.subplots()
        axes.grid(visible=False)
        shown = axes.imshow(payoff, cmap="RdBu", vmin=middle - far, vmax=middle + far)
        for i in range(count):
            for j in range(count):
                if i != j and bounds[0, i, j] <= middle <= bounds[1, i, j]:
                    _hatch(axes, i, j)
                if i != j and count <= NUMBERED:
                    text = f"{payoff[i, j]:.2f}".removeprefix("0") if by == "points" else f"{payoff[i, j]:.2g}"
                    colour = "white" if abs(payoff[i, j] - middle) > 0.7 * far else INK
                    axes.text(j, i, text.replace("-", "−"), ha="center", va="center", fontsize=8, color=colour)
        axes.set_xticks(range(count), labels, rotation=90)
        axes.set_yticks(range(count), labels)
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(length=0, labelcolor=INK)
        axes.set_title("Share of points: row against column" if by == "points" else "Payoff: row against column")
        bar = figure.colorbar(shown, ax=axes, shrink=0.6)
        bar.outline.set_visible(False)
    return figure


def _hatch(axes: Any, row: int, column: int) -> None:
    from matplotlib.patches import Rectangle

    place = (column - 0.5, row - 0.5)
    axes.add_patch(Rectangle(place, 1, 1, fill=False, hatch="////", linewidth=0, edgecolor=MUTED, alpha=0.5))


def ratings_figure(names: Sequence[str], rating: Array, bounds: Array, nash: Array) -> Figure:
    """Return the ratings [K] with their intervals [2, K], and the share of each player in Nash averaging."""
    from matplotlib.figure import Figure

    count = len(names)
    with style():
        figure = Figure(figsize=(7.2, 1.2 + max(1.6, 0.27 * count)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
        places = range(count)
        left.hlines(places, bounds[0], bounds[1], color=COLOURS[0], alpha=0.4, linewidth=3)
        left.plot(rating, places, "o", color=COLOURS[0], markersize=4)
        left.set_yticks(places, [short(name) for name in names])
        left.invert_yaxis()
        left.set_title("Rating, 95 % interval")
        left.set_xlabel("points of Elo, the mean is 0")
        right.barh(places, nash, color=COLOURS[1], height=0.6)
        right.set_title("Nash share")
        for axes in (left, right):
            axes.tick_params(axis="y", labelcolor=INK)
            axes.grid(visible=True, axis="x")
    return figure


class RatingCurve(NamedTuple):
    """The ratings of a run's policies, N of them in the order of their steps."""

    steps: Array  # [N] environment steps
    rating: Array  # [N]
    bounds: Array  # [2, N]
    one: bool  # whether all are of one learner, so that a line may join them


def ratings_over_steps_figure(curves: Mapping[str, RatingCurve], levels: Mapping[str, float]) -> Figure:
    """Return the ratings of runs over environment steps, with intervals; ``levels``: ratings of players without steps.

    The policies of a league are of several learners, so no line connects them.
    """
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.subplots()
        for number, (name, curve) in enumerate(curves.items()):
            colour = COLOURS[number % len(COLOURS)]
            axes.vlines(curve.steps, curve.bounds[0], curve.bounds[1], color=colour, alpha=0.4, linewidth=3)
            line = "-" if curve.one else ""
            axes.plot(curve.steps, curve.rating, "o", linestyle=line, color=colour, markersize=4, label=short(name))
        for name, rating in levels.items():
            axes.axhline(rating, color=MUTED, linestyle=":", label=short(name))
        readable_axis(axes.xaxis, 6)
        axes.set_xlabel("environment steps")
        axes.set_ylabel("points of Elo")
        axes.set_title("Rating over steps, 95 % interval")
        figure.legend(loc="outside lower center", ncols=3, fontsize=8.5)
    return figure


def page(
    title: str, subtitle: str, headline: Sequence[str], pictures: Mapping[str, Figure],
    tables: Mapping[str, Sequence[Mapping[str, str]]], caption: str,
) -> str:  # fmt: skip
    """Return the page: what the numbers say, the pictures by what they show, and the tables."""
    section = Section(
        title="", headline=headline, best=None, legend=[], parallel=None, main=[], others={}, single={}, curves=b"",
        whole=[(words, render_inset(figure)) for words, figure in pictures.items()], tables=tables,
    )  # fmt: skip
    return to_html(Page(title=title, subtitle=subtitle, sections=[section], caption=caption))
