"""Five against five in evorl's soccer: a league that begins with a policy of self-play.

Settings are those of conf/experiment/lamarckian/league_soccer. Self-play with players all over the field at each
kick-off (mdp.restart.scatter=12) teaches one policy to score. All four agents of the league begin with it: a main
agent, a main exploiter and two league exploiters, each with a quarter of the league's steps. Nobody learns from the
rule players; evaluations are games against them, and change nothing. Two agents learn at a time, with one core each.

*Ahead*: goals of the main agent's team minus those of the middle rule players, of the deterministic policy, a mean of
13 games, at the first evaluation and at the last. *Score*: the main agent's share of the points of its games, where a
win is 1 and a draw 1/2 and old games have faded: against the policy that all began with, and against the snapshot that
is hardest for it. Steps are those of a game, which all ten players take together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from evorl.analysis.payoffs import PayoffTable, payoff_table_figure, read_payoffs
from evorl.analysis.runs import RunRecord
from evorl.reproduction.figures import legends, panels
from evorl.reproduction.parts import Sweep
from evorl.reproduction.scores import mean_text, median_policies
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table

AHEAD = "eval/score_mean"
NAME = "league_soccer"
TWO_WORKERS = ("cluster=processes", "cluster.workers=2")
SHARED = ("device=cpu", "record.tensorboard=false")


def sweeps(seeds: str, first: Sequence[str], then: Sequence[str]) -> list[Sweep]:
    """Self-play of each seed, and the league that goes on from it."""
    alone = (
        "+experiment=lamarckian/ppo_soccer", f"seed={seeds}", *SHARED, "mdp.team_size=5", "rl.slots=640",
        "mdp.opponent=self", "mdp.restart.scatter=12", *first,
    )  # fmt: skip
    league = (
        f"+experiment=lamarckian/{NAME}", f"seed={seeds}", *SHARED, *TWO_WORKERS,
        "init='${hydra:sweep.dir}-self/${hydra:job.num}'", *then,
    )  # fmt: skip
    return [Sweep(f"{NAME}-self", alone), Sweep(NAME, league)]


class Outcome(NamedTuple):
    """Of a seed."""

    seed: int
    minutes: float
    """Of self-play and league."""
    steps: list[float]
    """Of each evaluation of the league."""
    ahead: list[float]
    snapshots: int
    score_first: float
    """Of the main agent, against the policy that all began with."""
    score_hardest: float


def outcome(first: RunRecord, league: RunRecord, payoffs: PayoffTable) -> Outcome:
    curve = league.series[AHEAD]
    scores = payoffs.values[0, len(payoffs.rows) :]  # the main agent, which is the first, against the snapshots
    return Outcome(
        int(league.seed), (first.seconds + league.seconds) / 60, curve.steps.tolist(), curve.values.tolist(),
        len(scores), float(scores[0]), float(np.min(scores, where=np.isfinite(scores), initial=1.0)),
    )  # fmt: skip


def row(of: Outcome) -> list[str]:
    """Of the table."""
    return [
        str(of.seed), f"{of.steps[-1]:,.0f}", f"{of.minutes:,.0f}", f"{of.ahead[0]:+.2f}", f"{of.ahead[-1]:+.2f}",
        str(of.snapshots), f"{of.score_first:.2f}", f"{of.score_hardest:.2f}",
    ]  # fmt: skip


def draw(outcomes: Sequence[Outcome]) -> Figure:
    drawn, (axes,) = panels(["Five a side in the league"], "steps of the league", "goals ahead of the rule players")
    for each in outcomes:
        axes.plot(each.steps, each.ahead, lw=1.5, label=f"seed {each.seed}")
    axes.axhline(0, color="0.6", lw=1, ls="--")
    return legends(drawn)


def analyse(results: Results) -> Analysis | None:
    by_seed = sorted((run for run in results.runs if run.result), key=lambda run: int(run.seed))
    alone = {run.seed: run for run in by_seed if run.choices.get("ec") != "league"}
    leagues = [run for run in by_seed if run.choices.get("ec") == "league" and run.seed in alone]
    played = [(run, payoffs) for run in leagues if AHEAD in run.series and (payoffs := read_payoffs(run)) is not None]
    if not played:
        return None
    outcomes = [outcome(alone[run.seed], run, payoffs) for run, payoffs in played]
    policies, medians = median_policies({"soccer_five": [run for run, _ in played]})
    better = all(each.score_first > 0.5 for each in outcomes)
    return Analysis(
        header=[
            "seed", "steps of the league", "minutes", "ahead at first", "ahead at the end", "snapshots",
            "score against the first policy", "against the hardest",
        ],
        rows=[row(each) for each in outcomes],
        also=[medians],
        gates={"better than the policy that all began with in every seed": "passed" if better else "failed"},
        pictures=[
            Picture(f"{NAME}_curve", "Goals ahead of the middle rule players, of the main agent", draw(outcomes)),
            Picture(f"{NAME}_payoffs", "Scores in the league, of the first seed", payoff_table_figure(played[0][1])),
        ],
        policies=policies,
        data={"outcomes": [each._asdict() for each in outcomes]},
    )  # fmt: skip


def measured(data: Mapping[str, Any]) -> str:
    found = [Outcome(**each) for each in data["outcomes"]]
    score, ahead = (mean_text(values, 2) for values in ([x.score_first for x in found], [x.ahead[-1] for x in found]))
    return (
        f"score of the main agent against the policy that all began with {score}, {ahead} goals ahead of rule players"
    )


TINY = ("rl.minibatch=80", "eval.every=4000")
TINY_LEAGUE = ("rl.slots=10", "ec.train_steps=1200", "ec.snapshot=1200", "ec.longest=2400", "ec.episodes=4")
TABLE = Table(
    title="Five a side in the league",
    of="Five against five in evorl's soccer, both sides in the league",
    claim="no number is published: the game is evorl's own",
    source="a two-sided game as those of Bai et al. 2022",
    about=__doc__,
    profiles={
        "tiny": Profile(
            "4,000 and 9,600 steps; one seed",
            0.02,
            sweeps(
                "0",
                (*TINY, "budget.steps=4000", "rl.slots=20"),
                (*TINY, *TINY_LEAGUE, "budget.steps=9600", "eval.episodes=4"),
            ),
        ),
        "ci": Profile(
            "6,000,000 steps of self-play, 12,000,000 of the league; one seed",
            1.5,
            sweeps("0", ("budget.steps=6_000_000",), ("budget.steps=12_000_000",)),
        ),
        "paper": Profile(
            "6,000,000 steps of self-play, 100,000,000 of the league; 3 seeds",
            25,
            sweeps("0,1,2", ("budget.steps=6_000_000",), ("budget.steps=100_000_000",)),
        ),
    },
    analyse=analyse,
    measured=measured,
)
