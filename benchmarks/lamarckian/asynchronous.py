"""Population based training with and without a generation's barrier, where members train for unlike times.

Every evaluation is a PPO learner that trains on vector Pong for 131,072 steps and then plays 16 games, in one of 2
worker processes. Beside the learning rate and the critic's weight a member's passes over each batch are a gene (1, 2,
4, 8 or 16), so that one member's training takes several times as long as another's. Asynchronous and synchronous
searches have the same seeds and the same wall time each, and take turns. Busy is the share of the workers' time
within evaluations, from the first one's beginning to the end of the last one in time (of the last whole generation
where there are generations); fitness is the mean of 16 games of the deterministic policy, 0.5 for an even game.
Numbers are means over the seeds.

    python benchmarks/lamarckian/asynchronous.py profile=ci|paper [--seeds N] [--out DIR]

``profile=ci`` is a population of 8 for 150 seconds, 2 seeds; ``profile=paper`` one of 30 for an hour, 3 seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import alternate, machine, page, save

from evorl.cli import config
from evorl.population.loop import Population

WORKERS, STEPS, EPISODES = 2, 131_072, 16
MODES = {True: "asynchronous", False: "synchronous"}


class Profile(NamedTuple):
    population: int
    seconds: float
    seeds: int


PROFILES = {"ci": Profile(8, 150.0, 2), "paper": Profile(30, 3600.0, 3)}


class Told(NamedTuple):
    """An evaluation, when it was told of."""

    at: float
    """Seconds since the search began."""
    seconds: float
    """That it took."""
    fitness: float
    steps: int
    """Of training."""
    passes: int


def search(profile: Profile, asynchronous: bool, seed: int) -> list[Told]:
    """All evaluations until the time is over; asynchronous, those that were under way then as well."""
    words = [
        "+experiment=lamarckian/pbt_pong", f"ec.population={profile.population}", f"ec.train_steps={STEPS}",
        f"ec.episodes={EPISODES}", f"ec.asynchronous={str(asynchronous).lower()}",
        "+ec.genes.rl.passes={choices:[1,2,4,8,16]}", "cluster=processes", f"cluster.workers={WORKERS}", f"seed={seed}",
    ]  # fmt: skip
    with config.opened() as hydra:
        made = config.experiment(config.resolved(config.compose(hydra, words)))
    assert made.ec is not None
    began, found = time.perf_counter(), list[Told]()
    late = profile.population if asynchronous else 1
    run = Population(made, made.ec)
    try:
        while len(found) - in_time(found, profile.seconds) < late:
            evaluated = run.iterate().evaluated
            at = time.perf_counter() - began
            found += [told(at, one) for one in evaluated]
    finally:
        run.close()
    return found


def told(at: float, row: dict[str, Any]) -> Told:
    steps = row["cost"] - round(EPISODES * row["results"]["length"])
    return Told(at, row["seconds"], row["objectives"]["fitness"], steps, row["genes"]["rl.passes"])


def in_time(found: list[Told], seconds: float) -> int:
    """How many were told of before the time was over."""
    return sum(one.at <= seconds for one in found)


def summary(found: list[Told], profile: Profile, whole: bool) -> dict[str, float]:
    """Of one search; with ``whole`` only whole generations count for how busy the workers were."""
    count = in_time(found, profile.seconds)
    kept = found[: count - count % profile.population] if whole else found[:count]
    took = np.array([one.seconds for one in found[:count]])
    return {
        "busy": busy(found, kept[-1].at),
        "evaluations per minute": 60 * len(kept) / kept[-1].at,
        "steps per second": sum(one.steps for one in kept) / kept[-1].at,
        "variation": float(took.std() / took.mean()),
        "best": max(one.fitness for one in found[:count]),
        "mean": float(np.mean([one.fitness for one in found[:count][-profile.population :]])),
        "passes": float(np.mean([one.passes for one in found[:count][-profile.population :]])),
    }


def busy(found: list[Told], until: float) -> float:
    """The share of the workers' time within evaluations, from the first one's beginning."""
    ended = np.array([one.at for one in found])
    began = ended - [one.seconds for one in found]
    inside = np.clip(ended, None, until) - np.clip(began, None, until)
    return float(inside.sum() / (WORKERS * (until - began.min())))


def curve(found: list[Told], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The best fitness so far at each time of a grid [G]; NaN before the first."""
    best = np.maximum.accumulate([one.fitness for one in found])
    at = np.searchsorted([one.at for one in found], grid, side="right")
    return np.where(at > 0, best[np.maximum(at, 1) - 1], np.nan)


def draw(found: dict[bool, list[list[Told]]], profile: Profile, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    grid = np.linspace(0, profile.seconds, 300)
    for (mode, searches), colour in zip(found.items(), ("tab:blue", "tab:orange"), strict=True):
        for number, one in enumerate(searches):
            label = None if number else MODES[mode]
            axes.step(grid, curve(one, grid), color=colour, lw=1.2, where="post", label=label)
    axes.set(xlabel="seconds", ylabel="best fitness so far", title=f"PBT on Pong, population {profile.population}")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    FigureCanvasAgg(figure).print_png(str(path), metadata={"Software": None})


def rows(found: dict[bool, list[list[Told]]], profile: Profile) -> list[list[str]]:
    """Of the table."""
    out = []
    for mode, searches in found.items():
        each = [summary(one, profile, whole=not mode) for one in searches]
        middle = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
        half = [curve(one, np.array([profile.seconds / 2]))[0] for one in searches]
        out.append([
            MODES[mode], f"{middle['busy']:.1%}", f"{middle['evaluations per minute']:.1f}",
            f"{middle['steps per second']:,.0f}", f"{middle['variation']:.2f}", f"{np.mean(half):.3f}",
            f"{middle['best']:.3f}", f"{middle['mean']:.3f}", f"{middle['passes']:.1f}",
        ])  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", choices=[f"profile={name}" for name in PROFILES])
    parser.add_argument("--seeds", type=int, help="instead of the profile's")
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    options = parser.parse_args()
    profile = PROFILES[options.profile.partition("=")[2]]
    facts: dict[str, Any] = {**machine(), "load after each search": ""}
    found: dict[bool, list[list[Told]]] = {mode: [] for mode in MODES}

    def contest(mode: bool, number: int) -> dict[str, float]:
        found[mode].append(search(profile, mode, number))
        facts["load after each search"] += f" {MODES[mode]} {os.getloadavg()[0]:.2f}"
        return summary(found[mode][-1], profile, whole=not mode)

    alternate({mode: partial(contest, mode) for mode in MODES}, range(options.seeds or profile.seeds))
    header = [
        f"population {profile.population}, {profile.seconds:g} s", "busy", "evaluations/min", "training steps/s",
        "variation of durations", "best at half time", "best", "mean of the last", "their passes",
    ]  # fmt: skip
    shown = page("PBT + PPO: asynchronous and synchronous evaluation", __doc__, header, rows(found, profile))
    samples = {MODES[mode]: searches for mode, searches in found.items()}
    save(options.out, facts, [*shown, "", "![Best fitness over time](asynchronous.png)"], {"samples": samples})
    if options.out is not None:
        draw(found, profile, options.out / "asynchronous.png")


if __name__ == "__main__":
    main()
