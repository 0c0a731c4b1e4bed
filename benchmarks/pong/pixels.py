"""Atari's Pong from pixels on two cores: environment steps and minutes until the score is above 0.

``evorl.run +experiment=pong_pixels`` (PongNoFrameskip-v4, pictures of 60 x 60, PPO, two worker processes) for each
seed, one after the other. A run ends after an hour, or once an evaluation has a mean score of 10 or more. The score in
training is the mean of the last 100 full games of the policy that learns, which draws its actions. An evaluation is 5
games with drawn and 5 with the most probable actions. The clock counts all of the run, evaluations included.

    python benchmarks/pong/pixels.py [--runs DIR] [--out DIR] [--draw]

The same command resumes what was stopped, and draws the runs that have ended; --draw makes no runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

import numpy as np
from common import ROOT, machine, page, save
from matplotlib.figure import Figure

from evorl.analysis.figures import render
from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels
from evorl.reproduction.pages import of_drawing, of_runs
from evorl.reproduction.parts import Sweep, runs_of

SCORE = "train/return"
SWEEP = Sweep("pong_pixels", ("+experiment=pong_pixels", "seed=1,2,3", "budget.seconds=3600", "budget.fitness=10"))


def above_zero(run: RunRecord) -> tuple[float, float] | None:
    """The first step, and its second, at which the mean of the last 100 games is above 0."""
    curve = run.series[SCORE]
    places = np.flatnonzero(curve.values > 0)
    return (float(curve.steps[places[0]]), float(curve.seconds[places[0]])) if len(places) else None


def row(run: RunRecord) -> list[str]:
    assert run.result is not None
    when, evaluation = above_zero(run), run.result["eval"]
    reached = [f"{when[0]:,.0f}", f"{when[1] / 60:.1f}"] if when else ["not", "not"]
    scores = [f"{evaluation[name]:+.1f}" for name in ("stochastic_return_mean", "return_mean")]
    return [str(run.seed), *reached, f"{run.steps:,.0f}", f"{run.seconds / 60:.1f}", *scores]


def draw(runs: list[RunRecord]) -> Figure:
    made, both = panels(["Pong from pixels"] * 2, "environment steps", "score of 21, last 100 games", sharey=True)
    both[1].set(xlabel="minutes", ylabel="")
    for run in runs:
        curve = run.series[SCORE]
        for axes, across in zip(both, (curve.steps, curve.seconds / 60), strict=True):
            axes.plot(across, curve.values, lw=1.2, label=f"seed {run.seed}")
    for axes in both:
        axes.axhline(0, color="0.7", lw=0.8, zorder=0)
    return legends(made)


def measure(sweep: Sweep, about: str) -> None:
    """Carry out a sweep, and write what its runs show under the name of the program."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="default runs")
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    parser.add_argument("--draw", action="store_true", help="make no runs")
    args = parser.parse_args()
    facts: dict[str, Any] = machine()
    place = args.runs.absolute()
    if not args.draw:
        sweep.carry_out(place)
    runs = sorted((run for run in runs_of(place, [sweep]) if run.result), key=lambda run: int(run.seed))
    if args.draw:
        facts = of_drawing(facts["command"].replace(" --draw", ""), None, runs)
    header = [
        "seed",
        "above 0 after steps",
        "after minutes",
        "steps",
        "minutes",
        "score, drawn actions",
        "most probable",
    ]
    figure = f"{Path(sys.argv[0]).stem}.png"
    lines = [*page("Atari's Pong from pixels", about, header, [row(run) for run in runs]), "", f"![Score]({figure})"]
    curves = [
        {
            "seed": run.seed,
            "above 0": above_zero(run),
            **{k: getattr(run.series[SCORE], k).tolist() for k in ("steps", "seconds", "values")},
        }
        for run in runs
    ]
    save(args.out, facts | of_runs(runs), lines, {"runs": curves})
    if args.out is not None:
        (args.out / figure).write_bytes(render(draw(runs))["png"])


if __name__ == "__main__":
    measure(SWEEP, __doc__)
