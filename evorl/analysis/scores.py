"""Scores of groups of runs on one world or several: at the end, or at equal steps or time.

A score is a run's fitness in the units of its world. On a scale, a world's zero is 0 and its target is 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from evorl.analysis.groups import Group, format_value, regroup, settings
from evorl.analysis.runs import RunRecord, Series
from evorl.analysis.sweeps import seeks_lowest
from evorl.analysis.tables import summary_metrics
from evorl.mdp.atari.scores import RANDOM_AND_HUMAN
from evorl.util.errors import BadRequest, nearest
from evorl.util.numbers import format_number
from evorl.util.text import listed

At = Literal["end", "steps", "seconds"]
"""The end of each run, or the most steps or seconds that all runs of a world have reached."""
CURVES = ("eval/fitness_mean", "eval/return_mean", "population/best", "train/return")
"""Metrics that follow the fitness during a run; a world's is the first that one of its runs has."""

Targets = float | tuple[float, float] | Mapping[str, float | tuple[float, float]] | None
"""The score that counts as 1, or those that count as 0 and as 1; of every world, or by world."""


class Scale(NamedTuple):
    """The scores that count as 0 and as 1 in a world."""

    zero: float
    one: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """Scores of G groups on K worlds."""

    at: At
    limits: Mapping[str, float]
    """By world, the steps or seconds at which the scores were taken; empty at the end."""
    scales: Mapping[str, Scale]
    """By world; scores of several worlds are already on their scales."""
    groups: Sequence[Mapping[str, Any]]
    """Values that distinguish each group."""
    values: Sequence[Sequence[Sequence[float]]]
    """[G][K] lists of scores, one of each run; empty where a group has no run."""
    lacking: Sequence[Sequence[int]]
    """[G][K] numbers of runs without a score: at the limit, or at all."""
    worlds: Sequence[str]
    basis: str = ""
    """What the scales of several worlds are, in words."""
    lowest: bool = False
    """Whether the lowest score is the best: all runs are jobs of a search that minimises."""

    @property
    def target(self) -> float | None:
        """The score that the optimality gap is measured from."""
        if len(self.worlds) > 1:
            return 1.0 if self.basis != BY_RANGE else None
        return self.scales[self.worlds[0]].one if self.scales else None


BY_RANGE = "0 and 1 are the lowest and the highest score of a run in its world"
BY_TARGET = "0 and 1 are each world's zero and target"
BY_HUMAN = "human-normalised: random play is 0 and a human tester 1 (DeepMind's dqn_zoo, atari_data.py)"


def world_scores(world: str, groups: Sequence[Group], targets: Targets) -> Iterator[Scores]:
    """Yield the scores of groups on one world, at the end, at equal steps and at equal time, where they are known."""
    known = scale(world, [run for group in groups for run in group.runs], targets)
    for at in get_args(At):
        limit, values, lacking = _taken(groups, at)
        if any(values):
            yield Scores(
                at=at, limits={} if limit is None else {world: limit}, scales={} if known is None else {world: known},
                groups=[group.values for group in groups], values=[[value] for value in values],
                lacking=[[count] for count in lacking], worlds=[world],
                lowest=seeks_lowest(run for group in groups for run in group.runs),
            )  # fmt: skip


def joint_scores(members: Mapping[str, Sequence[Group]], targets: Targets) -> Iterator[Scores]:
    """Yield the scores on all worlds together, each on its world's scale; nothing for one world.

    Runs of different worlds belong to one group if they agree in the keys that distinguish the groups of a world.
    """
    if len(members) < 2:
        return
    by_world = regroup(members)
    everyone = {world: [run for group in groups for run in group.runs] for world, groups in members.items()}
    ranges = {world: scale(world, runs, targets) for world, runs in everyone.items()}
    scales = {world: ends for world, ends in ranges.items() if ends is not None}
    basis = _basis({world: _target(world, targets) is not None for world in members})
    if len(scales) < len(members):
        scales, basis = {world: _range(runs) for world, runs in everyone.items()}, BY_RANGE
    named = {repr(group.values): group.values for groups in by_world.values() for group in groups}
    for at in get_args(At):
        limits: dict[str, float] = {}
        values: dict[str, dict[str, list[float]]] = {}
        without: dict[str, dict[str, int]] = {}
        for world, groups in by_world.items():
            limit, taken, lacking = _taken(groups, at)
            limits |= {} if limit is None else {world: limit}
            on = [_on_scale(group_values, scales[world]) for group_values in taken]
            names = [repr(group.values) for group in groups]
            values[world], without[world] = dict(zip(names, on, strict=True)), dict(zip(names, lacking, strict=True))
        yield Scores(
            at=at, limits=limits, scales=scales, groups=list(named.values()), worlds=list(members), basis=basis,
            values=[[values[world].get(name, []) for world in members] for name in named],
            lacking=[[without[world].get(name, 0) for world in members] for name in named],
            lowest=seeks_lowest(run for runs in everyone.values() for run in runs),
        )  # fmt: skip


