"""NashConv over steps of two populations that evolve against each other, beside one learner in self-play, on poker.

ec=coevolution has eight PPO learners, four for each side; their learning rates and entropy coefficients are genes. Its
mixture draws one of the four members of a side for each game; *one policy a side* is the first of them. Self-play is
one PPO learner of both sides, with the same settings and as many steps as the eight have together. Its mixture draws
one of its policies at all checkpoints so far, and *one policy a side* is the newest. NashConv is OpenSpiel's, of the
policies' tables; lines are means over the seeds, areas reach from the lowest to the highest, dotted is random play.

    python benchmarks/openspiel/coevolution.py [--out benchmarks/openspiel/results] [--seeds 5]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.openspiel.psro import UNIFORM
from benchmarks.speed.common import arguments, machine, page, save, start_run, versions
from evorl.reproduction.figures import legends, panels

STEPS = {"kuhn_poker": 160_000, "leduc_poker": 240_000}
POINTS = 10
"""Checkpoints of a run."""
SETTINGS = (
    *("rl=ppo", "rl.gamma=1", "rl.passes=4", "rl.lr=3e-3", "rl.net.hidden=[64]", "rl.slots=64", "rl.horizon=16"),
    *("rl.minibatch=256", "rl.entropy_coef=0.1", "eval.episodes=2", "eval.every=0", f"checkpoint.keep={POINTS + 1}"),
    *("record.tensorboard=false", "record.hardware=false"),
)
COEVOLUTION, SELF = "coevolution", "self-play"
ARMS = {
    COEVOLUTION: (
        *("ec=coevolution", "ec.population=8", "ec.slots=1", "ec.train_steps=5_000", "ec.episodes=2"),
        "+ec.genes.rl={lr:{low:3e-4,high:1e-2,log:true},entropy_coef:{low:1e-2,high:3e-1,log:true}}",
    ),
    SELF: (),
}
COLOURS = {COEVOLUTION: "C0", SELF: "C1"}
Results = dict[str, dict[str, list[dict[str, Any]]]]
"""The runs of each game and arm: steps, and NashConv of the newest policies and of the mixture."""


def measure(job: tuple[str, str, int]) -> dict[str, Any]:
    from benchmarks.openspiel.nash_conv import distances

    game, arm, seed = job
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "run"
        own = (f"mdp.game={game}", f"seed={seed}", f"budget.steps={STEPS[game]}", f"hydra.run.dir={directory}")
        every = f"checkpoint.every={STEPS[game] // POINTS}"
        if start_run(["mdp=openspiel", *SETTINGS, *ARMS[arm], *own, every]).wait() != 0:
            raise SystemExit(f"{job} failed")
        seconds = time.monotonic() - began
        found = [distance for distance in distances(directory) if distance.step]
    steps, policy, mixture = (list(column) for column in zip(*found, strict=True))
    return {"seed": seed, "steps": steps, "policy": policy, "mixture": mixture, "seconds": round(seconds, 1)}


def rows(results: Results) -> Iterator[list[str]]:
    for game, arms in results.items():
        for arm, runs in arms.items():
            if runs:
                ends = [np.array([run[kind][-1] for run in runs]) for kind in ("policy", "mixture")]
                told = [f"{end.mean():.3f} ({end.min():.3f} to {end.max():.3f})" for end in ends]
                steps, seconds = np.mean([(run["steps"][-1], run["seconds"]) for run in runs], axis=0)
                yield [
                    f"{game}, {arm}",
                    f"{UNIFORM[game]:.3f}",
                    *told,
                    f"{len(runs)}",
                    f"{steps:,.0f}",
                    f"{seconds:.0f}",
                ]


def draw(results: Results) -> Figure:
    figure, every = panels([*results], "environment steps", "NashConv")
    for axes, (game, arms) in zip(every, results.items(), strict=True):
        for arm, runs in arms.items():
            grid = np.arange(1, POINTS + 1) * STEPS[game] / POINTS
            grid = grid[grid >= max(run["steps"][0] for run in runs)]  # the first whole population of each seed
            each = np.array([np.interp(grid, run["steps"], run["mixture"]) for run in runs])
            axes.plot(grid, each.mean(0), color=COLOURS[arm], label=f"{arm}, mixture")
            axes.fill_between(grid, each.min(0), each.max(0), color=COLOURS[arm], alpha=0.2, lw=0)
            newest = np.array([np.interp(grid, run["steps"], run["policy"]) for run in runs])
            axes.plot(grid, newest.mean(0), color=COLOURS[arm], ls="--", lw=1, label=f"{arm}, one policy")
        axes.axhline(UNIFORM[game], color="grey", ls=":", lw=1)
        axes.set_ylim(0)
    return legends(figure)


def main() -> None:
    args = arguments(__doc__, seeds=5)
    facts = machine() | {"open_spiel": versions("open_spiel")["open_spiel"]}
    jobs = [(game, arm, seed) for game in STEPS for arm in ARMS for seed in range(args.seeds)]
    results: Results = {game: {arm: [] for arm in ARMS} for game in STEPS}
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for (game, arm, seed), measured in zip(jobs, pool.map(measure, jobs), strict=True):
            results[game][arm].append(measured)
            print(f"{game}, {arm}, seed {seed}: {measured['mixture'][-1]:.3f}", file=sys.stderr, flush=True)
    header = [
        "game, arm",
        "NashConv of random play",
        "of one policy a side",
        "of the mixture",
        "seeds",
        "steps",
        "seconds",
    ]
    lines = page("Coevolution on Kuhn and Leduc poker", __doc__, header, [*rows(results)])
    settings = {"all": SETTINGS, **ARMS}
    save(args.out, facts, [*lines, "", "![curves](coevolution.svg)"], {"settings": settings, "games": results})
    if args.out is not None:
        draw(results).savefig(args.out / "coevolution.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
