"""What the tables of baselines share. An arm is an algorithm on a world, beside Stable-Baselines3's of the same name.

Ours runs at the settings that ``evorl.run mdp=WORLD rl=ALGORITHM`` has, or those that an arm names, the other at those
of rl-baselines3-zoo. Both have the same number of environment steps, and are evaluated ten times by 20 episodes of the
deterministic policy.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks.speed.common import PEERS, answer
from benchmarks.suite.published import published
from evorl.analysis.aggregates import (
    estimate,
    holm,
    iqm,
    optimality_gap,
    p_value,
    probability_of_improvement,
)
from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.parts import Measurement, Sweep
from evorl.reproduction.scores import METRIC, Score, grid_scores, score
from evorl.reproduction.scores import told as in_words
from evorl.reproduction.table import Analysis, Found, Picture, Profile, Repeated, Rows, Table

SEEDS = (0, 1, 2, 3, 4)
EVALUATIONS = 10
EPISODES = 20
LEVEL = 0.05
OURS, SB3 = "evorl", "Stable-Baselines3"
COLOURS = {OURS: "C0", SB3: "C1"}


class World(NamedTuple):
    """A world, and the returns that count as 0 and 1 where worlds are taken together."""

    title: str
    gymnasium: str | None
    """Its id there."""
    random: float
    """Of 100 episodes of random actions."""
    target: float
    """Gymnasium's threshold of a solved world; of Pendulum, which has none, the usual one; of Pong the best score."""
    digits: int = 0
    """That are told of a return."""


WORLDS = {
    "cartpole": World("CartPole", "CartPole-v1", 23.7, 475),
    "acrobot": World("Acrobot", "Acrobot-v1", -497, -100),
    "pendulum": World("Pendulum", "Pendulum-v1", -1208, -200),
    "lunarlander": World("LunarLander", "LunarLander-v3", -192, 200),
    "lunarlandercontinuous": World("LunarLanderContinuous", "LunarLanderContinuous-v3", -213, 200),
    "halfcheetah": World("HalfCheetah", "HalfCheetah-v5", -282, 4800),
    "hopper": World("Hopper", "Hopper-v5", 16.7, 3800),
    "swimmer": World("Swimmer", "Swimmer-v5", 0.8, 360),
    "pong": World("vector Pong", None, -20, 20, digits=1),
}


class Arm(NamedTuple):
    """An algorithm on a world."""

    algorithm: str
    """Of conf/rl or conf/ec."""
    world: str
    steps: int
    words: tuple[str, ...]
    """For evorl.run, beside world and budget."""
    peer: str | None
    """The zoo's algorithm beside it."""

    @property
    def name(self) -> str:
        return f"{self.algorithm}_{self.world}"

    @property
    def title(self) -> str:
        return f"{self.algorithm}, {WORLDS[self.world].title}"

    @property
    def every(self) -> int:
        """Steps between evaluations."""
        return self.steps // EVALUATIONS

    def sweep(self) -> Sweep:
        shared = (f"budget.steps={self.steps}", f"eval.every={self.every}", f"eval.episodes={EPISODES}")
        seeds = ",".join(map(str, SEEDS))
        return Sweep(
            self.name, (f"seed={seeds}", f"mdp={self.world}", *self.words, *shared, "record.tensorboard=false")
        )

    def measurements(self) -> list[Measurement]:
        if self.peer is None:
            return []
        return [Measurement(self.kept(seed), partial(play, self, seed)) for seed in SEEDS]

    def kept(self, seed: int) -> str:
        """The name of the peer's answer."""
        return f"zoo/{self.peer}-{self.world}-{self.steps}-{seed}"


def learner(algorithm: str, world: str, steps: int, *words: str) -> Arm:
    """A learner beside the zoo's of the same name."""
    peer = algorithm if WORLDS[world].gymnasium else None
    return Arm(algorithm, world, steps, (f"rl={algorithm}", *words), peer)


