"""Whether ``--check`` finds a difference where there is one, and none where there is none.

``python -m evorl.reproduce suite/TABLE --check`` makes runs again and tests whether they differ from the committed
ones (evorl/analysis/repeated.py). Here the same test compares sets of PPO's runs on CartPole and of SAC's on Pendulum
that are drawn at random, 100 times: two sets of the same code with other seeds (A/A), and a set beside one with half
the learning rate. Sets have 5 runs, as those of the suite, and 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.suite.baselines import EVALUATIONS
from evorl.analysis.repeated import LEVEL, difference, scores_of
from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.parts import Sweep
from evorl.reproduction.scores import METRIC, Floats, grid_scores
from evorl.reproduction.table import Analysis, Found, Picture, Profile, Table
from evorl.util import seed as seeds

SAME, HALVED = "same", "halved"
WORLDS = {"cartpole": ("ppo", 30_000, 3e-3), "pendulum": ("sac", 4_000, 5e-3)}
"""Algorithm, steps, and the learning rate of its tuned settings."""
SIZES = (5, 10)
RESAMPLES = 100
LEAST = 95
"""Of 100 A/A comparisons without a difference, and of as many that find the planted one in sets of 10."""


def sweeps(world: str, same: int, halved: int) -> list[Sweep]:
    """``same``, ``halved``: runs of either."""
    algorithm, steps, lr = WORLDS[world]
    words = (
        f"mdp={world}", f"rl={algorithm}", f"budget.steps={steps}", f"eval.every={steps // EVALUATIONS}",
        "eval.episodes=20", "record.tensorboard=false",
    )  # fmt: skip
    return [
        Sweep(f"{SAME}_{world}", (f"seed={_range(0, same)}", *words)),
        Sweep(f"{HALVED}_{world}", (f"seed={_range(same, same + halved)}", f"rl.lr={lr / 2:g}", *words)),
    ]


def parts(same: int, halved: int) -> list[Sweep]:
    return [sweep for world in WORLDS for sweep in sweeps(world, same, halved)]


def _range(begin: int, end: int) -> str:
    return ",".join(map(str, range(begin, end)))


def curves(runs: Sequence[RunRecord], sweep: str) -> Floats:
    """The evaluations [N, 10] of the runs of a sweep that have ended."""
    there = [run for run in runs if run.result is not None and run.directory.parent.name == sweep]
    found = [run.series[METRIC].values[:EVALUATIONS] for run in sorted(there, key=lambda run: run.seed)]
    return np.array([one for one in found if len(one) == EVALUATIONS])


def counts(same: Floats, halved: Floats, size: int, world: str) -> tuple[int, int]:
    """How many of 100 drawn pairs of sets differ: of the same code, and beside half the learning rate."""
    rng = seeds.generator("no difference", world, size)
    alike = planted = 0
    for _ in range(RESAMPLES):
        drawn = rng.permutation(len(same))
        first, second = scores_of(same[drawn[:size]]), scores_of(same[drawn[size : 2 * size]])
        other = scores_of(halved[rng.permutation(len(halved))[:size]])
        alike += difference(first, second).found
        planted += difference(first, other).found
    return alike, planted


def analyse(there: Found) -> Analysis | None:
    both = {world: [curves(there.runs, f"{kind}_{world}") for kind in (SAME, HALVED)] for world in WORLDS}
    both = {world: one for world, one in both.items() if len(one[0]) >= 2 * max(SIZES) and len(one[1]) >= max(SIZES)}
    if not both:
        return None
    rows, gates, data = [], dict[str, str](), dict[str, Any]()
    for world, (same, halved) in both.items():
        algorithm = WORLDS[world][0]
        for size in SIZES:
            alike, planted = counts(same, halved, size, world)
            rows.append([f"{algorithm} on {world}", f"{size} and {size}", f"{RESAMPLES - alike}", f"{planted}"])
            gates[f"{algorithm} on {world}, {size} runs: A/A says no difference {LEAST} times"] = _gate(
                RESAMPLES - alike
            )
            data |= {f"{algorithm} on {world}, {size} runs": {"no difference": RESAMPLES - alike, "found": planted}}
        gates[f"{algorithm} on {world}, {max(SIZES)} runs: the planted change is found {LEAST} times"] = _gate(planted)
        data |= {f"{world} {kind}": one.tolist() for kind, one in zip((SAME, HALVED), (same, halved), strict=True)}
    return Analysis(
        header=["algorithm and world", "runs of either set", f"A/A: no difference, of {RESAMPLES}",
                f"half the learning rate: found, of {RESAMPLES}"],
        rows=rows, gates=gates, data=data,
        notes=[f"The level of the test is {LEVEL:g}, over both scores of a run: its last evaluation, and their mean."],
        pictures=[Picture("no_difference", "Return over environment steps, with 95 % intervals", draw(both))],
    )  # fmt: skip


def _gate(times: int) -> str:
    return "passed" if times >= LEAST else "failed"


def draw(both: Mapping[str, Sequence[Floats]]) -> Figure:
    drawn, axes = panels([f"{WORLDS[world][0]} on {world}" for world in both], "environment steps", "return")
    for one, (world, found) in zip(axes, both.items(), strict=True):
        grid = np.arange(1, EVALUATIONS + 1) * WORLDS[world][1] / EVALUATIONS
        for kind, colour, values in zip((SAME, HALVED), ("C0", "C1"), found, strict=True):
            name = "half the learning rate" if kind == HALVED else "the learning rate"
            shaded(one, *grid_scores(grid, values.tolist()), colour, f"{name}, {len(values)} runs")
    return legends(drawn)


def measured(data: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{name}: no difference {one['no difference']}, planted change found {one['found']} of {RESAMPLES}"
        for name, one in data.items()
        if isinstance(one, dict)
    )


TABLE = Table(
    title="The comparison of new runs with old ones", of="A/A comparisons, and a planted change",
    claim="sets of runs of the same code do not differ, in 95 of 100 resamplings; half the learning rate is found",
    source="ours", about=__doc__,
    profiles={
        "ci": Profile("40 runs of either world, and 20 with half the learning rate", 0.15, parts(40, 20)),
        "night": Profile("200 runs of either world, and 100 with half the learning rate", 0.8, parts(200, 100)),
    },
    analyse=analyse, measured=measured,
)  # fmt: skip