def scale(world: str, runs: Sequence[RunRecord], targets: Targets) -> Scale | None:
    """Return the scale of a world: the given one, or random play and a human tester of an Atari game, or None."""
    target = _target(world, targets)
    if target is not None:
        return Scale(*target) if isinstance(target, tuple | list) else Scale(0.0, float(target))
    game = next((run.config.get("mdp.game") for run in runs), None)
    return Scale(*RANDOM_AND_HUMAN[game]) if game in RANDOM_AND_HUMAN else None


def _target(world: str, targets: Targets) -> float | tuple[float, float] | None:
    return targets.get(world) if isinstance(targets, Mapping) else targets


def _basis(has_target: Mapping[str, bool]) -> str:
    """What the scales of worlds are, in words; those without a target are Atari games."""
    others = [world for world, has in has_target.items() if not has]
    if len(others) in (0, len(has_target)):
        return BY_HUMAN if others else BY_TARGET
    return f"{BY_TARGET}; of {listed(others)} {BY_HUMAN}"


def check_targets(targets: Targets, worlds: Sequence[str]) -> None:
    """Raise `BadRequest` for a world that no run has, and for a scale without extent."""
    scale_of = targets if isinstance(targets, Mapping) else dict.fromkeys(worlds, targets)
    for world, target in scale_of.items():
        if world not in worlds:
            raise BadRequest(f"no run of this world{nearest(world, worlds)}; worlds: {', '.join(worlds)}", key="target")
        low, high = target if isinstance(target, tuple | list) else (0.0, target)
        if target is not None and low >= high:
            raise BadRequest(
                f"the target must be above the score that counts as 0: {format_value([low, high])}", key="target"
            )


def title(scores: Scores) -> str:
    """Where the scores were taken, in words: ``at equal steps: 60,672``."""
    if scores.at == "end":
        return "at the end of the runs"
    unit = "environment steps" if scores.at == "steps" else "seconds"
    places = [
        f"{'' if len(scores.worlds) == 1 else f'{world} '}{format_number(limit)}"
        for world, limit in scores.limits.items()
    ]
    return f"at equal {'steps' if scores.at == 'steps' else 'time'}: {', '.join(places)} {unit}"


def _taken(groups: Sequence[Group], at: At) -> tuple[float | None, list[list[float]], list[int]]:
    """Where the scores of the groups were taken, those of each group, and how many of its runs had none."""
    members = [_distinct(group.runs) for group in groups]
    runs = [run for several in members for run in several]
    metric = next((name for name in CURVES if any(name in run.series for run in runs)), None)
    limit = None
    if at == "end":
        taken = [[summary_metrics(run).get("fitness") for run in several] for several in members]
    elif metric is None:
        return None, [[] for _ in groups], [0] * len(groups)
    else:
        curves = [[run.series.get(metric) for run in several] for several in members]
        known = [curve for several in curves for curve in several if curve]
        limit = min(float((curve.steps if at == "steps" else curve.seconds).max()) for curve in known)
        taken = [[None if curve is None else last_value(curve, at, limit) for curve in several] for several in curves]
    scores = [[value for value in several if value is not None] for several in taken]
    return limit, scores, [several.count(None) for several in taken]


def _distinct(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs without copies: those with the seed, the settings and the curves of another, which tell nothing more."""
    known: dict[tuple[Any, ...], RunRecord] = {}
    for run in runs:
        curves = tuple(run.series[name].values.tobytes() for name in CURVES if name in run.series)
        known.setdefault((str(run.seed), settings(run), curves or run.directory), run)
    return [*known.values()]


def last_value(series: Series, at: At, limit: float) -> float | None:
    """Return the newest value that was recorded at ``limit`` steps or seconds, or before; None if none was."""
    along = series.steps if at == "steps" else series.seconds
    order = np.argsort(along, kind="stable")
    place = int(np.searchsorted(along[order], limit, side="right"))
    return float(series.values[order][place - 1]) if place else None


def _range(runs: Sequence[RunRecord]) -> Scale:
    known = [value for value in (summary_metrics(run).get("fitness") for run in runs) if value is not None] or [0.0]
    return Scale(min(known), max(known))


def _on_scale(values: Sequence[float], on: Scale) -> list[float]:
    span = (on.one - on.zero) or 1.0
    return [(value - on.zero) / span for value in values]
