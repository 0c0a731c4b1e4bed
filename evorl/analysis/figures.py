"""Learning curves drawn with Matplotlib: one panel per metric, one colour per group, shades for the interval."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from evorl.analysis.panels import Curve, Panel
from evorl.analysis.statistics import Band, Floats, half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777")
"""Okabe and Ito (2008): told apart by readers with any kind of colour vision."""
INK, MUTED, RULE, PAPER = "#1f2328", "#636c76", "#e3e6ea", "#fefefe"
DASHES = (("-", ""), ((0, (5, 2)), "╌ "), ((0, (1, 1.5)), "┈ "))
"""Line styles and the signs that stand for them in front of a label, for groups beyond the colours."""

LEAST_SHADED = 3
"""Runs from which on an interval is drawn: that of two is 13 times their standard error, and hides what it is about."""

TITLE_SIZE, TITLE_FITS = 10.5, 32
"""Points, and the letters of that size for which a panel has room; a longer title has smaller ones."""

_SUFFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_STYLE: dict[RcKeyType, Any] = {
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": TITLE_SIZE,
    "axes.titleweight": "bold",
    "axes.titlepad": 9.0,
    "axes.titley": 1.0,  # not looked for anew, from every tick's box, whenever a panel is drawn
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "evorl",
    "text.parse_math": False,
    "path.simplify_threshold": 0.3,
}


def single(shown: Panel, *, direct: bool = True) -> Figure:
    """A figure of one panel; ``direct`` writes each group's label at the end of its line."""
    from matplotlib.figure import Figure

    with style():
        labels = [_wrap(dash_sign(curve.rank) + curve.label) for curve in shown.curves]
        lines = sum(label.count("\n") + 2 for label in labels) if direct else 0
        figure = Figure(figsize=(5.6, max(3.4, 0.15 * lines)) if direct else (4.6, 2.9))
        axes = figure.subplots(gridspec_kw={"left": 0.15, "right": 0.955, "bottom": 0.17, "top": 0.88})
        draw(axes, shown)
        if direct:
            _label_lines(axes, shown, labels, height=figure.get_figheight() * 0.77 * 72)
    return figure


def multiples(panels: Sequence[Panel], columns: int = 3) -> Figure:
    """Small multiples under one legend."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = -(-len(panels) // columns)
    columns = min(columns, len(panels))
    with style():
        labels, abreast = _legend_labels(panels, 3.6 * columns)
        lines = sum(label.count("\n") + 1 for label in labels.values()) / abreast
        height = 2.6 * rows + 0.2 * (lines + 1)
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        figure = Figure(figsize=(3.6 * columns, height), layout=layout)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, shown in zip(grid, panels, strict=False):
            draw(axes, shown)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        _legend(figure, labels, abreast)
    return figure


def render(figure: Figure) -> dict[str, bytes]:
    """The picture's bytes by kind (png, svg), as large as what is in it."""
    with style():
        fits = figure.get_layout_engine() is not None
        settle(figure)
        box = None if fits else figure.get_tightbbox().padded(0.08)  # once: each saving would draw to find it
        png, svg = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=180, bbox_inches=box)
        figure.savefig(svg, format="svg", bbox_inches=box, metadata={"Date": None})
    return {"png": png.getvalue(), "svg": _rounded(svg.getvalue())}


def settle(figure: Figure) -> None:
    """Lay a figure out for good: else it is done again whenever it is drawn, which takes longer than drawing it."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine(None)


def render_inset(figure: Figure) -> bytes:
    """An SVG for a page: of the figure's own size, see-through, its letters left as text in the page's font."""
    import matplotlib

    out = io.BytesIO()
    with style(), matplotlib.rc_context({"svg.fonttype": "none"}):
        settle(figure)
        figure.savefig(out, format="svg", transparent=True, dpi=144)  # of what is drawn dot by dot
    return _rounded(out.getvalue())


def _rounded(svg: bytes) -> bytes:
    """Paths to a hundredth of a point: half the size, and nothing to be seen of it."""
    return re.sub(rb' d="[^"]*"', lambda path: re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]), svg)


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings for a figure of ours; the caller's own come back at the end."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def draw(axes: Axes, shown: Panel) -> None:
    """Draw one panel: curves over time, or where each run has one value only, those values as dots."""
    axes.set_title(shown.title, fontsize=TITLE_SIZE * min(1.0, TITLE_FITS / max(len(shown.title), 1)))
    if shown.at_end_only:
        _draw_dots(axes, shown)
    else:
        low, high = _limits(shown)
        never_negative = all((y >= 0).all() for curve in shown.curves for _, y in curve.raw)
        for curve in shown.curves:
            _draw_curve(axes, curve, (max(low, 0.0) if never_negative else low, high))
        axes.set_ylim(low, high)
        _format_axis(axes, shown)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move numbers apart until neighbours are at least ``gap`` from each other, keeping their order and middle."""
    order = np.argsort(places, kind="stable")
    blocks: list[tuple[float, int]] = []  # (middle, how many): neighbours that touch share a block
    for place in np.asarray(places, np.float64)[order]:
        middle, size = float(place), 1
        while blocks and middle - blocks[-1][0] < gap * (size + blocks[-1][1]) / 2:
            before, many = blocks.pop()
            middle, size = (middle * size + before * many) / (size + many), size + many
        blocks.append((middle, size))
    moved = [middle + gap * (k - (size - 1) / 2) for middle, size in blocks for k in range(size)]
    return [moved[i] for i in np.argsort(order)]


def _colour(rank: int) -> str:
    return COLOURS[rank % len(COLOURS)]