def play(arm: Arm, seed: int, also: Sequence[str]) -> dict[str, Any]:
    """What zoo.py says, and how long it took; ``also``: words of the command line, which change ours alone."""
    asked = {
        "algorithm": arm.peer, "world": WORLDS[arm.world].gymnasium, "steps": arm.steps, "seed": seed,
        "every": arm.every, "episodes": EPISODES,
    }  # fmt: skip
    began = time.monotonic()
    found = answer(PEERS, str(Path(__file__).with_name("zoo.py")), json.dumps(asked))
    return {**found, "seconds": time.monotonic() - began}


# ------------------------------------------------------------------ scores


class Scored(NamedTuple):
    """The runs of one program on an arm."""

    seeds: list[int]
    curves: list[list[float]]
    """The mean return of each evaluation, ten of each seed."""
    seconds: list[float]

    @property
    def ends(self) -> list[float]:
        return [curve[-1] for curve in self.curves]

    @property
    def means(self) -> list[float]:
        """Over all evaluations."""
        return [statistics.fmean(curve) for curve in self.curves]


def ours(arm: Arm, runs: Sequence[RunRecord]) -> Scored:
    """Of the runs that have ended."""
    there = sorted((run for run in runs if run.result is not None and of_arm(arm, run)), key=lambda run: run.seed)
    curves = [resampled(arm, run.series[METRIC].steps, run.series[METRIC].values) for run in there]
    return Scored([int(run.seed) for run in there], curves, [run.seconds for run in there])


