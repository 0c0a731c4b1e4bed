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
from evorl.reproduction.parts import Inputs, Measurement
from evorl.reproduction.scores import mean_text
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table

WORKERS, STEPS, EPISODES = 2, 131_072, 16
MODES = {True: "asynchronous", False: "synchronous"}


class Size(NamedTuple):
    population: int
    seconds: float
    seeds: int


SIZES = {"ci": Size(8, 150.0, 2), "paper": Size(30, 3600.0, 3)}


class Evaluation(NamedTuple):
    """An evaluation, and when its result arrived."""

    at: float
    """Seconds since the search began."""
    seconds: float
    """That it took."""
    fitness: float
    steps: int
    """Of training."""
    passes: int


def search(size: Size, asynchronous: bool, seed: int, also: Sequence[str] = ()) -> list[Evaluation]:
    """All evaluations until the time is over; asynchronous, those that were under way then as well."""
    from evorl.population.loop import Population

    words = [
        "+experiment=lamarckian/pbt_pong", f"ec.population={size.population}", f"ec.train_steps={STEPS}",
        f"ec.episodes={EPISODES}", f"ec.asynchronous={str(asynchronous).lower()}",
        "+ec.genes.rl.passes={choices:[1,2,4,8,16]}", "cluster=processes", f"cluster.workers={WORKERS}", f"seed={seed}",
    ]  # fmt: skip
    made = experiment_of_words([*words, *also])
    assert made.ec is not None
    began, evaluations = time.perf_counter(), list[Evaluation]()
    late = size.population if asynchronous else 1
    run = Population(made, made.ec)
    try:
        while len(evaluations) - in_time(evaluations, size.seconds) < late:
            evaluated = run.iterate().evaluated
            at = time.perf_counter() - began
            evaluations += [evaluation_of(at, row) for row in evaluated]
    finally:
        run.close()
    return evaluations


def evaluation_of(at: float, row: dict[str, Any]) -> Evaluation:
    steps = row["cost"] - round(EPISODES * row["results"]["length"])
    return Evaluation(at, row["seconds"], row["objectives"]["fitness"], steps, row["genes"]["rl.passes"])


def in_time(evaluations: list[Evaluation], seconds: float) -> int:
    """The number of results that arrived before the time was over."""
    return sum(evaluation.at <= seconds for evaluation in evaluations)


def summary(evaluations: list[Evaluation], size: Size, whole: bool) -> dict[str, float]:
    """Of one search; with ``whole`` only whole generations count for how busy the workers were."""
    count = in_time(evaluations, size.seconds)
    kept = evaluations[: count - count % size.population] if whole else evaluations[:count]
    took = np.array([evaluation.seconds for evaluation in evaluations[:count]])
    return {
        "busy": busy(evaluations, kept[-1].at),
        "evaluations per minute": 60 * len(kept) / kept[-1].at,
        "steps per second": sum(evaluation.steps for evaluation in kept) / kept[-1].at,
        "variation": float(took.std() / took.mean()),
        "best": max(evaluation.fitness for evaluation in evaluations[:count]),
        "mean": float(np.mean([evaluation.fitness for evaluation in evaluations[:count][-size.population :]])),
        "passes": float(np.mean([evaluation.passes for evaluation in evaluations[:count][-size.population :]])),
    }


def busy(evaluations: list[Evaluation], until: float) -> float:
    """The share of the workers' time within evaluations, from the first one's beginning."""
    ended = np.array([evaluation.at for evaluation in evaluations])
    began = ended - [evaluation.seconds for evaluation in evaluations]
    inside = np.clip(ended, None, until) - np.clip(began, None, until)
    return float(inside.sum() / (WORKERS * (until - began.min())))