def _dashes(rank: int) -> Any:
    return DASHES[rank // len(COLOURS) % len(DASHES)][0]


def dash_sign(rank: int) -> str:
    """What tells a label from that of an earlier group of the same colour."""
    return DASHES[rank // len(COLOURS) % len(DASHES)][1]


def _draw_curve(axes: Axes, curve: Curve, limits: tuple[float, float]) -> None:
    """The mean is solid with its interval, cut at the limits, where every run has got, and dashed alone beyond."""
    for x, y in curve.raw:
        stride = max(1, len(x) // 400)
        axes.plot(x[::stride], y[::stride], color=_colour(curve.rank), linewidth=0.7, alpha=0.35, zorder=2)
    shape, n = curve.band, len(curve.raw)
    full = np.where(shape.count == n, shape.mean, np.nan)
    if n >= LEAST_SHADED:
        low, high = np.clip(full - shape.half, *limits), np.clip(full + shape.half, *limits)
        axes.fill_between(shape.grid, low, high, color=_colour(curve.rank), alpha=0.16, linewidth=0)
    marker = "o" if len(shape.grid) <= 12 else ""
    line: dict[str, Any] = {
        "color": _colour(curve.rank),
        "linewidth": 1.7,
        "marker": marker,
        "markersize": 3.0,
        "zorder": 3,
    }
    axes.plot(shape.grid, full, linestyle=_dashes(curve.rank), **line)
    if (shape.count < n).any():
        axes.plot(shape.grid, _beyond(shape, n), **line | {"linestyle": (0, (2, 2)), "linewidth": 1.1})


def _beyond(shape: Band, n: int) -> Floats:
    """The mean where some runs are missing, with the neighbouring points so that the line does not break."""
    part = shape.count < n
    touching = part | np.append(part[1:], False) | np.append(False, part[:-1])
    return np.where(touching, shape.mean, np.nan)


def _draw_dots(axes: Axes, shown: Panel) -> None:
    """One row per group: a dot per run, the mean and its interval, which may run out of the picture."""
    for row, curve in enumerate(shown.curves):
        values = [float(y[0]) for _, y in curve.raw]
        axes.plot(values, [row - 0.14] * len(values), "o", color=_colour(curve.rank), alpha=0.5, markersize=6, mew=0)
        axes.plot(np.mean(values), row, "|", color=_colour(curve.rank), markersize=11, markeredgewidth=2)
        axes.errorbar(np.mean(values), row, xerr=half_width(values), color=_colour(curve.rank), linewidth=1.4)
    axes.set_ylim(len(shown.curves) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xlim(_limits(shown))
    axes.grid(axis="x")
    axes.set_xlabel("one value per run")
    axes.xaxis.set_major_formatter(_value)


def _limits(shown: Panel) -> tuple[float, float]:
    """From the least to the largest number drawn as a line; intervals, which may be far wider, have no say."""
    values = np.concatenate([y for curve in shown.curves for _, y in curve.raw])
    low, high = float(values.min()), float(values.max())
    room = 0.05 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def _format_axis(axes: Axes, shown: Panel) -> None:
    readable_axis(axes.xaxis, 6)
    readable_axis(axes.yaxis, 5)
    axes.set_xlabel(shown.unit)
    axes.margins(x=0.01)


def readable_axis(axis: Axis, most: int) -> None:
    """At most so many round numbers, written shortly."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(_value)


def decades(axes: Axes, values: Floats) -> None:
    """A logarithmic vertical axis for some values, its numbers written out."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    narrow = np.nanmax(values) < 100 * np.nanmin(values)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda x, _: f"{x:g}")


def _value(x: float, _: Any) -> str:
    """``0.25``, ``−15``, ``25k``, ``1.5M``, ``1e+30``."""
    suffixes = _SUFFIXES if abs(x) < 1000 * _SUFFIXES[0][0] else ()
    scale, suffix = next(((scale, suffix) for scale, suffix in suffixes if abs(x) >= scale), (1.0, ""))
    return f"{round(x / scale, 12):g}{suffix}".replace("-", "−")


def _wrap(label: str) -> str:
    return "\n".join(textwrap.wrap(label, 30, break_long_words=True))


def _label_lines(axes: Axes, shown: Panel, labels: Sequence[str], height: float) -> None:
    """Write each label beside the end of its line, in its colour, none over another in axes ``height`` points high."""
    low, high = axes.get_ylim()
    if shown.at_end_only:
        places = [1 - (row + 0.5) / len(labels) for row in range(len(labels))]
    else:
        ends = [float(curve.band.mean[-1]) for curve in shown.curves]
        lines = max(label.count("\n") + 1 for label in labels)
        places = spread([(end - low) / (high - low) for end in ends], gap=(lines * 10.5 + 3) / height)
    for curve, label, place in zip(shown.curves, labels, places, strict=True):
        axes.annotate(
            label,
            (1.02, place),
            xycoords="axes fraction",
            va="center",
            color=_colour(curve.rank),
            fontsize=8.5,
            linespacing=1.1,
        )


def _legend_labels(panels: Sequence[Panel], width: float) -> tuple[dict[int, str], int]:
    """Each group's label by its rank, wrapped to fit a picture ``width`` inches wide, and how many stand in a row."""
    room = int(11 * width) - 8  # letters
    known = {curve.rank: curve.label for shown in panels for curve in shown.curves}
    labels = {rank: "\n".join(textwrap.wrap(known[rank], room)) for rank in sorted(known)}
    widest = max(len(line) for label in labels.values() for line in label.split("\n"))
    return labels, max(1, min(len(labels), int(11 * width / (widest + 8))))


def _legend(figure: Figure, labels: Mapping[int, str], columns: int) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_colour(rank), linestyle=_dashes(rank), linewidth=2) for rank in labels]
    figure.legend(handles, list(labels.values()), loc="outside upper left", ncols=columns)
