"""Marvin learns to walk: the evolution strategy of its first authors and ours, generation by generation.

Each run is one command, ``evorl.run +experiment=marvin/original`` or ``marvin/ours`` (which says what differs), 30
episodes a generation. The return of a generation is the mean over its 30 policies, perturbations and falls included;
a threshold counts as passed at the first generation whose mean with the 4 before it is above. IQM is the
interquartile mean over seeds with its 95 % bootstrap interval, where all have passed. Published are the points of the
authors' log of 300 generations. The best policy of the run whose last ten generations are the best is judged on 30
other episodes and filmed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.marvin.generations import AGAIN, Curve, best_run, curve, evaluation_of, header, row, when
from evorl.reproduction.judging import judge
from evorl.reproduction.parts import CLUSTER, TWO_AT_ONCE, Sweep
from evorl.reproduction.table import Analysis, Picture, Policy, Profile, Results, Table

VARIANTS = ("original", "ours")
COLOURS = dict(zip(VARIANTS, ("tab:blue", "tab:orange"), strict=True))
POPULATION = 30
THRESHOLDS = (100.0, 200.0)
PUBLISHED = {0: -61.0, 50: -46.0, 100: 80.0, 150: 181.0, 200: 241.0, 250: 225.0, 295: 246.7}
SMOOTHED = 10
"""Generations of which a curve shows the mean."""
EXPERIMENTS = "+experiment=" + ",".join(f"marvin/{variant}" for variant in VARIANTS)


def draw(curves: Mapping[str, Sequence[Curve]]) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, several in curves.items():
        for number, returns in enumerate(several):
            window = min(SMOOTHED, len(returns))
            smooth = np.convolve(returns, np.full(window, 1 / window), "valid")
            label = None if number else f"{name}, measured here"
            axes.plot(window - 1 + np.arange(len(smooth)), smooth, color=COLOURS[name], lw=1.2, label=label)
    axes.plot(list(PUBLISHED), list(PUBLISHED.values()), "ko", ms=5, label="original, published")
    axes.set(xlabel="generation (30 episodes)", ylabel=f"return, mean of {SMOOTHED} generations")
    axes.set_title("Marvin learns to walk")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def analyse(results: Results) -> Analysis | None:
    """Of the runs with a whole generation."""
    by_variant: dict[str, dict[Path, tuple[Curve, Curve]]] = {variant: {} for variant in VARIANTS}
    for run in results.runs:
        if (run.directory / "population.jsonl").exists():
            both = curve(run.directory, POPULATION)
            if len(both[0]):
                by_variant[run.choices["experiment"].removeprefix("marvin/")][run.directory] = both
    by_variant = {variant: each for variant, each in by_variant.items() if each}
    return analysis_of(by_variant) if by_variant else None


def analysis_of(by_variant: Mapping[str, Mapping[Path, tuple[Curve, Curve]]]) -> Analysis:
    curves = {variant: [returns for returns, _ in each.values()] for variant, each in by_variant.items()}
    best = best_run({place: returns for each in by_variant.values() for place, (returns, _) in each.items()})
    walk, film = judge(best, ["individual=best", *AGAIN, "fps=50"], film=True)
    learner = next(variant for variant, each in by_variant.items() if best in each)
    returns = f"{walk['return_mean']:.0f} ({walk['return_min']:.0f} to {walk['return_max']:.0f})"
    note = (
        f"The best policy of all runs (marvin/{learner}) on {walk['episodes']} other episodes: a mean return of "
        f"{returns} in {walk['length_mean']:.0f} steps: [a film](walk.mp4). The same again: `{evaluation_of('walk')}`"
    )
    return Analysis(
        header=header("marvin", THRESHOLDS),
        rows=[row(variant, each, POPULATION, THRESHOLDS) for variant, each in curves.items()],
        notes=[note],
        pictures=[Picture("walk", "Mean return over generations", draw(curves))],
        files={"walk.mp4": film},
        policies={"walk": Policy(best, ("individual=best", *AGAIN))},
        data={
            "published": PUBLISHED,
            "runs": {
                variant: [{"returns": a.round(2).tolist(), "steps": b.astype(int).tolist()} for a, b in each.values()]
                for variant, each in by_variant.items()
            },
            "best": walk,
        },
    )


def measured(data: Mapping[str, Any]) -> str:
    """When the mean was above 200."""
    shown = []
    for variant, runs in data["runs"].items():
        cells = row(variant, [np.array(run["returns"]) for run in runs], POPULATION, THRESHOLDS)
        shown.append(f"{variant}: mean above 200 at generation {when(cells, 1)}")
    return "; ".join(shown)


TABLE = Table(
    title="Marvin",
    of="The log of 300 generations: mean return by generation",
    claim="the mean return is above 100 at about generation 130, above 200 at 160, and 247 at 295 (one run)",
    source="the notebook of walking_marvin",
    about=__doc__,
    profiles={
        "ci": Profile(
            "1,000,000 steps, some 25 to 30 generations; one seed of either strategy", 0.1,
            [Sweep("walk", ("seed=0", EXPERIMENTS, "budget.steps=1_000_000"), TWO_AT_ONCE)],
        ),
        "paper": Profile(
            "some 300 generations; 5 seeds of either strategy", 5,
            [Sweep("walk", ("seed=0,1,2,3,4", EXPERIMENTS), CLUSTER)],
        ),
    },
    analyse=analyse,
    measured=measured,
)  # fmt: skip