def median_run(arm: Arm, runs: Sequence[RunRecord]) -> Path:
    """The directory of the run whose return at the end is the median (of an even number, the lower one)."""
    there = [run for run in runs if run.result is not None and of_arm(arm, run)]
    ranked = sorted(there, key=lambda run: (run.series[METRIC].values[-1], run.seed))
    return ranked[(len(ranked) - 1) // 2].directory


def of_arm(arm: Arm, run: RunRecord) -> bool:
    return run.directory.parent.name == arm.name


def theirs(arm: Arm, measured: Mapping[str, Any]) -> Scored:
    """Of the peer's runs."""
    found = {seed: measured[arm.kept(seed)] for seed in SEEDS if arm.peer and arm.kept(seed) in measured}
    curves = [resampled(arm, one["steps"], np.mean(one["returns"], axis=1)) for one in found.values()]
    return Scored([*found], curves, [one["seconds"] for one in found.values()])


def resampled(arm: Arm, steps: Sequence[float], returns: Sequence[float]) -> list[float]:
    """The return at each tenth of the steps: that of the first evaluation from there on, else the last one."""
    at = np.searchsorted(steps, np.arange(1, EVALUATIONS + 1) * arm.every).clip(max=len(steps) - 1)
    return [float(x) for x in np.asarray(returns)[at]]


# ------------------------------------------------------------------ tables


def verdicts(pairs: Sequence[tuple[Scored, Scored]]) -> list[str]:
    """How the ends of ours lie beside the peer's: higher, lower, or no difference shown (Mann-Whitney, Holm, 5 %)."""
    corrected = holm([p_value(a.ends, b.ends) for a, b in pairs])
    return [_verdict(p, a, b) for p, (a, b) in zip(corrected, pairs, strict=True)]


def _verdict(p: float, mine: Scored, other: Scored) -> str:
    if p >= LEVEL:
        return f"no difference shown (p = {p:.2g})"
    above = probability_of_improvement(np.array(mine.ends), np.array(other.ends)) > 0.5
    return f"{'higher' if above else 'lower'} (p = {p:.2g})"


def rows(found: Mapping[Arm, tuple[Scored, Scored]]) -> Iterator[list[str]]:
    both = {arm: pair for arm, pair in found.items() if all(len(one.seeds) > 1 for one in pair)}
    words = dict(zip(both, verdicts([*both.values()]), strict=True)) if both else {}
    for arm, pair in found.items():
        digits = WORLDS[arm.world].digits
        for program, one in zip((OURS, named(arm)), pair, strict=True):
            if one.seeds:
                yield [
                    f"{arm.title}: {program}", f"{len(one.seeds)}", f"{arm.steps:,}", score(one.ends).told(digits),
                    score(one.means).told(digits), words.get(arm, "-") if program == OURS else "-",
                    published(arm.peer, WORLDS[arm.world].gymnasium) if program != OURS else "-",
                    f"{statistics.median(one.seconds):.0f}",
                ]  # fmt: skip


HEADER = (
    "algorithm, world: program", "seeds", "steps", "return at the end", "mean over the run", "ours beside the other",
    "the zoo's published", "seconds",
)  # fmt: skip


def named(arm: Arm) -> str:
    """What the program beside ours is called."""
    return SB3 if arm.peer == arm.algorithm else f"{SB3}'s {(arm.peer or '').upper()}"


def together(found: Mapping[Arm, tuple[Scored, Scored]]) -> Rows | None:
    """Each algorithm over its worlds, beside the other program: returns scaled to 0 (random) and 1 (target)."""
    lines = []
    for algorithm in dict.fromkeys(arm.algorithm for arm in found):
        of = {arm: pair for arm, pair in found.items() if arm.algorithm == algorithm and all(x.seeds for x in pair)}
        if not of:
            continue
        sides = [[scaled(arm, pair[side].ends) for arm, pair in of.items()] for side in (0, 1)]
        better = estimate(probability_of_improvement, *sides[0], *sides[1])
        for program, side in zip((OURS, "the other"), sides, strict=True):
            cells = [Score(*estimate(kind, *side)).told(2) for kind in (iqm, optimality_gap(1.0))]
            lines.append(
                [f"{algorithm}: {program}", f"{len(of)}", *cells, Score(*better).told(2) if program == OURS else "-"]
            )
    header = ("algorithm: program", "worlds", "IQM", "optimality gap", "P(ours better)")
    return Rows(header, lines) if lines else None


def scaled(arm: Arm, returns: Sequence[float]) -> list[float]:
    world = WORLDS[arm.world]
    return [(x - world.random) / (world.target - world.random) for x in returns]


def draw(found: Mapping[Arm, tuple[Scored, Scored]]) -> list[Picture]:
    """A figure for each algorithm, with a panel for each world."""
    return [
        Picture(algorithm, f"{algorithm}: return over environment steps, with 95 % intervals",
                curves({arm: pair for arm, pair in found.items() if arm.algorithm == algorithm}))
        for algorithm in dict.fromkeys(arm.algorithm for arm in found)
    ]  # fmt: skip


def curves(found: Mapping[Arm, tuple[Scored, Scored]]) -> Figure:
    drawn, axes = panels([arm.title for arm in found], "environment steps", "return")
    for one, (arm, pair) in zip(axes, found.items(), strict=True):
        grid = np.arange(1, EVALUATIONS + 1) * float(arm.every)
        for program, name, scores in zip((OURS, SB3), (OURS, named(arm)), pair, strict=True):
            if scores.seeds:
                shaded(one, *grid_scores(grid, scores.curves), COLOURS[program], name)
    return legends(drawn)


def table(
    title: str, of: str, about: str, ci: Sequence[Arm], night: Sequence[Arm], hours: tuple[float, float]
) -> Table:
    """The table of these arms; ``hours``: core hours of either profile."""
    arms = {"ci": ci, "night": night}

    def analyse(there: Found) -> Analysis | None:
        found = {arm: (ours(arm, there.runs), theirs(arm, there.measured)) for arm in arms[there.profile]}
        found = {arm: pair for arm, pair in found.items() if pair[0].seeds}
        if not found:
            return None
        shown, joint = [*rows(found)], together(found)
        return Analysis(
            header=HEADER, rows=shown, also=[joint] if joint else [], gates=gates(shown),
            pictures=draw(found),
            data={"arms": {arm.name: data(arm, *pair) for arm, pair in found.items()}},
            policies={arm.name: median_run(arm, there.runs) for arm in found}, notes=[POLICIES],
            facts=versions_of(there.measured),
        )  # fmt: skip

    return Table(
        title=title, of=of, claim="learns as well as Stable-Baselines3 at the settings of its zoo, in as many steps",
        source="ours", about=f"{about}\n\n{ABOUT}",
        profiles={
            "ci": Profile(sizes(ci), hours[0], parts(ci)),
            "night": Profile(sizes(night), hours[1], parts(night)),
        },
        analyse=analyse, measured=measured, repeated=repeated, peers=True,
    )  # fmt: skip


ABOUT = f"""\
Both programs play the same number of environment steps and are evaluated ten times, by {EPISODES} episodes of the
deterministic policy. Ours has the settings of ``evorl.run mdp=WORLD rl=ALGORITHM``, unless said otherwise above. The
other has those of rl-baselines3-zoo, which are made for longer runs on some worlds. The return at the end is that of
the last evaluation. A number is the interquartile mean over seeds with its 95 % stratified bootstrap interval. "Ours
beside the other" is the Mann-Whitney test of the returns at the end at 5 %, corrected for the number of arms (Holm).
The zoo's published number is the mean return and deviation of one run of the length in brackets; it has version 3 of
MuJoCo's worlds. Over worlds, a return counts as 0 where random actions are and as 1 at Gymnasium's threshold of a
solved world (-200 on Pendulum). Seconds are the median wall time of a run on one core, evaluations included; the
machine had other work beside it."""


POLICIES = """\
The policy of each arm's median run is kept in `policies/ALGORITHM_WORLD`. To evaluate it again, to the same bits on a
processor with the same instructions: `python -m evorl.evaluate run=benchmarks/suite/results/policies/ppo_cartpole`\
"""


def sizes(arms: Sequence[Arm]) -> str:
    steps = [arm.steps for arm in arms]
    return f"{len(arms)} arms of {min(steps):,} to {max(steps):,} steps; {len(SEEDS)} seeds"


def parts(arms: Sequence[Arm]) -> list[Sweep | Measurement]:
    return [part for arm in arms for part in (arm.sweep(), *arm.measurements())]


def gates(shown: Sequence[Sequence[str]]) -> dict[str, str]:
    """That ours is not lower, where it has another beside it."""
    verdicts = {row[0].partition(":")[0]: row[5] for row in shown if row[5] != "-"}
    return {f"{arm}: not below": "failed" if word.startswith("lower") else "passed" for arm, word in verdicts.items()}


def data(arm: Arm, mine: Scored, other: Scored) -> dict[str, Any]:
    found = {"steps": arm.steps, OURS: mine._asdict(), "end": score(mine.ends)._asdict()}
    return found | ({SB3: other._asdict(), "other": score(other.ends)._asdict()} if other.seeds else {})


def versions_of(measured: Mapping[str, Any]) -> dict[str, Any]:
    return {"the other": next(iter(measured.values()))["versions"]} if measured else {}


def measured(found: Mapping[str, Any]) -> str:
    return "; ".join(f"{name.replace('_', ' on ')} {summary(one)}" for name, one in found["arms"].items())


def summary(one: Mapping[str, Any]) -> str:
    return in_words(one["end"]) + (f" (other {in_words(one['other'])})" if "other" in one else "")


def repeated(found: Mapping[str, Any]) -> dict[str, Repeated]:
    """The evaluations of each arm's runs."""
    return {
        name: Repeated(name, dict(zip(one[OURS]["seeds"], one[OURS]["curves"], strict=True)))
        for name, one in found["arms"].items()
    }
