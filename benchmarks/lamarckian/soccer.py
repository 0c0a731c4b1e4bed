"""PPO on soccer, two a side: goals ahead of the middle rule player after sixteen minutes.

Settings are those of conf/experiment/lamarckian/ppo_soccer: first 4,000,000 steps of self-play with players all over
the field at each kick-off (mdp.restart.scatter=12), then usual games against that rule player, which end by the
clock, so another machine has other numbers. Two seeds run side by side, with one core each. *Ahead*: goals of the
team minus those of the rule player, of the deterministic policy, a mean of 64 games, while it plays that rule
player. Seconds and steps are those of both parts. The aim is two goals a game.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels
from evorl.reproduction.parts import TWO_AT_ONCE, Sweep
from evorl.reproduction.scores import mean_text, median_policies
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table

AHEAD = "eval/score_mean"
AIM = 2.0
CAPTION = "Goals ahead of the middle rule player over seconds of training, of each seed"


def trained(name: str, seeds: str, first: Sequence[str], then: Sequence[str]) -> list[Sweep]:
    """Self-play of each seed, and what goes on from it."""
    shared = ("+experiment=lamarckian/ppo_soccer", f"seed={seeds}", "device=cpu", "record.tensorboard=false")
    return [
        Sweep(f"{name}-self", (*shared, "mdp.opponent=self", "mdp.restart.scatter=12", *first), TWO_AT_ONCE),
        Sweep(name, (*shared, "init='${hydra:sweep.dir}-self/${hydra:job.num}'", *then), TWO_AT_ONCE),
    ]


class Curve(NamedTuple):
    """Of a seed: goals ahead in its games against the rule player. Seconds and steps count self-play, too."""

    seed: int
    seconds: list[float]
    steps: list[float]
    ahead: list[float]


def curve(first: RunRecord, then: RunRecord) -> Curve:
    rule = then.series[AHEAD]
    seconds, steps = rule.seconds + first.seconds, rule.steps + first.steps
    return Curve(int(then.seed), seconds.tolist(), steps.tolist(), rule.values.tolist())


def row(each: Curve) -> list[str]:
    """Of the table."""
    there = next((seconds for seconds, ahead in zip(each.seconds, each.ahead, strict=True) if ahead >= AIM), None)
    return [
        str(each.seed), f"{each.steps[-1]:,.0f}", f"{each.seconds[-1]:,.0f}", f"{each.ahead[-1]:+.2f}",
        f"{max(each.ahead):+.2f}", "-" if there is None else f"{there:,.0f}",
    ]  # fmt: skip


def draw(curves: Sequence[Curve]) -> Figure:
    drawn, (axes,) = panels(["Two a side against the middle rule player"], "seconds", "goals ahead in a game")
    for each in curves:
        axes.plot(each.seconds, each.ahead, lw=1.5, label=f"seed {each.seed}")
    axes.axhline(AIM, color="0.6", lw=1, ls="--")
    return legends(drawn)


def analyse(results: Results) -> Analysis | None:
    judged = sorted((run for run in results.runs if AHEAD in run.series), key=lambda run: int(run.seed))
    first = {run.seed: run for run in judged if run.config["mdp.opponent"] == "self"}
    then = [run for run in judged if run.config["mdp.opponent"] != "self" and run.seed in first]
    if not then:
        return None
    curves = [curve(first[run.seed], run) for run in then]
    ends = [each.ahead[-1] for each in curves]
    policies, medians = median_policies({"soccer_two": then})
    return Analysis(
        header=["seed", "environment steps", "seconds", "ahead at the end", "at its best", f"seconds to {AIM:g}"],
        rows=[row(each) for each in curves],
        also=[medians],
        gates={f"{AIM:g} goals ahead at the end in every seed": "passed" if min(ends) >= AIM else "failed"},
        pictures=[Picture("soccer", CAPTION, draw(curves))],
        policies=policies,
        data={"curves": [each._asdict() for each in curves]},
    )


def measured(data: Mapping[str, Any]) -> str:
    return f"{mean_text([each['ahead'][-1] for each in data['curves']], 2)} goals ahead at the end"


TINY = ("rl.slots=8", "rl.minibatch=64", "budget.steps=4000", "eval.every=2000", "eval.episodes=4")
SELF_PLAY = ("budget.steps=4_000_000",)
TABLE = Table(
    title="PPO on soccer",
    of="Two a side in evorl's soccer, against its middle rule player",
    claim="no number is published: the game is evorl's own",
    source="a two-sided game as those of Bai et al. 2022",
    about=__doc__,
    profiles={
        "tiny": Profile("4,000 steps and 4,000 steps; one seed", 0.01, trained("soccer", "0", TINY, TINY)),
        "ci": Profile(
            "4,000,000 steps and 640 seconds; 3 seeds",
            0.75,
            trained("soccer", "0,1,2", SELF_PLAY, ("budget.seconds=640",)),
        ),
        "paper": Profile(
            "4,000,000 steps and an hour; 5 seeds",
            5.2,
            trained("soccer", "0,1,2,3,4", SELF_PLAY, ("budget.seconds=3600",)),
        ),
    },
    analyse=analyse,
    measured=measured,
)
