"""Figures of metrics: one panel per metric, one colour per group, shading for the 95 % interval."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from evorl.analysis.axes import readable_axis, several_magnitudes
from evorl.analysis.groups import group_runs
from evorl.analysis.panels import Curve, Panel, labels_of, make_panel
from evorl.analysis.runs import RunRecord
from evorl.analysis.statistics import Band, Floats, thinned
from evorl.util.errors import BadRequest
from evorl.util.text import printable
from evorl.util.typed import unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.transforms import BboxBase
    from matplotlib.typing import RcKeyType

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777")
"""Okabe and Ito (2008): distinguishable with any kind of colour vision."""
INK, MUTED, RULE, PAPER = "#1f2328", "#636c76", "#e3e6ea", "#fefefe"
DPI = 180
"""Of PNG pictures."""
DASHES = (("-", ""), ((0, (5, 2)), "╌ "), ((0, (1, 1.5)), "┈ "))
"""Line styles for groups beyond the colours, and the signs that mark them in front of a label."""
MAX_LABELS = 60
"""Most groups of a picture that are named in it."""

RAW_POINTS, MOST_POINTS, LEAST_POINTS = 8_000, 400, 60
"""Recorded values that a panel draws, and the most and the least of a run."""

ABOVE, BELOW = 0.4, 0.58
"""Room for the title over a panel that stands alone, and for the axis under it, in inches."""

TITLE_SIZE, TITLE_FITS = 10.5, 32
"""Font size in points, and the number of characters that fit at this size; longer titles are set smaller."""

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
    "axes.titley": 1.0,  # fixed: automatic placement would measure every tick label on each drawing
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


def panel_figure(shown: Panel, *, direct: bool = True) -> Figure:
    """Return a figure of one panel; ``direct`` writes the label of each group at the end of its line."""
    from matplotlib.figure import Figure

    with style():
        known = labels_of([shown])
        curves = _outermost(shown.curves)
        labels = [_wrap(dash_sign(curve.rank) + known.get(curve.rank, "")) for curve in curves]
        gap = max(label.count("\n") + 1 for label in labels) * 10.5 + 3  # points
        figure = Figure(figsize=(5.6, max(3.4, gap * len(labels) / 72 + BELOW + ABOVE)) if direct else (4.6, 2.9))
        height = figure.get_figheight()
        axes = figure.subplots(
            gridspec_kw={"left": 0.17, "right": 0.955, "bottom": BELOW / height, "top": 1 - ABOVE / height}
            if direct
            else {"left": 0.17, "right": 0.955, "bottom": 0.17, "top": 0.88}
        )
        draw_panel(axes, shown)
        if direct:
            _label_lines(axes, curves, labels, gap / (72 * (height - BELOW - ABOVE)))
            if len(curves) < len(shown.curves):
                told = f"the highest and the lowest {MAX_LABELS // 2} of {len(shown.curves):,} have labels"
                axes.annotate(told, (1.05, 1.0), xycoords="axes fraction", va="bottom", color=MUTED, fontsize=8.5)
    return figure


def metrics_figure(sections: Mapping[str, Sequence[Panel]], columns: int = 3) -> Figure:
    """Draw the panels of each section under the section's heading, with one legend above all."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = min(columns, max(len(panels) for panels in sections.values()))
    rows = sum(-(-len(panels) // columns) for panels in sections.values())
    with style():
        labels, abreast = _legend_labels([panel for panels in sections.values() for panel in panels], 3.6 * columns)
        lines = sum(label.count("\n") + 1 for label in labels.values()) / abreast
        height = 2.45 * rows + 0.45 * len(sections) + 0.2 * (lines + 1)
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        figure = Figure(figsize=(3.6 * columns, height), layout=layout)
        grid = figure.add_gridspec(rows, columns)
        row = 0
        for heading, panels in sections.items():
            for number, shown in enumerate(panels):
                axes = figure.add_subplot(grid[row + number // columns, number % columns])
                draw_panel(axes, shown)
                if number == 0:
                    _add_heading(axes, heading)
            row += -(-len(panels) // columns)
        if labels:
            _legend(figure, labels, abreast)
    return figure


def run_figure(run: RunRecord, metrics: Sequence[str] = ()) -> Figure:
    """Draw the curves of one run, side by side: of its fitness and returns if no metrics are named.

    Raises `BadRequest` for a metric that the run has not recorded, and where there is nothing to draw.
    """
    usual = ("eval/fitness_mean", "eval/return_mean", "train/return")
    names = metrics or [name for name in usual if name in run.series]
    if not run.series:
        raise BadRequest(f"{run.directory} has recorded no metrics")
    if not names:
        raise BadRequest(f"{run.directory} has recorded none of {', '.join(usual)}; name others")
    for name in names:
        if name not in run.series:
            raise unknown(name, sorted(run.series))
    groups = group_runs([run])
    figure = metrics_figure({"": [make_panel(groups, name) for name in names]}, columns=len(names))
    settle(figure)
    return figure


def _add_heading(axes: Axes, heading: str) -> None:
    """Write the heading of a section above the title of its first panel."""
    axes.annotate(
        heading, (0, 1), xycoords="axes fraction", xytext=(0, 31), textcoords="offset points", fontsize=13,
        fontweight="bold", color=MUTED,
    )  # fmt: skip


def render(figure: Figure, subtitle: str = "") -> dict[str, bytes]:
    """Return the figure as PNG and SVG, cropped to its content, with a subtitle above it."""
    with style():
        fits = figure.get_layout_engine() is not None
        settle(figure)
        # computed once: savefig would draw to find it
        box: BboxBase | None = None if fits else figure.get_tightbbox().padded(0.08)
        text = None
        if subtitle:
            text, box = _add_subtitle(figure, box or figure.bbox_inches, subtitle)
        png, svg = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", dpi=DPI, bbox_inches=box, pil_kwargs={"compress_level": 3})
        figure.savefig(svg, format="svg", bbox_inches=box, metadata={"Date": None})
        if text:
            text.remove()
    return {"png": png.getvalue(), "svg": _shortened(svg.getvalue())}


def _add_subtitle(figure: Figure, box: BboxBase, subtitle: str) -> tuple[Text, BboxBase]:
    """Write a line of text above a figure that fills ``box`` (inches); return the text and the enlarged box."""
    from matplotlib.transforms import Bbox

    lines = textwrap.wrap(printable(subtitle), max(30, int(14 * box.width)))
    width, height = figure.get_size_inches()  # savefig moves figure coordinates into the box, but not inches
    place = ((box.x0 + 0.08) / width, (box.y1 + 0.07) / height)
    text = figure.text(*place, "\n".join(lines), va="bottom", fontsize=8.5, color=MUTED)
    top = box.y1 + 0.14 + 0.15 * len(lines)
    return text, Bbox.from_extents(box.x0, box.y0, box.x1, top)


def settle(figure: Figure) -> None:
    """Make the text printable, compute the layout once and fix it: each drawing would repeat it, which is slow."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(printable(text.get_text(), lines=True))
    if (engine := figure.get_layout_engine()) is not None:
        figure.set_dpi(DPI)  # that of the picture: text of another resolution has another width, and was cut off
        engine.execute(figure)
        figure.set_layout_engine(None)
        for legend in figure.legends:  # otherwise at the edge of what savefig draws, where a subtitle may be
            legend.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)


def render_inset(figure: Figure) -> bytes:
    """Return the figure as an SVG for the page: transparent, with text in the font of the page."""
    import matplotlib

    out = io.BytesIO()
    with style(), matplotlib.rc_context({"svg.fonttype": "none"}):
        settle(figure)
        figure.savefig(out, format="svg", transparent=True, dpi=144)  # of rasterised parts
    return _shortened(out.getvalue())


def _shortened(svg: bytes) -> bytes:
    """Cut path coordinates off after 0.01 points, which halves the size without a visible difference."""
    return re.sub(rb' d="[^"]*"', lambda path: re.sub(rb"(?<=\.\d\d)\d+", b"", path[0]), svg)


@contextmanager
def style() -> Iterator[None]:
    """Apply the Matplotlib settings of evorl's figures; restore the caller's settings at the end."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def draw_panel(axes: Axes, shown: Panel) -> None:
    """Draw the curves of one panel."""
    axes.set_title(shown.title, fontsize=TITLE_SIZE * min(1.0, TITLE_FITS / max(len(shown.title), 1)))
    low, high = _range(shown)
    room = 0.05 * (high - low)
    points = max(LEAST_POINTS, min(MOST_POINTS, RAW_POINTS // sum(len(curve.raw) for curve in shown.curves)))
    for curve in shown.curves:
        _draw_curve(axes, curve, shown.interval(curve), points, shown.held)
    axes.set_ylim(low - room, high + room)
    _format_axis(axes, shown)
    several_magnitudes(axes, np.concatenate([y for curve in shown.curves for _, y in curve.raw]))


def _range(shown: Panel) -> tuple[float, float]:
    """The lowest and highest value of the vertical axis."""
    low, high = shown.limits
    if shown.from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high if low < high else low + 1.0


def spread_labels(places: Sequence[float], gap: float) -> list[float]:
    """Move numbers until neighbours are at least ``gap`` apart, keeping their order, and within 0 to 1 if they fit."""
    order = np.argsort(places, kind="stable")
    blocks: list[tuple[float, int]] = []  # (centre, count): neighbours that touch are merged into one block
    for place in np.asarray(places, np.float64)[order]:
        middle, size = _inside(float(place), gap), 1
        while blocks and middle - blocks[-1][0] < gap * (size + blocks[-1][1]) / 2:
            before, many = blocks.pop()
            middle, size = (middle * size + before * many) / (size + many), size + many
            middle = _inside(middle, gap * size)
        blocks.append((middle, size))
    moved = [middle + gap * (k - (size - 1) / 2) for middle, size in blocks for k in range(size)]
    return [moved[i] for i in np.argsort(order)]


def _inside(middle: float, size: float) -> float:
    """The centre of a block of this size, moved to within 0 to 1; 0.5 if it does not fit."""
    return min(max(middle, size / 2), 1 - size / 2) if size < 1 else 0.5


def _colour(rank: int) -> str:
    return COLOURS[rank % len(COLOURS)]


def _dashes(rank: int) -> Any:
    return DASHES[rank // len(COLOURS) % len(DASHES)][0]


def dash_sign(rank: int) -> str:
    """Return the sign that distinguishes a label from that of an earlier group of the same colour."""
    return DASHES[rank // len(COLOURS) % len(DASHES)][1]


def _draw_curve(axes: Axes, curve: Curve, interval: tuple[Floats, Floats] | None, points: int, held: bool) -> None:
    """Draw the runs and their mean: solid with its interval where all runs have data, else dashed.

    Of each run at most ``points`` recorded values are drawn, with ``held`` as steps; a single value is a dot.
    """
    from matplotlib.collections import LineCollection

    alone = interval is None and len(curve.raw) > 1  # the runs stand for what an interval would show
    faint: dict[str, Any] = {"color": _colour(curve.rank), "alpha": 0.6 if alone else 0.35, "zorder": 2}
    lines = [np.column_stack([x, y])[thinned(len(x), points)] for x, y in curve.raw if len(x) > 1]
    if lines:  # one artist draws faster than a Line2D for each
        lines = [_steps(line) for line in lines] if held else lines
        axes.add_collection(LineCollection(lines, linewidth=1.0 if alone else 0.7, **faint))
    dots = [(x[0], y[0]) for x, y in curve.raw if len(x) == 1]
    if dots:
        axes.plot(*np.transpose(dots), "o", markersize=3.5, markeredgewidth=0, **faint)
    shape, n = curve.band, len(curve.raw)
    full = np.where(shape.count == n, shape.mean, np.nan)
    if interval is not None:
        low, high = interval
        if len(shape.grid) == 1:
            axes.vlines(shape.grid, low, high, color=_colour(curve.rank), alpha=0.35, linewidth=1.2)
        step: Any = "post" if held else None
        axes.fill_between(shape.grid, low, high, color=_colour(curve.rank), alpha=0.16, linewidth=0, step=step)
    marker = "o" if len(shape.grid) <= 12 else ""
    line: dict[str, Any] = {
        "color": _colour(curve.rank),
        "linewidth": 1.7,
        "marker": marker,
        "markersize": 3.0,
        "zorder": 3,
        "drawstyle": "steps-post" if held else "default",
    }
    axes.plot(shape.grid, full, linestyle=_dashes(curve.rank), **line)
    if (shape.count < n).any():
        axes.plot(shape.grid, _incomplete_part(shape, n), **line | {"linestyle": (0, (2, 2)), "linewidth": 1.1})


def _steps(line: Floats) -> Floats:
    """Return the corners `[2K-1, 2]` of a line through the points `[K, 2]` that holds each value until the next."""
    x, y = line.T
    return np.column_stack([np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]])


def _incomplete_part(shape: Band, n: int) -> Floats:
    """Return the mean where some runs are missing, plus the neighbouring points so that the line is continuous."""
    part = shape.count < n
    touching = part | np.append(part[1:], False) | np.append(False, part[:-1])
    return np.where(touching, shape.mean, np.nan)


def _format_axis(axes: Axes, shown: Panel) -> None:
    readable_axis(axes.xaxis, 6)
    readable_axis(axes.yaxis, 5)
    axes.set_xlabel(shown.unit)
    axes.set_ylabel(shown.quantity)
    axes.margins(x=0.01)


def _wrap(label: str) -> str:
    return "\n".join(textwrap.wrap(label, 30, break_long_words=True))


def _outermost(curves: Sequence[Curve]) -> Sequence[Curve]:
    """Those that end highest and lowest, at most `MAX_LABELS`."""
    if len(curves) <= MAX_LABELS:
        return curves
    by_end = sorted(curves, key=lambda curve: float(curve.band.mean[-1]))
    return [*by_end[: MAX_LABELS // 2], *by_end[-(MAX_LABELS // 2) :]]


def _label_lines(axes: Axes, curves: Sequence[Curve], labels: Sequence[str], gap: float) -> None:
    """Write each label beside the end of its line and join them; labels are a ``gap`` (share of the height) apart."""
    ends = axes.transData.transform([(curve.band.grid[-1], curve.band.mean[-1]) for curve in curves])
    places = spread_labels(axes.transAxes.inverted().transform(ends)[:, 1].tolist(), gap)
    right = 0.98 * max(float(curve.band.grid[-1]) for curve in curves)
    for curve, label, place in zip(curves, labels, places, strict=True):
        colour = _colour(curve.rank)
        axes.annotate(
            label, (1.05, place), xycoords="axes fraction", va="center", color=colour, fontsize=8.5, linespacing=1.1
        )
        if label and curve.band.grid[-1] >= right:  # others would look like data
            line = {"arrowstyle": "-", "color": colour, "linestyle": _dashes(curve.rank), "shrinkA": 0, "shrinkB": 0}
            end = (curve.band.grid[-1], curve.band.mean[-1])
            axes.annotate("", end, (1.045, place), textcoords="axes fraction", arrowprops=line)


def _legend_labels(panels: Sequence[Panel], width: float) -> tuple[dict[int, str], int]:
    """Return the wrapped label of each group by rank for a figure ``width`` inches wide, and the labels per row."""
    room = int(11 * width) - 8  # letters
    known = labels_of(panels)
    if not known:
        return {}, 1
    labels = {rank: "\n".join(textwrap.wrap(known[rank], room)) for rank in list(known)[:MAX_LABELS]}
    if len(known) > MAX_LABELS:
        labels[[*labels][-1]] += f"\n… and {len(known) - MAX_LABELS:,} more"
    widest = max(len(line) for label in labels.values() for line in label.split("\n"))
    return labels, max(1, min(len(labels), int(11 * width / (widest + 8))))


def _legend(figure: Figure, labels: Mapping[int, str], columns: int) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_colour(rank), linestyle=_dashes(rank), linewidth=2) for rank in labels]
    figure.legend(handles, list(labels.values()), loc="outside upper left", ncols=columns)
