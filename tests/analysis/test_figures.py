"""Pictures of learning: nothing cut off, nothing over another, every mark where the numbers say."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from evorl.analysis.axes import _value
from evorl.analysis.figures import (
    MAX_LABELS,
    MOST_POINTS,
    metrics_figure,
    panel_figure,
    render,
    render_inset,
    spread_labels,
)
from evorl.analysis.groups import Group
from evorl.analysis.html_page import inline
from evorl.analysis.panels import Panel, labels_of, make_panel
from evorl.analysis.report_figures import shading
from evorl.analysis.runs import RunRecord, Series


def make_groups(lengths: Sequence[Sequence[int]], scale: float = 1.0, label: str = "0.001") -> list[Group]:
    rng = np.random.default_rng(0)
    groups = []
    for k, several in enumerate(lengths):
        series = [
            Series(np.arange(1.0, n + 1) * 1e5, np.arange(1.0, n + 1), scale * (k + rng.normal(size=n)))
            for n in several
        ]
        runs = [
            RunRecord(directory=Path(str(i)), config={}, series={"train/return": one}) for i, one in enumerate(series)
        ]
        groups.append(Group({"rl.lr": f"{label}{k}"}, runs))
    return groups


def panel_of(lengths: Sequence[Sequence[int]], scale: float = 1.0) -> Panel:
    return make_panel(make_groups(lengths, scale), "train/return")


@given(st.lists(st.floats(-0.5, 1.5), max_size=9), st.floats(0.01, 0.3))
def test_spread_moves_labels_apart_and_keeps_their_order(places: list[float], gap: float) -> None:
    moved = spread_labels(places, gap)
    order = np.argsort(places, kind="stable")
    assert all(b - a >= gap - 1e-9 for a, b in zip(np.array(moved)[order], np.array(moved)[order][1:], strict=False))
    if gap * len(places) < 1:
        assert all(gap / 2 - 1e-9 <= one <= 1 - gap / 2 + 1e-9 for one in moved)
    elif places:
        assert (min(moved) + max(moved)) / 2 == pytest.approx(0.5)


def test_spread_leaves_alone_what_is_apart() -> None:
    assert spread_labels([0.9, 0.1, 0.5], 0.2) == [0.9, 0.1, 0.5]
    assert spread_labels([0.4, 0.6], 0.3) == pytest.approx([0.35, 0.65])


@pytest.mark.slow_cases(
    but=("lengths3-1.0", "lengths2-1.0", "lengths0-1.0", "lengths1-1.0", "lengths3-10000000.0", "lengths3-1e-05")
)
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e7])
@pytest.mark.parametrize("lengths", [[[40, 40], [40, 20]], [[1, 1, 1], [1]], [[2]], [[1], [5]]])
def test_nothing_is_cut_off_the_pictures_of_the_page(lengths: Sequence[Sequence[int]], scale: float) -> None:
    figure = panel_figure(panel_of(lengths, scale), direct=False)
    _inside(figure)
    assert ElementTree.fromstring(render_inset(figure)).tag.endswith("svg")


def _inside(figure: Figure) -> None:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes = figure.axes[0]
    titles = [one for one in axes.get_children() if isinstance(one, Text) and one not in axes.texts]
    for text in [axes.xaxis.label, *titles, *axes.get_xticklabels(), *axes.get_yticklabels()]:
        x, y = text.get_position()
        shown = bool(text.get_text()) and (text not in axes.get_yticklabels() or _within(y, axes.get_ylim()))
        if shown and (text not in axes.get_xticklabels() or _within(x, axes.get_xlim())):
            box = text.get_window_extent(canvas.get_renderer())
            assert box.x0 >= 0 and box.y0 >= 0, text.get_text()
            assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text.get_text()


def _within(value: float, limits: tuple[float, float]) -> bool:
    return min(limits) <= value <= max(limits)


def test_direct_labels_do_not_touch() -> None:
    groups = make_groups([[30]] * 9, scale=0.01, label="a-rather-long-value-of-a-key-that-wraps-")
    figure = panel_figure(make_panel(groups, "train/return"))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts if text.get_text()]
    assert len(boxes) == 9
    assert all(axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1 for box in boxes)
    joints = [text for text in axes.texts if not text.get_text()]
    shown = make_panel(groups, "train/return")
    assert [one.xy for one in joints] == [(curve.band.grid[-1], curve.band.mean[-1]) for curve in shown.curves]
    ordered = sorted(boxes, key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 for low, high in itertools.pairwise(ordered))


def test_no_joint_crosses_the_panel_from_a_curve_that_ended_early() -> None:
    (axes,) = panel_figure(panel_of([[40, 40], [8, 8]])).axes
    assert len([text for text in axes.texts if not text.get_text()]) == 1


def test_a_subtitle_says_what_shading_is_where_there_is_some() -> None:
    assert "95 % interval" in shading([panel_of([[40] * 5])])
    assert shading([panel_of([[40] * 4])]) == ""


@pytest.mark.parametrize("panels", [1, 5])
def test_a_legend_is_no_wider_than_its_plots_and_leaves_them_their_room(panels: int) -> None:
    groups = make_groups([[30]] * 9, label="a-rather-long-value-of-a-key-that-would-not-fit-at-all")
    figure = metrics_figure({"Learning": [make_panel(groups, "train/return")] * panels})
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.legends[0].get_window_extent(canvas.get_renderer())
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1
    assert all(axes.get_window_extent().height > 1.2 * figure.dpi for axes in figure.axes[:panels])


def test_both_kinds_of_file() -> None:
    figure = metrics_figure({"Learning": [panel_of([[40, 40], [30]])] * 4})
    with Image.open(io.BytesIO(render(figure)["png"])) as picture:
        assert picture.format == "PNG" and picture.width > 1000
    assert ElementTree.fromstring(render(figure)["svg"]).tag.endswith("svg")


def test_pictures_are_the_same_bytes_again() -> None:
    first, second = (render(panel_figure(panel_of([[40, 40]])))["svg"] for _ in range(2))
    assert first == second


def test_the_legend_counts_the_runs_that_have_the_metric() -> None:
    shown = panel_of([[40, 40, 40], [30]])
    assert [*labels_of([shown]).values()] == ["rl.lr=0.0010 (n=3)", "rl.lr=0.0011 (n=1)"]


def test_time_is_told_in_a_unit_that_fits() -> None:
    groups = make_groups([[200], [200]])
    assert make_panel(groups, "train/return", "seconds").unit == "time (seconds)"
    longer = make_panel(make_groups([[400]]), "train/return", "seconds")
    assert longer.unit == "time (minutes)" and longer.curves[0].raw[0][0][-1] == pytest.approx(400 / 60)


def test_a_short_run_is_smoothed_by_its_own_length() -> None:
    """Beside one a hundred times as long it is drawn as it is alone, and not as one flat dash."""
    short, long = Series(*np.tile(np.arange(200.0), (3, 1))), Series(*np.tile(np.arange(200.0) * 100, (3, 1)))
    runs = [RunRecord(directory=Path(name), config={}, series={"x": x}) for name, x in (("s", short), ("l", long))]
    beside = make_panel([Group({}, [run]) for run in runs], "x", "seconds").curves[0].band
    np.testing.assert_array_equal(beside.mean, make_panel([Group({}, runs[:1])], "x", "seconds").curves[0].band.mean)
    assert beside.mean[0] < 3 and beside.mean[-1] > 196


@pytest.mark.parametrize("runs", [1, 2, 6])
def test_a_counter_is_drawn_as_steps_and_is_not_smoothed(runs: int) -> None:
    x, y = np.arange(200.0), np.repeat([0.0, 3.0, 4.0, 9.0], 50)
    counted = [
        RunRecord(directory=Path(str(k)), config={}, series={"population/exploits": Series(x, x, y + k)})
        for k in range(runs)
    ]
    shown = make_panel([Group({}, counted)], "population/exploits")
    assert shown.curves[0].band.mean.tolist() == (y + (runs - 1) / 2).tolist()
    axes = panel_figure(shown).axes[0]
    (line,) = (line for line in axes.lines if len(line.get_xdata()) == len(x))
    assert line.get_drawstyle() == "steps-post"
    (each,) = (one for one in axes.collections if isinstance(one, LineCollection))
    drawn = np.asarray(each.get_segments()[0])
    assert ((np.diff(drawn, axis=0) == 0).any(1)).all(), "along an axis only"
    assert {tuple(corner) for corner in zip(x, y, strict=True)} <= {tuple(corner) for corner in drawn}


@pytest.mark.parametrize(
    ("metric", "values", "limits"),
    [
        ("hardware/memory", (860.0, 875.0), (-43.75, 918.75)),
        ("train/return", (860.0, 875.0), (859.25, 875.75)),
        ("train/return", (500.0, 500.0), (-25.0, 525.0)),
        ("train/return", (-500.0, -500.0), (-525.0, 25.0)),
        ("population/failed", (0.0, 0.0), (-0.05, 1.05)),
    ],
)
def test_constants_and_hardware_begin_at_zero(
    metric: str, values: tuple[float, ...], limits: tuple[float, float]
) -> None:
    x = np.arange(len(values), dtype=float)
    run = RunRecord(directory=Path("a"), config={}, series={metric: Series(x, x, np.array(values))})
    assert panel_figure(make_panel([Group({}, [run])], metric)).axes[0].get_ylim() == pytest.approx(limits)


@pytest.mark.parametrize("rows", [401, 799, 801, 1199, 5000])
def test_a_long_curve_is_drawn_to_its_end(rows: int) -> None:
    x = np.arange(float(rows))
    run = RunRecord(directory=Path("a"), config={}, series={"train/return": Series(x, x, x)})
    (axes,) = panel_figure(make_panel([Group({}, [run])], "train/return")).axes
    (each,) = (one for one in axes.collections if isinstance(one, LineCollection))
    drawn = np.asarray(each.get_segments()[0])
    assert len(drawn) == MOST_POINTS and drawn[0].tolist() == [0, 0] and drawn[-1].tolist() == [rows - 1, rows - 1]


def test_a_mean_begins_where_all_its_runs_have_begun() -> None:
    early, late = np.arange(40.0), np.arange(10.0, 40.0)
    runs = [RunRecord(directory=Path(str(len(x))), config={}, series={"x": Series(x, x, x)}) for x in (early, late)]
    band = make_panel([Group({}, runs)], "x").curves[0].band
    assert band.grid[0] == 10 and (band.count == 2).all()


def test_inline_pictures_have_separate_ids_and_page_colours() -> None:
    svg = render_inset(panel_figure(panel_of([[40, 40]]), direct=False))
    first, second = inline(svg, "a-"), inline(svg, "b-")
    names = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (first, second)]
    assert names[0] and not names[0] & names[1]
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', first)) <= names[0]
    assert "#0072b2" not in first and "var(--c0)" in first
    ElementTree.fromstring(first.replace("xlink:href", "href"))


def interval(axes: Axes) -> PolyCollection:
    """The shaded area of a panel."""
    (found,) = (one for one in axes.collections if isinstance(one, PolyCollection))
    return found


def test_the_drawn_interval_is_the_one_computed_and_four_runs_have_none() -> None:
    shown = panel_of([[40, 40, 40, 40, 30], [40] * 4])
    axes = panel_figure(shown).axes[0]
    band = shown.curves[0].band
    full = band.count == 5
    corners = np.concatenate([path.vertices for path in interval(axes).get_paths()])
    assert corners[:, 0].max() == band.grid[full].max() == 30e5
    low, high = shown.limits
    np.testing.assert_allclose(corners[:, 1].max(), min((band.mean + band.half)[full].max(), high))
    np.testing.assert_allclose(corners[:, 1].min(), max((band.mean - band.half)[full].min(), low))


def test_few_runs_are_drawn_stronger_than_those_under_an_interval() -> None:
    (axes,) = panel_figure(panel_of([[40] * 5, [40] * 4, [40]])).axes
    runs = [one for one in axes.collections if isinstance(one, LineCollection)]
    assert [len(one.get_segments()) for one in runs] == [5, 4, 1]
    assert [one.get_alpha() for one in runs] == [0.35, 0.6, 0.35]  # a run alone is its own mean


def test_axes_have_labels() -> None:
    axes = [panel_figure(panel_of([[40]])).axes[0], *metrics_figure({"Learning": [panel_of([[40]])] * 2}).axes]
    assert [(one.get_xlabel(), one.get_ylabel()) for one in axes] == [("environment steps", "return")] * 3
    assert make_panel([group_of("policy/clip_fraction")], "policy/clip_fraction").quantity == "fraction"
    assert make_panel([group_of("train/score")], "train/score").quantity == "score"  # defined by the world


def group_of(metric: str) -> Group:
    (group,) = make_groups([[3]])
    (run,) = group.runs
    return Group({}, [replace(run, series={metric: run.series["train/return"]})])


def test_a_single_value_beside_curves_is_a_dot_with_its_interval() -> None:
    (axes,) = panel_figure(panel_of([[1] * 5, [5, 1]]), direct=False).axes
    dots = [line for line in axes.lines if line.get_marker() == "o" and line.get_alpha() is not None]
    assert [len(line.get_xdata()) for line in dots] == [5, 1]
    (bar,) = axes.collections[0].get_segments()
    assert bar[0, 0] == bar[1, 0] == dots[0].get_xdata()[0] and bar[0, 1] < bar[1, 1]


@pytest.mark.parametrize("shift", [0.0, -5.0])
def test_wide_interval_neither_changes_the_limits_nor_leaves_what_was_recorded(shift: float) -> None:
    """Of 0, 0, 0, 0 and 10 it is 2 ± 5.6: below what any run had, and below 0 where nothing is negative."""
    x = np.arange(1.0, 41.0)
    levels = [shift + np.full(40, level) for level in (0.0, 0.0, 0.0, 0.0, 10.0)]
    runs = [
        RunRecord(directory=Path(str(i)), config={}, series={"loss/value": Series(x, x, y)})
        for i, y in enumerate(levels)
    ]
    axes = panel_figure(make_panel([Group({}, runs)], "loss/value")).axes[0]
    assert axes.get_ylim() == pytest.approx((shift - 0.5, shift + 10.5))
    corners = np.concatenate([path.vertices for path in interval(axes).get_paths()])
    assert corners[:, 1].max() == pytest.approx(shift + 2 + 2.776445 * np.sqrt(20) / np.sqrt(5))
    assert corners[:, 1].min() == pytest.approx(shift)


@pytest.mark.parametrize(("x", "text"), [(0.25, "0.25"), (-15, "−15"), (25e3, "25k"), (1.5e9, "1.5G"), (1e30, "1e+30")])
def test_numbers_beside_an_axis(x: float, text: str) -> None:
    assert _value(x, None) == text


def test_a_subtitle_is_above_the_legend() -> None:
    figure = metrics_figure({"Learning": [panel_of([[40, 40], [30]])] * 2})
    plain, titled = (_lines(render(figure, subtitle)["png"]) for subtitle in ("", "a subtitle"))
    assert len(titled) == len(plain) + 1
    assert titled[1] == pytest.approx(plain[0], abs=2)  # the legend, as high as without


def _lines(png: bytes) -> list[int]:
    """The heights of what blank rows of pixels part."""
    with Image.open(io.BytesIO(png)) as picture:
        ink = np.asarray(picture.convert("L")).min(1) < 250
    return [len(list(rows)) for inked, rows in itertools.groupby(ink) if inked]


def test_a_picture_of_many_groups_names_those_that_end_highest_and_lowest() -> None:
    shown = panel_of([[3]] * 130)
    figure = panel_figure(shown)
    (axes,) = figure.axes
    ends = sorted(range(130), key=lambda k: shown.curves[k].band.mean[-1])
    texts = [text.get_text() for text in axes.texts if "(n=1)" in text.get_text()]
    assert len(texts) == MAX_LABELS and figure.get_figheight() < 30
    for k in (ends[0], ends[-1]):
        assert any(f"0.001{k} (n=1)" in text for text in texts)
    assert not any(f"0.001{ends[65]} (n=1)" in text for text in texts)
    assert "of 130 have labels" in axes.texts[-1].get_text()
    several = metrics_figure({"Learning": [shown]})
    assert several.get_figheight() < 30
    (legend,) = several.legends
    assert legend.get_texts()[-1].get_text().endswith(f"and {130 - MAX_LABELS} more")