def curve(evaluations: list[Evaluation], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The best fitness so far at each time of a grid [G]; NaN before the first."""
    best = np.maximum.accumulate([evaluation.fitness for evaluation in evaluations])
    at = np.searchsorted([evaluation.at for evaluation in evaluations], grid, side="right")
    return np.where(at > 0, best[np.maximum(at, 1) - 1], np.nan)


def draw(by_mode: Mapping[bool, list[list[Evaluation]]], size: Size) -> Figure:
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    grid = np.linspace(0, size.seconds, 300)
    for (mode, searches), colour in zip(by_mode.items(), ("tab:blue", "tab:orange"), strict=True):
        for number, evaluations in enumerate(searches):
            label = None if number else MODES[mode]
            axes.step(grid, curve(evaluations, grid), color=colour, lw=1.2, where="post", label=label)
    axes.set(xlabel="seconds", ylabel="best fitness so far", title=f"PBT on Pong, population {size.population}")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def rows(by_mode: Mapping[bool, list[list[Evaluation]]], size: Size) -> list[list[str]]:
    """Of the table."""
    out = []
    for mode, searches in by_mode.items():
        each = [summary(evaluations, size, whole=not mode) for evaluations in searches]
        middle = {name: float(np.mean([numbers[name] for numbers in each])) for name in each[0]}
        half = [curve(evaluations, np.array([size.seconds / 2]))[0] for evaluations in searches]
        out.append([
            MODES[mode], f"{middle['busy']:.1%}", f"{middle['evaluations per minute']:.1f}",
            f"{middle['steps per second']:,.0f}", f"{middle['variation']:.2f}", f"{np.mean(half):.3f}",
            f"{middle['best']:.3f}", f"{middle['mean']:.3f}", f"{middle['passes']:.1f}",
        ])  # fmt: skip
    return out


def contest(size: Size, mode: bool, seed: int, inputs: Inputs) -> dict[str, Any]:
    """The evaluations of one search, and the load after it."""
    return {"search": search(size, mode, seed, inputs.words), "load": round(os.getloadavg()[0], 2)}


def contests(size: Size) -> list[Measurement]:
    """The searches in turn, every other round backwards, so that a drift of the machine hits both alike."""
    order = [(seed, mode) for seed in range(size.seeds) for mode in list(MODES)[:: -1 if seed % 2 else 1]]
    return [Measurement(kept(mode, seed), partial(contest, size, mode, seed)) for seed, mode in order]


def kept(mode: bool, seed: int) -> str:
    return f"asynchronous/{MODES[mode]}-{seed}"


def read(samples: Mapping[str, Sequence[Sequence[Sequence[float]]]]) -> dict[bool, list[list[Evaluation]]]:
    """The searches of each mode, as a result keeps them."""
    return {mode: [[Evaluation(*row) for row in search] for search in samples[name]] for mode, name in MODES.items()}


def core_hours(by_mode: Mapping[bool, list[list[Evaluation]]]) -> float:
    """Of all searches, until their last evaluation."""
    return round(
        WORKERS * sum(evaluations[-1].at for searches in by_mode.values() for evaluations in searches) / 3600, 2
    )


def analyse(results: Results) -> Analysis | None:
    size = SIZES[results.profile]
    both = [seed for seed in range(size.seeds) if all(kept(mode, seed) in results.measured for mode in MODES)]
    if not both:
        return None
    samples = {name: [results.measured[kept(mode, seed)]["search"] for seed in both] for mode, name in MODES.items()}
    by_mode = read(samples)
    header = [
        f"population {size.population}, {size.seconds:g} s", "busy", "evaluations/min", "training steps/s",
        "variation of durations", "best at half time", "best", "mean of the last", "their passes",
    ]  # fmt: skip
    return Analysis(
        header=header,
        rows=rows(by_mode, size),
        pictures=[Picture("asynchronous", "Best fitness over time", draw(by_mode, size))],
        facts={
            "load after each search": {name.partition("/")[2]: x["load"] for name, x in results.measured.items()},
            "core hours": core_hours(by_mode),
        },
        data={"size": size._asdict(), "samples": samples},
    )


def measured(data: Mapping[str, Any]) -> str:
    """The means over seeds with their intervals."""
    size, texts = Size(**data["size"]), []
    for mode, searches in read(data["samples"]).items():
        each = [summary(evaluations, size, whole=not mode) for evaluations in searches]
        busy, best = (
            mean_text([100 * numbers["busy"] for numbers in each], 1),
            mean_text([numbers["best"] for numbers in each], 2),
        )
        texts.append(f"{MODES[mode]} {busy} % busy, best fitness {best}")
    return f"{'; '.join(texts)} (means of {len(data['samples']['synchronous'])} seeds)"


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
