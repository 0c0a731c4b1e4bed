"""The figures of problems.csv: every contestant on every problem, and each evolver of ours before the others.

A line is the median over the seeds, an area reaches from the lowest to the highest. Peers are dashed.

    python benchmarks/ec/figures.py   # draws those of benchmarks/ec/results again
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evorl.reproduction.figures import panels

RESULTS = Path(__file__).parent / "results"
SINGLE = ("sphere", "rosenbrock", "rastrigin")
SEVERAL = ("zdt1", "zdt6", "dtlz2")
"""The panels of an evolver for several objectives."""


class Curve(NamedTuple):
    evaluations: np.ndarray
    """[points]."""
    values: np.ndarray
    """[seeds, points]."""


Curves = Mapping[str, Mapping[str, Curve]]
"""By problem and contestant."""


def is_peer(name: str) -> bool:
    return name == "cma" or name.startswith("pymoo ")


def read(path: Path) -> Curves:
    """The curves of a file that problems.py has written."""
    found: dict[str, dict[str, dict[int, list[tuple[int, float]]]]] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            seeds = found.setdefault(line["problem"], {}).setdefault(line["contestant"], {})
            seeds.setdefault(int(line["seed"]), []).append((int(line["evaluations"]), float(line["value"])))
    return {
        problem: {name: curve([seeds[seed] for seed in sorted(seeds)]) for name, seeds in contestants.items()}
        for problem, contestants in found.items()
    }


def curve(seeds: Sequence[Sequence[tuple[int, float]]]) -> Curve:
    table = np.array(seeds)
    return Curve(table[0, :, 0], table[:, :, 1])


def write(folder: Path) -> None:
    """Draw problems.png, and curves/NAME.svg of every evolver, from the folder's problems.csv."""
    matplotlib.rcParams["svg.hashsalt"] = "evorl"  # names within a file are the same each time
    curves = read(folder / "problems.csv")
    overview(curves).savefig(folder / "problems.png", dpi=90)
    own = folder / "curves"
    own.mkdir(exist_ok=True)
    for name in [name for name in curves[SINGLE[0]] if not is_peer(name)]:
        before_the_others(curves, name).savefig(own / f"{name}.svg", metadata={"Date": None})


def overview(curves: Curves) -> Figure:
    """Every contestant on every problem."""
    names = list(dict.fromkeys(name for contestants in curves.values() for name in contestants))
    greys = cycle(("black", "dimgray", "darkgray", "rosybrown"))  # no more peers than these share a panel
    shades = matplotlib.colormaps["tab20"].colors
    hues = iter(shades[::2] + shades[1::2])
    colours = {name: next(greys) if is_peer(name) else next(hues) for name in names}
    figure = Figure(figsize=(15, 13), layout="constrained")
    for axes, (problem, contestants) in zip(figure.subplots(4, 4).flat, curves.items(), strict=True):
        for name, each in contestants.items():
            line(axes, each, is_peer(name), color=colours[name], label=name, linewidth=1.6)
        axes.set(title=problem, xlabel="evaluations")
        measure(axes, problem)
    legend(figure, 9)
    return figure


def before_the_others(curves: Curves, name: str) -> Figure:
    """One evolver in colour on three problems, all other contestants in grey."""
    problems = SEVERAL if name in ("nsga2", "nsga3") else SINGLE
    figure, every = panels(problems, "evaluations", "")
    for axes, problem in zip(every, problems, strict=True):
        for other, each in curves[problem].items():
            if other != name:
                label = "pymoo and cma" if is_peer(other) else "other evolvers"
                line(axes, each, is_peer(other), area=False, color="0.72", label=label, linewidth=1)
        line(axes, curves[problem][name], False, color="C0", label=name, linewidth=2)
        measure(axes, problem)
    legend(figure, 3)
    return figure


def legend(figure: Figure, columns: int) -> None:
    """One for all panels, below them."""
    labels = [axes.get_legend_handles_labels() for axes in figure.axes]
    handles = {text: shown for pair in labels for shown, text in zip(*pair, strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)


def line(axes: Axes, each: Curve, dashed: bool, area: bool = True, **style: object) -> None:
    low, middle, high = np.quantile(each.values, (0, 0.5, 1), axis=0)
    axes.plot(each.evaluations, middle, "--" if dashed else "-", **style)
    if area:
        axes.fill_between(each.evaluations, low, high, color=style["color"], alpha=0.12, linewidth=0)
    axes.set_xlim(0, each.evaluations[-1])


def measure(axes: Axes, problem: str) -> None:
    """What a panel shows of its problem: the least value, or with several objectives the hypervolume."""
    axes.set_ylabel("least value" if problem in SINGLE else "hypervolume, share")
    if problem in SINGLE:
        axes.set_yscale("log")


if __name__ == "__main__":
    write(RESULTS)
