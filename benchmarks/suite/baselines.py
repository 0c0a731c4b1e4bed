"""What the tables of baselines share: scores of the runs of all arms, and the tables and texts made of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks.suite.arms import EPISODES, EVALUATIONS, RANDOM_EPISODES, SB3, SEEDS, WORLDS, Arm, parts, sizes
from benchmarks.suite.published import published
from evorl.analysis.aggregates import (
    estimate,
    holm,
    iqm,
    optimality_gap,
    probability_of_improvement,
    stratified_p_value,
)
from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.scores import METRIC, Score, grid_scores, score, score_text
from evorl.reproduction.table import Analysis, Curves, Picture, Policy, Profile, Repeated, Results, Rows, Table
from evorl.reproduction.verdicts import beside

LEVEL = 0.05
MARGIN = 0.1
"""Of the range of a world's returns, from random actions to the target."""
OURS = "evorl"
COLOURS = {OURS: "C0", SB3: "C1"}


# ------------------------------------------------------------------ scores


class Scored(NamedTuple):
    """The runs of one program on an arm."""

    seeds: list[int]
    curves: list[list[float]]
    """The mean return of each evaluation, ten of each seed."""
    steps: list[float]
    """Of each run in all."""
    seconds: list[float]
    places: list[str]
    """Directories of the runs; none of the peer's."""

    @property
    def ends(self) -> list[float]:
        return [curve[-1] for curve in self.curves]

    @property
    def means(self) -> list[float]:
        """Over all evaluations."""
        return [statistics.fmean(curve) for curve in self.curves]

    @property
    def median(self) -> tuple[float, int, str]:
        """Return at the end, seed and directory of the run whose return is the median; of an even number, the lower."""
        return sorted(zip(self.ends, self.seeds, self.places, strict=True))[(len(self.ends) - 1) // 2]

    def plain(self) -> dict[str, Any]:
        """What a result keeps."""
        return {"seeds": self.seeds, "curves": self.curves, "steps": self.steps, "seconds": self.seconds}


class Pair(NamedTuple):
    ours: Scored
    other: Scored


def ours(arm: Arm, runs: Sequence[RunRecord]) -> Scored:
    """Of the runs that have ended."""
    own = [run for run in runs if run.result is not None and run.directory.parent.name == arm.name]
    by_seed = sorted(own, key=lambda run: int(run.seed))
    curves = [resampled(arm, run.series[METRIC].steps, run.series[METRIC].values) for run in by_seed]
    return Scored(
        [int(run.seed) for run in by_seed], curves, [run.steps for run in by_seed], [run.seconds for run in by_seed],
        [str(run.directory) for run in by_seed],
    )  # fmt: skip


def theirs(arm: Arm, measured: Mapping[str, Any]) -> Scored:
    """Of the peer's runs."""
    by_seed = {seed: measured[arm.kept(seed)] for seed in arm.seeds if arm.peer and arm.kept(seed) in measured}
    curves = [
        resampled(arm, measurement["steps"], np.mean(measurement["returns"], axis=1))
        for measurement in by_seed.values()
    ]
    return Scored(
        [*by_seed],
        curves,
        [float(arm.steps)] * len(by_seed),
        [measurement["seconds"] for measurement in by_seed.values()],
        [""] * len(by_seed),
    )


def resampled(arm: Arm, steps: Sequence[float], returns: Sequence[float]) -> list[float]:
    """The return of the evaluation that is nearest to each tenth of the steps."""
    apart = np.abs(np.asarray(steps)[None, :] - np.arange(1, EVALUATIONS + 1)[:, None] * arm.every)
    return [float(x) for x in np.asarray(returns)[apart.argmin(axis=1)]]


# ------------------------------------------------------------------ tables

Pairs = Mapping[Arm, Pair]
HEADER = (
    "algorithm, world: program", "seeds", "steps", "return at the end", "end: ours lies", "mean over the run",
    "mean: ours lies", "the zoo's published", "seconds",
)  # fmt: skip


def rows(pairs: Pairs) -> Iterator[list[str]]:
    for arm, pair in pairs.items():
        world = WORLDS[arm.world]
        scores = [[score(of) if of else None for of in (side.ends, side.means)] for side in pair]
        for name, side, (end, mean) in zip((OURS, arm.other), pair, scores, strict=True):
            if side.seeds:
                is_own = name == OURS
                yield [
                    f"{arm.title}: {name}", f"{len(side.seeds)}", f"{statistics.median(side.steps):,.0f}",
                    score_text(end, world.digits), beside(end, scores[1][0]) if is_own else "-",
                    score_text(mean, world.digits), beside(mean, scores[1][1]) if is_own else "-",
                    "-" if is_own else published(arm.peer, world.gymnasium), f"{statistics.median(side.seconds):.0f}",
                ]  # fmt: skip


class Joint(NamedTuple):
    """An algorithm over its worlds, beside the other program: returns scaled to 0 (random actions) and 1 (target)."""

    worlds: int
    iqm: tuple[Score, Score]
    gap: tuple[Score, Score]
    better: Score
    p: float


def joint(pairs: Pairs, measured: Mapping[str, Any]) -> dict[str, Joint]:
    """Of each algorithm whose worlds have runs of both programs."""
    joints = {}
    for algorithm in dict.fromkeys(arm.algorithm for arm in pairs):
        of = {arm: pair for arm, pair in pairs.items() if arm.algorithm == algorithm and both(pair)}
        of = {arm: pair for arm, pair in of.items() if f"random/{arm.world}" in measured}
        if of:
            sides = [[scaled(arm, pair[side].ends, measured) for arm, pair in of.items()] for side in (0, 1)]
            scores = [[Score(*estimate(kind, *side)) for side in sides] for kind in (iqm, optimality_gap(1.0))]
            better = Score(*estimate(probability_of_improvement, *sides[0], *sides[1]))
            p = stratified_p_value(*sides)
            joints[algorithm] = Joint(len(of), (scores[0][0], scores[0][1]), (scores[1][0], scores[1][1]), better, p)
    return joints


def both(pair: Pair) -> bool:
    return all(len(side.seeds) > 1 for side in pair)


def scaled(arm: Arm, returns: Sequence[float], measured: Mapping[str, Any]) -> list[float]:
    none = statistics.fmean(measured[f"random/{arm.world}"])
    return [(x - none) / (WORLDS[arm.world].target - none) for x in returns]


def verdicts(joints: Mapping[str, Joint]) -> dict[str, str]:
    """How each algorithm lies beside the other program: higher, lower, or no difference shown (Holm, 5 %)."""
    corrected = holm([joint.p for joint in joints.values()])
    return {
        name: f"no difference shown (p = {p:.2g})" if p >= LEVEL
        else f"{'higher' if joint.better.iqm > 0.5 else 'lower'} (p = {p:.2g})"
        for (name, joint), p in zip(joints.items(), corrected, strict=True)
    }  # fmt: skip


def together(joints: Mapping[str, Joint], words: Mapping[str, str]) -> Rows:
    lines = [
        [
            f"{name}: {program}", f"{joint.worlds}", joint.iqm[side].text(2), joint.gap[side].text(2),
            joint.better.text(2) if side == 0 else "-", words[name] if side == 0 else "-",
        ]
        for name, joint in joints.items()
        for side, program in enumerate((OURS, "the other"))
    ]  # fmt: skip
    return Rows(("algorithm: program", "worlds", "IQM", "optimality gap", "P(ours better)", "verdict"), lines)


def suspects(joints: Mapping[str, Joint], words: Mapping[str, str]) -> Iterator[str]:
    """A sentence on the algorithms that are not shown to be lower, and yet look so."""
    low = [
        f"{name} ({joint.better.text(2)})"
        for name, joint in joints.items()
        if joint.better.high < 0.5 and not words[name].startswith("lower")
    ]
    if low:
        yield f"No difference is shown, yet the interval of P(ours better) lies below one half: {', '.join(low)}."


def plain(joint: Joint, word: str) -> dict[str, Any]:
    """What a result keeps of it."""
    sides = {
        kind: {name: score._asdict() for name, score in zip(Pair._fields, scores, strict=True)}
        for kind, scores in (("iqm", joint.iqm), ("gap", joint.gap))
    }
    return {"worlds": joint.worlds, **sides, "better": joint.better._asdict(), "p": joint.p, "verdict": word}


def policies(pairs: Pairs) -> Rows:
    """The median run of each arm, whose policy is kept."""
    kept = {arm: pair.ours.median for arm, pair in pairs.items()}
    return Rows(
        ("policy", "seed", "return at the end"),
        [[arm.name, f"{median[1]}", f"{median[0]:.2f}"] for arm, median in kept.items()],
    )


def gates(words: Mapping[str, str]) -> dict[str, str]:
    """That ours is not shown to be lower over its worlds."""
    return {
        f"{name}: not shown to be lower than the other over its worlds": "failed"
        if word.startswith("lower")
        else "passed"
        for name, word in words.items()
    }


def draw(pairs: Pairs, prefix: str) -> list[Picture]:
    """A figure for each algorithm, with a panel for each world; ``prefix``: of the files' names."""
    return [
        Picture(f"{prefix}{algorithm}", f"{algorithm}: return over environment steps, with 95 % intervals",
                curves({arm: pair for arm, pair in pairs.items() if arm.algorithm == algorithm}))
        for algorithm in dict.fromkeys(arm.algorithm for arm in pairs)
    ]  # fmt: skip


def curves(pairs: Pairs) -> Figure:
    drawn, axes = panels([arm.title for arm in pairs], "environment steps", "return")
    for axis, (arm, pair) in zip(axes, pairs.items(), strict=True):
        grid = np.arange(1, EVALUATIONS + 1) * float(arm.every)
        for program, name, scores in zip((OURS, SB3), (OURS, arm.other), pair, strict=True):
            if scores.seeds:
                shaded(axis, *grid_scores(grid, scores.curves), COLOURS[program], name)
    return legends(drawn)


def table(
    title: str,
    of: str,
    about: str,
    ci: Sequence[Arm],
    night: Sequence[Arm],
    hours: tuple[float, float],
    prefix: str = "",
    claim: str = "not lower than Stable-Baselines3 at the settings of its zoo, in as many steps",
) -> Table:
    """The table of these arms; ``hours``: core hours of either profile; ``prefix``: of its figures' names."""
    arms = {"ci": ci, "night": night}
    peers = any(arm.peer for arm in (*ci, *night))

    def analyse(results: Results) -> Analysis | None:
        every = {arm: Pair(ours(arm, results.runs), theirs(arm, results.measured)) for arm in arms[results.profile]}
        pairs = {arm: pair for arm, pair in every.items() if pair.ours.seeds}
        if not pairs:
            return None
        over = joint(pairs, results.measured)
        words = verdicts(over)
        return Analysis(
            header=HEADER, rows=[*rows(pairs)], gates=gates(words), pictures=draw(pairs, prefix),
            also=[*([together(over, words)] if over else []), policies(pairs)],
            notes=[*suspects(over, words), kept(next(iter(pairs)))], facts=facts(pairs, results.measured),
            policies={arm.name: Policy(Path(pair.ours.median[2])) for arm, pair in pairs.items()},
            data={
                "arms": {arm.name: data(arm, pair) for arm, pair in pairs.items()},
                "random": {
                    world: results.measured[name] for world in WORLDS if (name := f"random/{world}") in results.measured
                },
                "joint": {name: plain(joint, words[name]) for name, joint in over.items()},
            },
        )  # fmt: skip

    return Table(
        title=title, of=of, claim=claim,
        source="ours", about=f"{about}\n\n{ABOUT if peers else text_alone((*ci, *night))}",
        profiles={
            "ci": Profile(sizes(ci), hours[0], parts(ci)),
            "night": Profile(sizes(night), hours[1], parts(night)),
        },
        analyse=analyse, measured=measured, repeated=repeated, policy_scores=policy_scores, peers=peers,
    )  # fmt: skip


ABOUT = f"""\
Both programs have the same budget of environment steps and are evaluated ten times, by {EPISODES} episodes of the
deterministic policy. Ours has the settings of ``evorl.run mdp=WORLD rl=ALGORITHM``, unless said otherwise above. It
finishes what it is playing, so it has some steps more (the median is told): with profile=ci up to 3 %, and PBT up to
15 % (286,628 of 250,000 on CartPole). The evaluation nearest to each tenth counts. The other has the settings of
rl-baselines3-zoo, which are made for longer runs on some worlds: its SAC and TD3 play the first 10,000 steps at random
on most of them. The return at the end is that of the last evaluation. A number is the interquartile mean over seeds
with its 95 % stratified bootstrap interval; "ours lies" says how that of ours lies beside the other's. The zoo's
published number is the mean return and deviation of one run of the length in brackets; it has version 3 of MuJoCo's
worlds (source: benchmark.md of https://github.com/DLR-RM/rl-baselines3-zoo at commit 0088472).

Over worlds, a return counts as 0 where random actions are ({RANDOM_EPISODES} episodes) and as 1 at Gymnasium's
threshold of a solved world (-200 on Pendulum). The verdict is that of a permutation test of the returns at the end
within each world at 5 %, corrected for the number of algorithms (Holm). A gate is passed where ours is not shown to be
lower. That does not show that it is as good: {len(SEEDS)} seeds miss all but large differences, so look at P(ours
better) and its interval, too. Gates were for each world at first; they have been for each algorithm over its worlds
since the first measurements, whose seeds were the same. Seconds are the median wall time of a run on one core,
evaluations included; the machine had other work beside it. Those of the other begin with its program, whose imports
take some five seconds."""


def text_alone(arms: Sequence[Arm]) -> str:
    """About arms with nothing beside them."""
    episodes = " or ".join(f"{n}" for n in sorted({arm.episodes for arm in arms}))
    return f"""\
A run has the settings of ``evorl.run mdp=WORLD rl=ALGORITHM`` and is evaluated ten times, by {episodes} episodes of the
deterministic policy. The return at the end is that of the last evaluation. A number is the interquartile mean over
seeds with its 95 % stratified bootstrap interval. Seconds are the median wall time of a run, evaluations included; the
machine had other work beside it."""


def kept(arm: Arm) -> str:
    """The text about the policies; ``arm``: one of the table, for the command."""
    return f"""\
The policy of each arm's median run is kept in `policies/ALGORITHM_WORLD`. The table of policies has its return, which
is that of one run; above it are interquartile means. To evaluate it again, to the same bits on a processor with the
same instructions: `python -m evorl.evaluate run=benchmarks/suite/results/policies/{arm.name}`"""


def data(arm: Arm, pair: Pair) -> dict[str, Any]:
    """What a result keeps of an arm."""
    scores = {name: score(side.ends)._asdict() if side.seeds else None for name, side in pair._asdict().items()}
    return {"world": arm.world, "budget": arm.steps, "end": scores, OURS: pair.ours.plain(), SB3: pair.other.plain()}


def facts(pairs: Pairs, measured: Mapping[str, Any]) -> dict[str, Any]:
    """What both programs took, and the versions of the other."""
    seconds = sum(sum(side.seconds) for pair in pairs.values() for side in pair)
    versions = next(
        ({"the other": measurement["versions"]} for measurement in measured.values() if "versions" in measurement), {}
    )
    return {"core hours": round(seconds / 3600, 2), **versions}


def measured(data: Mapping[str, Any]) -> str:
    """Each algorithm over its worlds; those with nothing beside them have their numbers on the page alone."""
    algorithms = dict.fromkeys(name.removesuffix(f"_{row['world']}") for name, row in data["arms"].items())
    alone = [name for name in algorithms if name not in data["joint"]]
    return "; ".join(
        [
            *(f"{name} {summary(joint)}" for name, joint in data["joint"].items()),
            *([f"{' and '.join(alone)} with nothing beside"] if alone else []),
        ]
    )


def summary(joint: Mapping[str, Any]) -> str:
    own, other = (score_text(joint["iqm"][name], 2) for name in Pair._fields)
    worlds = f"{joint['worlds']} world{'s' * (joint['worlds'] > 1)}"
    return f"over {worlds}: IQM {own} (other {other}), {joint['verdict']}"


def policy_scores(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row["end"]["ours"] for name, row in data["arms"].items()}


def margin(world: str) -> float:
    """The largest difference of returns that does not matter in ``--check``."""
    return MARGIN * (WORLDS[world].target - WORLDS[world].worst)


def repeated(data: Mapping[str, Any]) -> dict[str, Repeated]:
    """The evaluations of each arm's runs."""
    made = {}
    for name, row in data["arms"].items():
        arm = Arm(name.removesuffix(f"_{row['world']}"), row["world"], row["budget"], (), None)
        curves = dict(zip(row[OURS]["seeds"], row[OURS]["curves"], strict=True))
        made[name] = Repeated(name, curves, margin(arm.world), partial(curves_of, arm))
    return made


def curves_of(arm: Arm, runs: Sequence[RunRecord]) -> Curves:
    """Of the runs of an arm's sweep."""
    scored = ours(arm, runs)
    return dict(zip(scored.seeds, scored.curves, strict=True))
