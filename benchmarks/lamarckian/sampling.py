"""PPO's sampling efficiency on Pendulum and on Atari's Pong from images: mean return over environment steps.

Each run is one command of ``evorl.run``; its curve is the mean return of the deterministic policy over 60 episodes (on
Pong 10) at every evaluation. Curves are means over seeds with their 95 % interval (Student's t) from 3 on; a threshold
counts as reached at the first evaluation at or above it, and at least the run's length where there is none. Steps per
second are those of training, of the median run. Pendulum is learned with our settings (conf/tuned) and with those of
Lamarckian as near as they come (conf/experiment/lamarckian/ppo_pendulum); Pong from small pictures that heed every
action, as there, with settings of ours (ppo_gym_pong, beside it). Runs that exist in the folder of runs are not made
again but gone on with.

    python benchmarks/lamarckian/sampling.py profile=ci|paper [--seeds N] [--runs DIR] [--out DIR] [--draw]

``profile=ci`` is a quarter of an hour on 2 cores, ``profile=paper`` 5 seeds of 100,000,000 steps each, which takes
days. ``--draw`` makes no runs and shows those there are, as far as they are.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import ROOT, bound, carry_on, machine, median, of_runs, page, save

from evorl.analysis.runs import RunRecord, Series, read_run
from evorl.analysis.statistics import Band, band, common_grid, half_width
from evorl.util.errors import BadRequest

METRIC = "eval/return_mean"
FEW = 3
"""Seeds from which an interval tells something."""


class Case(NamedTuple):
    world: str
    label: str
    words: list[str]
    """Of the experiment."""
    threshold: float
    ci: tuple[int, list[str]]
    """Seeds, and words beside the experiment's own."""


CASES = {
    "pendulum-ours": Case(
        "Pendulum", "evorl's settings", ["mdp=pendulum", "rl=ppo"], -200.0,
        (5, ["budget.steps=200_000", "eval.every=10_000"]),
    ),
    "pendulum-lamarckian": Case(
        "Pendulum", "Lamarckian's settings", ["+experiment=lamarckian/ppo_pendulum"], -200.0,
        (5, ["budget.steps=2_000_000", "eval.every=100_000"]),
    ),
    "pong": Case(
        "Pong from images", "as Lamarckian's", ["+experiment=lamarckian/ppo_gym_pong"], 0.0,
        (1, ["budget.steps=200_000", "eval.every=100_000"]),
    ),
}  # fmt: skip
PAPER = (5, ["budget.steps=100_000_000", "eval.every=1_000_000"])


def threshold_steps(curve: Series, threshold: float) -> float | None:
    """Environment steps of the first evaluation at or above."""
    there = np.flatnonzero(curve.values >= threshold)
    return float(curve.steps[there[0]]) if there.size else None


def row(case: Case, runs: list[RunRecord]) -> list[str]:
    """Of the table."""
    curves = [one.series[METRIC] for one in runs]
    ends = [float(one.values[-1]) for one in curves]
    found = [threshold_steps(one, case.threshold) for one in curves]
    steps = [float(one.steps[-1]) if found[n] is None else found[n] for n, one in enumerate(curves)]
    sign = bound(found, steps)
    interval = f" ± {half_width(ends):.1f}" if len(ends) >= FEW else ""
    rates = [float(np.median(one.series["speed/steps_per_second"].values)) for one in runs]
    return [
        f"{case.world}, {case.label}", str(len(runs)), f"{median(one.steps for one in runs):,.0f}",
        f"{sum(ends) / len(ends):.1f}{interval}", f"{case.threshold:g}", f"{sign}{median(steps):,.0f}",
        f"{median(rates):,.0f}",
    ]  # fmt: skip


def bands(runs: list[RunRecord]) -> Band:
    curves = [(one.series[METRIC].steps, one.series[METRIC].values) for one in runs]
    return band(curves, common_grid([steps for steps, _ in curves]))


def draw(found: dict[str, list[RunRecord]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    worlds = list(dict.fromkeys(CASES[name].world for name in found))
    figure = Figure(figsize=(5 * len(worlds), 3.5), layout="constrained")
    panels = dict(zip(worlds, figure.subplots(1, len(worlds), squeeze=False)[0], strict=True))
    for name, runs in found.items():
        case, curve = CASES[name], bands(runs)
        axes = panels[case.world]
        axes.plot(curve.grid, curve.mean, lw=1.5, label=f"{case.label}, seeds: {len(runs)}")
        if len(runs) >= FEW:
            axes.fill_between(curve.grid, curve.mean - curve.half, curve.mean + curve.half, alpha=0.25, lw=0)
        axes.set(title=case.world, xlabel="environment steps", ylabel="mean return", xscale="log")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18))  # below: curves are everywhere
    FigureCanvasAgg(figure).print_png(str(path), metadata={"Software": None})


def read(places: list[Path]) -> list[RunRecord]:
    """The runs that have been judged at least once."""
    runs = []
    for place in places:
        try:
            runs.append(read_run(place))
        except BadRequest:  # not begun
            continue
    return [one for one in runs if METRIC in one.series]


def report(out: Path | None, facts: dict[str, Any], found: dict[str, list[RunRecord]]) -> None:
    header = ["PPO", "seeds", "steps", "return at the end", "threshold", "steps to it, median", "steps/s"]
    shown = page("PPO's sampling efficiency", __doc__, header, [row(CASES[name], runs) for name, runs in found.items()])
    samples = {
        name: [
            {"seed": one.seed, "steps": one.series[METRIC].steps.tolist(), "return": one.series[METRIC].values.tolist()}
            for one in runs
        ]
        for name, runs in found.items()
    }
    save(out, facts, [*shown, "", "![Return over environment steps](sampling.png)"], {"runs": samples})
    if out is not None:
        draw(found, out / "sampling.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", choices=["profile=ci", "profile=paper"])
    parser.add_argument("--seeds", type=int, help="instead of the profile's")
    parser.add_argument("--runs", type=Path, help="default runs/lamarckian/PROFILE")
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    parser.add_argument("--draw", action="store_true", help="make no runs")
    options = parser.parse_args()
    profile = options.profile.partition("=")[2]
    root = (options.runs or ROOT / "runs" / "lamarckian" / profile).absolute()
    facts: dict[str, Any] = machine()
    found: dict[str, list[RunRecord]] = {}
    for name, case in CASES.items():
        seeds, words = case.ci if profile == "ci" else PAPER
        places = [root / f"{name}-{seed}" for seed in range(options.seeds or seeds)]
        for seed, place in enumerate([] if options.draw else places):
            carry_on(place, [*case.words, f"seed={seed}"], words)
        found[name] = read(places)
    facts["load at the end"] = round(os.getloadavg()[0], 2)
    facts |= of_runs(one.directory for runs in found.values() for one in runs)
    report(options.out, facts, {name: runs for name, runs in found.items() if runs})


if __name__ == "__main__":
    main()
