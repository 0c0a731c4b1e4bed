"""Population based training with and without a generation's barrier, where members train for unlike times.

Every evaluation is a PPO learner that trains on vector Pong for 131,072 steps and then plays 16 games, in one of 2
worker processes. Beside the learning rate and the critic's weight a member's passes over each batch are a gene (1, 2,
4, 8 or 16), so that one member's training takes several times as long as another's. Asynchronous and synchronous
searches have the same seeds and the same wall time each, and take turns. Busy is the share of the workers' time
within evaluations, from the first one's beginning to the end of the last one in time (of the last whole generation
where there are generations); fitness is the mean of 16 games of the deterministic policy, 0.5 for an even game.
Numbers are means over the seeds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from evorl.cli.config import experiment_of_words
from evorl.reproduction.parts import Given, Measurement
from evorl.reproduction.scores import mean_told
from evorl.reproduction.table import Analysis, Found, Picture, Profile, Table

WORKERS, STEPS, EPISODES = 2, 131_072, 16
MODES = {True: "asynchronous", False: "synchronous"}


class Size(NamedTuple):
    population: int
    seconds: float
    seeds: int


SIZES = {"ci": Size(8, 150.0, 2), "paper": Size(30, 3600.0, 3)}


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


def search(size: Size, asynchronous: bool, seed: int, also: Sequence[str] = ()) -> list[Told]:
    """All evaluations until the time is over; asynchronous, those that were under way then as well."""
    from evorl.population.loop import Population

    words = [
        "+experiment=lamarckian/pbt_pong", f"ec.population={size.population}", f"ec.train_steps={STEPS}",
        f"ec.episodes={EPISODES}", f"ec.asynchronous={str(asynchronous).lower()}",
        "+ec.genes.rl.passes={choices:[1,2,4,8,16]}", "cluster=processes", f"cluster.workers={WORKERS}", f"seed={seed}",
    ]  # fmt: skip
    made = experiment_of_words([*words, *also])
    assert made.ec is not None
    began, found = time.perf_counter(), list[Told]()
    late = size.population if asynchronous else 1
    run = Population(made, made.ec)
    try:
        while len(found) - in_time(found, size.seconds) < late:
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


def summary(found: list[Told], size: Size, whole: bool) -> dict[str, float]:
    """Of one search; with ``whole`` only whole generations count for how busy the workers were."""
    count = in_time(found, size.seconds)
    kept = found[: count - count % size.population] if whole else found[:count]
    took = np.array([one.seconds for one in found[:count]])
    return {
        "busy": busy(found, kept[-1].at),
        "evaluations per minute": 60 * len(kept) / kept[-1].at,
        "steps per second": sum(one.steps for one in kept) / kept[-1].at,
        "variation": float(took.std() / took.mean()),
        "best": max(one.fitness for one in found[:count]),
        "mean": float(np.mean([one.fitness for one in found[:count][-size.population :]])),
        "passes": float(np.mean([one.passes for one in found[:count][-size.population :]])),
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


def draw(found: Mapping[bool, list[list[Told]]], size: Size) -> Figure:
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    grid = np.linspace(0, size.seconds, 300)
    for (mode, searches), colour in zip(found.items(), ("tab:blue", "tab:orange"), strict=True):
        for number, one in enumerate(searches):
            label = None if number else MODES[mode]
            axes.step(grid, curve(one, grid), color=colour, lw=1.2, where="post", label=label)
    axes.set(xlabel="seconds", ylabel="best fitness so far", title=f"PBT on Pong, population {size.population}")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def rows(found: Mapping[bool, list[list[Told]]], size: Size) -> list[list[str]]:
    """Of the table."""
    out = []
    for mode, searches in found.items():
        each = [summary(one, size, whole=not mode) for one in searches]
        middle = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
        half = [curve(one, np.array([size.seconds / 2]))[0] for one in searches]
        out.append([
            MODES[mode], f"{middle['busy']:.1%}", f"{middle['evaluations per minute']:.1f}",
            f"{middle['steps per second']:,.0f}", f"{middle['variation']:.2f}", f"{np.mean(half):.3f}",
            f"{middle['best']:.3f}", f"{middle['mean']:.3f}", f"{middle['passes']:.1f}",
        ])  # fmt: skip
    return out


def contest(size: Size, mode: bool, seed: int, given: Given) -> dict[str, Any]:
    """The evaluations of one search, and the load after it."""
    return {"search": search(size, mode, seed, given.words), "load": round(os.getloadavg()[0], 2)}


def contests(size: Size) -> list[Measurement]:
    """The searches in turn, every other round backwards, so that a drift of the machine hits both alike."""
    order = [(seed, mode) for seed in range(size.seeds) for mode in list(MODES)[:: -1 if seed % 2 else 1]]
    return [Measurement(kept(mode, seed), partial(contest, size, mode, seed)) for seed, mode in order]


def kept(mode: bool, seed: int) -> str:
    return f"asynchronous/{MODES[mode]}-{seed}"


def read(samples: Mapping[str, Sequence[Sequence[Sequence[float]]]]) -> dict[bool, list[list[Told]]]:
    """The searches of each mode, as a result keeps them."""
    return {mode: [[Told(*one) for one in search] for search in samples[name]] for mode, name in MODES.items()}


def core_hours(found: Mapping[bool, list[list[Told]]]) -> float:
    """Of all searches, until their last evaluation."""
    return round(WORKERS * sum(one[-1].at for searches in found.values() for one in searches) / 3600, 2)


def analyse(there: Found) -> Analysis | None:
    size = SIZES[there.profile]
    both = [seed for seed in range(size.seeds) if all(kept(mode, seed) in there.measured for mode in MODES)]
    if not both:
        return None
    samples = {name: [there.measured[kept(mode, seed)]["search"] for seed in both] for mode, name in MODES.items()}
    found = read(samples)
    header = [
        f"population {size.population}, {size.seconds:g} s", "busy", "evaluations/min", "training steps/s",
        "variation of durations", "best at half time", "best", "mean of the last", "their passes",
    ]  # fmt: skip
    return Analysis(
        header=header,
        rows=rows(found, size),
        pictures=[Picture("asynchronous", "Best fitness over time", draw(found, size))],
        facts={
            "load after each search": {name.partition("/")[2]: x["load"] for name, x in there.measured.items()},
            "core hours": core_hours(found),
        },
        data={"size": size._asdict(), "samples": samples},
    )


def measured(data: Mapping[str, Any]) -> str:
    """The means over seeds with their intervals."""
    size, told = Size(**data["size"]), []
    for mode, searches in read(data["samples"]).items():
        each = [summary(one, size, whole=not mode) for one in searches]
        busy, best = mean_told([100 * one["busy"] for one in each], 1), mean_told([one["best"] for one in each], 2)
        told.append(f"{MODES[mode]} {busy} % busy, best fitness {best}")
    return f"{'; '.join(told)} (means of {len(data['samples']['synchronous'])} seeds)"


TABLE = Table(
    title="PBT + PPO: asynchronous and synchronous evaluation",
    of="Asynchronous evolution",
    claim="members of a population are evaluated without a barrier; no number is published",
    source="Bai et al. 2022",
    about=__doc__,
    profiles={
        "ci": Profile("population 8 for 150 seconds; 2 seeds; 2 workers", 0.4, contests(SIZES["ci"])),
        "paper": Profile("population 30 for an hour; 3 seeds; 2 workers", 12, contests(SIZES["paper"])),
    },
    analyse=analyse,
    measured=measured,
)
