"""Marvin learns to walk: the evolution strategy of its first authors and ours, generation by generation.

Each run is one command, ``evorl.run +experiment=marvin/original`` or ``marvin/ours`` (which says what differs), 30
episodes a generation. The return of a generation is the mean over its 30 policies, perturbations and falls included;
a threshold counts as passed at the first generation whose mean with the 4 before it is above. Published are the points
of the authors' log of 300 generations. Runs that exist in the folder of runs are not made again but gone on with.

    python benchmarks/marvin/walk.py profile=ci|paper [--seeds N] [--runs DIR] [--out DIR] [--draw]

``profile=ci`` is one seed of a million steps each, some minutes; ``profile=paper`` five seeds of some 300 generations.
``--draw`` makes no runs and shows those there are, as far as they are. The best policy of the run whose last ten
generations are the best is judged on 30 other episodes and filmed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import ROOT, bound, carry_on, judge, machine, median, of_runs, page, save

Curve = NDArray[np.float64]
VARIANTS = ("original", "ours")
COLOURS = dict(zip(VARIANTS, ("tab:blue", "tab:orange"), strict=True))
POPULATION, WINDOW = 30, 5
THRESHOLDS = (100.0, 200.0)
PUBLISHED = {0: -61.0, 50: -46.0, 100: 80.0, 150: 181.0, 200: 241.0, 250: 225.0, 295: 246.7}
EPISODES, OTHER = 30, 1_000_000
"""On which the best policy is judged again, and their seed."""
PROFILES = {"ci": (1, ["budget.steps=1_000_000"]), "paper": (5, [])}
"""Seeds, and words beside the experiment's own."""


def curve(place: Path) -> tuple[Curve, Curve]:
    """Mean return of each whole generation [G], and the environment steps until its end [G]."""
    lines = (place / "population.jsonl").read_bytes().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith(b"\n")]
    whole = len(rows) - len(rows) % POPULATION
    returns = np.array([row["objectives"]["fitness"] for row in rows[:whole]], float).reshape(-1, POPULATION)
    return returns.mean(1), np.array([row["step"] for row in rows[POPULATION - 1 : whole : POPULATION]], float)


def passed(returns: Curve, threshold: float) -> int | None:
    """The first generation at which the mean with those before it is above."""
    means = np.convolve(returns, np.full(WINDOW, 1 / WINDOW), "valid")
    above = np.flatnonzero(means > threshold)
    return int(above[0]) + WINDOW - 1 if above.size else None


def row(variant: str, curves: list[Curve]) -> list[str]:
    cells = [variant, str(len(curves)), ", ".join(str(len(one)) for one in curves)]
    for threshold in THRESHOLDS:
        found = [passed(one, threshold) for one in curves]
        known = [len(one) if g is None else g for one, g in zip(curves, found, strict=True)]
        each = ", ".join(f"> {len(one)}" if g is None else str(g) for one, g in zip(curves, found, strict=True))
        middle = median(known)
        sign = bound(found, known)
        cells += [each, f"{sign}{middle:g}", f"{sign}{POPULATION * (middle + 1):,.0f}"]
    return [*cells, ", ".join(f"{one[-10:].mean():.0f}" for one in curves)]


def draw(curves: dict[str, list[Curve]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, found in curves.items():
        for number, one in enumerate(found):
            axes.plot(one, color=COLOURS[name], alpha=0.8, lw=1, label=None if number else f"{name}, measured here")
    axes.plot(list(PUBLISHED), list(PUBLISHED.values()), "ko", ms=5, label="original, published")
    axes.set(xlabel="generation (30 episodes)", ylabel="mean return", title="Marvin learns to walk")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    FigureCanvasAgg(figure).print_png(str(path), metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", choices=[f"profile={name}" for name in PROFILES])
    parser.add_argument("--seeds", type=int, help="instead of the profile's")
    parser.add_argument("--runs", type=Path, help="default runs/marvin/PROFILE")
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    parser.add_argument("--draw", action="store_true", help="make no runs")
    options = parser.parse_args()
    profile = options.profile.partition("=")[2]
    seeds, words = PROFILES[profile]
    runs = (options.runs or ROOT / "runs" / "marvin" / profile).absolute()
    places = {v: [runs / f"{v}-{seed}" for seed in range(options.seeds or seeds)] for v in VARIANTS}
    facts: dict[str, Any] = machine()
    if not options.draw:
        for seed in range(options.seeds or seeds):
            for variant in VARIANTS:
                carry_on(places[variant][seed], [f"+experiment=marvin/{variant}", f"seed={seed}"], words)
    begun = {v: {one: curve(one) for one in each if (one / "population.jsonl").exists()} for v, each in places.items()}
    found = {v: {one: both for one, both in each.items() if len(both[0])} for v, each in begun.items()}
    if not any(found.values()):
        raise SystemExit(f"{runs} holds no run with a whole generation")
    facts |= of_runs(place for each in found.values() for place in each)
    report(options.out, facts, {v: each for v, each in found.items() if each})


def report(out: Path | None, facts: dict[str, Any], found: dict[str, dict[Path, tuple[Curve, Curve]]]) -> None:
    curves = {variant: [returns for returns, _ in each.values()] for variant, each in found.items()}
    header = ["marvin", "seeds", "generations"]
    for threshold in THRESHOLDS:
        header += [f"mean above {threshold:g} at generation", "median", "episodes"]
    shown = page("Marvin", __doc__, [*header, "last 10"], [row(variant, each) for variant, each in curves.items()])
    samples = {
        variant: [{"returns": a.round(2).tolist(), "steps": b.astype(int).tolist()} for a, b in each.values()]
        for variant, each in found.items()
    }
    ends = {place: returns[-10:].mean() for each in found.values() for place, (returns, _) in each.items()}
    best = max(ends, key=lambda place: ends[place])
    words = ["individual=best", f"episodes={EPISODES}", f"seed={OTHER}", "fps=50"]
    walk = judge(best, words, out and out / "walk.mp4")
    told = (
        f"The best policy of {best.name} on {EPISODES} other episodes: a mean return of {walk['return_mean']:.0f} "
        f"({walk['return_min']:.0f} to {walk['return_max']:.0f}) in {walk['length_mean']:.0f} steps: [a film](walk.mp4)"
    )
    save(out, facts, [*shown, "", told], {"published": PUBLISHED, "runs": samples, "best": walk})
    if out is not None:
        draw(curves, out / "walk.png")


if __name__ == "__main__":
    main()
